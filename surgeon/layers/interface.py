"""What tools that know nothing of surgeon find in a rewritten layer, which is an instance of the class it replaced.

Some take hold of a BatchNorm as it stands (estimating its statistics anew, setting its momentum or its mode):
for them the layer is one. Others put something else in its place: a convolution with the layer folded into it,
or a new layer of another class. All of those read `eps`, and those that make a new layer read `affine`, which
nothing else does. So these two answer only where nothing of the rewrite would be lost without a word.

Settings of evaluation that no tensor holds travel in the metadata of a state dict, beside torch's own format
version. Its keys stay those of the original network.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.core.private import metadata_of_state

if TYPE_CHECKING:
    from surgeon.layers.rewriting import NormConfig

SETTINGS = "surgeon"
"""Under this name a layer's settings lie in its part of a state dict's metadata."""


class BatchNormInterface(nn.Module):
    """The attributes and methods of torch's BatchNorm by which other people's tools handle a layer."""

    # What reads every attribute there is (the tracer, inspect.getmembers) finds neither of the two.
    __constants__: ClassVar[list[str]] = []
    __jit_ignored_attributes__: ClassVar[list[str]] = ["eps", "affine"]

    def __dir__(self) -> list[str]:
        names = super().__dir__()  # type: ignore[no-untyped-call]
        return [name for name in names if name not in self.__jit_ignored_attributes__]

    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    num_features: int
    channel_groups: int
    frozen: bool
    source: str
    identity_alpha: float
    constant_alpha: float | None
    rewrites: dict[str, NormConfig]
    epsilon: float

    @property
    def alpha_values(self) -> float | tuple[float, ...]:
        raise NotImplementedError

    def set_alpha(self, alpha: float | tuple[float, ...]) -> None:
        raise NotImplementedError

    @property
    def alpha_options(self) -> dict[str, str]:
        """By rewrite, the option that is this layer's alpha; where there is one, it may be set after conversion."""
        options = {name: config.alpha_option for name, config in self.rewrites.items()}
        return {name: option for name, option in options.items() if option is not None}

    @property
    def eps(self) -> float:
        """`epsilon`, for those who compute with it what the layer does in evaluation, if that is plain BatchNorm."""
        if reason := self._unlike_batch_norm():
            raise SurgeonError(
                f"A rewritten layer cannot be folded or replaced: it {reason}, and that would be lost.",
                "Set alpha to 0 or merge its branches first, or fold the original network; surgeon.export writes the "
                "network as it is. (Code that computes with the layer's own statistics reads `epsilon`.)",
            )
        return self.epsilon

    @eps.setter
    def eps(self, value: float) -> None:
        self.epsilon = value

    @property
    def affine(self) -> bool:
        """Read only to make another layer out of this one, which would have nothing of its rewrites."""
        raise SurgeonError(
            f"A layer rewritten by {', '.join(self.rewrites) or 'surgeon'} cannot be replaced by one of another class "
            "(synchronised, frozen, unfrozen, split or merged by another tool): its rewrite would be lost.",
            "Use that tool on the original network, and then convert it with surgeon.",
        )

    def _unlike_batch_norm(self) -> str:
        """What the layer does in evaluation besides plain BatchNorm, or nothing."""
        if self.identity_alpha != 0:
            return f"is a {self.source}"
        if self.constant_alpha != 0:
            return "mixes each example's own statistics into the running ones (alpha > 0)"
        if getattr(self, "inference_rule", None) is not None:
            return f"evaluates by a rule of its own ({', '.join(self.rewrites)})"
        if self.channel_groups != self.num_features:
            return "shares statistics within groups of channels"
        if getattr(self, "aux", None) is not None:
            return "has an auxiliary branch"
        added = [name for name, child in self.named_children() if name not in ("drop", "act")]
        return f"has a part of its own ({added[0]})" if added else ""

    def reset_running_stats(self) -> None:
        """As torch's; those that a rewrite has added start again, too. A frozen layer keeps its own."""
        if self.frozen or self.running_mean is None or self.running_var is None:
            return
        self.running_mean.zero_()
        self.running_var.fill_(1)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()
        for config in self.rewrites.values():
            config.reset_statistics(self)  # type: ignore[arg-type]

    def reset_parameters(self) -> None:
        """As torch's."""
        self.reset_running_stats()
        with torch.no_grad():
            if self.weight is not None:
                self.weight.fill_(1)
            if self.bias is not None:
                self.bias.zero_()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if (metadata := metadata_of_state(destination)) is not None:
            settings = {"alpha": self.alpha_values, "channel_groups": self.channel_groups}
            metadata.setdefault(prefix[:-1], {})[SETTINGS] = settings

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Mapping[str, Any], *args: Any
    ) -> None:
        """As the original: old files have no batch counter, and a frozen layer has no use for one."""
        counter = f"{prefix}num_batches_tracked"
        if self.num_batches_tracked is None:
            state_dict.pop(counter, None)
        elif f"{prefix}running_mean" in state_dict:  # a file of the unsplit layer says nothing of its second branch
            state_dict.setdefault(counter, torch.zeros_like(self.num_batches_tracked))
            self._take_settings(local_metadata)
        nn.Module._load_from_state_dict(self, state_dict, prefix, local_metadata, *args)

    def _take_settings(self, metadata: Mapping[str, Any]) -> None:
        """An alpha that nobody has set here comes with the weights; of all other differences there is a warning."""
        unset = self.alpha_values == self.identity_alpha
        if (saved := metadata.get(SETTINGS)) is None:
            # A plain network's state dict has torch's version of each layer; a file or helper that drops all
            # metadata (safetensors, a dict comprehension) has dropped the alpha of a converted one as well.
            if unset and not metadata and self.alpha_options:
                name, option = next(iter(self.alpha_options.items()))
                warnings.warn(
                    "The loaded weights come without the metadata of a state dict, so alpha stays "
                    f"{self.identity_alpha:g}. If they were saved from a converted network, set its alpha again: "
                    f'surgeon.convert(model, "{name}", {option}=…); surgeon.save and surgeon.load keep it.',
                    stacklevel=2,
                )
            return
        alpha, groups = saved["alpha"], saved["channel_groups"]
        if groups != self.channel_groups:
            warnings.warn(
                f"The loaded weights were saved from layers with {groups} channel groups, but here are "
                f"{self.channel_groups}: convert the network with the same options.",
                stacklevel=2,
            )
        if alpha == self.alpha_values or alpha == self.identity_alpha:
            return
        if unset and self.alpha_options:
            self.set_alpha(alpha)
            return
        here = f"alpha {_shown(self.alpha_values)}" if self.alpha_options else "no example weighting"
        warnings.warn(
            f"The loaded weights were saved with alpha {_shown(alpha)}, but this network has {here}, which it keeps.",
            stacklevel=2,
        )


def _shown(alpha: float | tuple[float, ...]) -> str:
    return "per channel" if isinstance(alpha, tuple) else f"{alpha:g}"
