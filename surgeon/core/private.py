"""Everything that surgeon uses of torch and timm without a promise that it stays.

Each name here stands for something that no public name offers. A new release of torch or timm that moves one of them
breaks this module, and the tests of this module say which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._ops import _len_torch_dispatch_stack_pre_dispatch
from torch._prims_common import suggest_memory_format
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm as InstanceNorm
from torch.nn.modules.module import _has_any_global_hook
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "OVERRIDDEN",
    "BatchNorm",
    "InstanceNorm",
    "TorchDispatchMode",
    "after_backward",
    "asking_node",
    "beta_draws",
    "calls_are_plain",
    "children_of",
    "compiled_from",
    "current_backward",
    "hooks_of",
    "is_lazily_zero",
    "metadata_of_state",
    "next_node",
    "operations_are_intercepted",
    "remove_hooks",
    "suggest_memory_format",
    "tensors_of",
    "times_written",
    "timm_config",
    "with_metadata",
]

OVERRIDDEN = ("_apply", "_load_from_state_dict", "_save_to_state_dict")
"""Methods of nn.Module that surgeon's layers extend: its public hooks come too late or not for every caller."""

NO_BACKWARD = -1

Hook = TypeVar("Hook")


# ---- modules ----


def children_of(module: nn.Module) -> dict[str, nn.Module | None]:
    """The live table of a module's children: `named_children` leaves out shared and empty ones."""
    return module._modules


def compiled_from(module: nn.Module) -> nn.Module | None:
    """The module that torch.compile has wrapped in this one; None if this is no wrapper of its."""
    inner = getattr(module, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else None


def hooks_of(module: nn.Module, kind: type[Hook]) -> list[Hook]:
    """The module's own forward hooks of a class, pre-hooks too; handles do not survive a copy of the module."""
    hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
    return [hook for hook in hooks if isinstance(hook, kind)]


def remove_hooks(module: nn.Module, kind: type) -> None:
    """Take away the module's own forward hooks and pre-hooks of a class."""
    for table in (module._forward_pre_hooks, module._forward_hooks):
        for key in [key for key, hook in table.items() if isinstance(hook, kind)]:
            del table[key]


def calls_are_plain(*modules: nn.Module) -> bool:
    """Whether nobody would notice if these modules were not called: no hook of theirs or of all modules waits."""
    for module in modules:
        own = vars(module)
        if "forward" in own or own["_forward_hooks"] or own["_forward_pre_hooks"]:
            return False
        if own["_backward_hooks"] or own["_backward_pre_hooks"]:
            return False
    return not _has_any_global_hook()  # type: ignore[no-untyped-call]


def tensors_of(module: nn.Module) -> dict[str, Tensor | None]:
    """A module's own parameters and buffers; without those that are computed when they are asked for."""
    return {**module._parameters, **module._buffers}


def metadata_of_state(state: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    """What modules have noted beside their tensors, their versions for instance; None if nothing was kept."""
    return getattr(state, "_metadata", None)


def with_metadata(state: Any, source: Mapping[str, Any]) -> Any:
    """The same state with the notes of another one; `state` takes attributes, as an OrderedDict does."""
    state._metadata = metadata_of_state(source)
    return state


# ---- tensors ----


def times_written(tensor: Tensor) -> int:
    """How often a tensor was written into; tensors of inference mode do not count."""
    return 0 if tensor.is_inference() else tensor._version


def is_lazily_zero(tensor: Tensor) -> bool:
    """Whether a tensor stands for zeros that were never written to memory."""
    return torch._is_zerotensor(tensor)


def beta_draws(count: int, alpha: float, generator: torch.Generator | None, device: torch.device | str) -> Tensor:
    """From Beta(alpha, alpha), drawn by a given generator: torch.distributions takes only the global one."""
    return torch._sample_dirichlet(torch.full((count, 2), alpha, device=device), generator=generator)[:, 0]


# ---- the state of torch ----


def operations_are_intercepted() -> bool:
    """Whether the tracer, torch.func, forward-mode differentiation or a mode sees or replaces every operation."""
    if torch._C._is_tracing():
        return True
    if torch._C._functorch.peek_interpreter_stack() is not None or torch.autograd.forward_ad._current_level >= 0:
        return True
    if torch._C._len_torch_dispatch_stack() or _len_torch_dispatch_stack_pre_dispatch():  # type: ignore[no-untyped-call]
        return True
    if not torch._C._len_torch_function_stack():
        return False
    # A default device intercepts functions too, and concerns only tensors that are made without one.
    functions = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return any(type(mode) is not DeviceContext for mode in functions)


def current_backward() -> int | None:
    """The number of the backward pass that this code is a part of; None outside of any."""
    number = torch._C._current_graph_task_id()
    return None if number == NO_BACKWARD else number


def next_node() -> int:
    """The number of the next node of autograd's graph that this thread makes."""
    number: int = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]
    return number


def asking_node() -> int | None:
    """The number of the node that the backward pass is at; None if it is at none."""
    node = torch._C._current_autograd_node()
    return None if node is None else node._sequence_nr()


def after_backward(callback: Callable[[], None]) -> None:
    """Call this at the end of the backward pass that is running."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


# ---- timm ----


def timm_config(folder: str) -> tuple[Any, str, dict[str, Any] | None]:
    """What timm reads from a folder of its form: settings of the weights, architecture, arguments."""
    from timm.models._hub import load_model_config_from_path

    settings, architecture, arguments = load_model_config_from_path(folder)
    return settings, architecture, arguments
