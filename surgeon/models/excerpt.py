"""The network among the tensors of a weights file that holds more: a loss with weights, a teacher, a second network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torch import nn

from surgeon.core.errors import SurgeonError, count, listing
from surgeon.models.weights import WeightsFile, is_batch_counter, wrapper_prefix


def excerpt(model: nn.Module, weights: WeightsFile) -> WeightsFile:
    """The tensors under the one prefix, such as `model.`, that has all names of the network behind it.

    What has the prefix stays, also what the network does not know, so that a deeper network is not taken for it.
    A file without such a prefix is left as it is.
    """
    own = [name for name in model.state_dict() if not is_batch_counter(name)]
    wrapper = wrapper_prefix(own)
    prefixes = _prefixes([name.removeprefix(wrapper) for name in own], weights.state)
    if "" in prefixes:  # the network itself, and copies of it beside it
        prefix = ""
        others = [name for name in weights.state if name.startswith(tuple(one for one in prefixes if one))]
    elif len(prefixes) > 1:
        example = f"'^{prefixes[0].replace('.', chr(92) + '.')}='"
        raise SurgeonError(
            f"{str(weights.path)!r} holds the network {len(prefixes)} times, under {listing(map(repr, prefixes))}.",
            f"Take one of them: --rename {example}.",
        )
    elif prefixes:
        prefix = prefixes[0]
        others = [name for name in weights.state if not name.startswith(prefix)]
    else:
        return weights
    if not (prefix or others):
        return weights
    state = {name.removeprefix(prefix): tensor for name, tensor in weights.state.items() if name not in set(others)}
    notes = [f"removed the prefix {prefix!r} from {count(len(state), 'name')}"] if prefix else []
    notes += (
        [f"left out {count(len(others), 'tensor')} beside the network: {listing(others, limit=3)}"] if others else []
    )
    return replace(weights, state=state, notes=(*weights.notes, *notes))


def _prefixes(own: list[str], names: Iterable[str]) -> list[str]:
    """Those behind which all names of the network are found."""
    present = set(names)
    ends = [name.removesuffix(own[0]) for name in present if name.endswith(own[0])] if own else []
    whole = [end for end in ends if end == "" or end.endswith(".")]
    return sorted(end for end in whole if all(end + name in present for name in own))
