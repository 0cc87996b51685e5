"""What comes before the first layer that changes is computed once per batch, whatever the network's code looks like.

The very first pass also finds out which modules are done before the first changing layer begins. Over a
batch, the outermost of them keep the output of the first pass and answer with it in those that follow.
Operations outside of modules are computed each time: the network's own code still decides what
happens to the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from surgeon.core.private import compiled_from, times_written
from surgeon.layers.wrapped import copied


class SharedPrefix:
    """Repeats a network on the same images while only some of its layers change between the passes."""

    def __init__(self, model: nn.Module, changing: Iterable[nn.Module]) -> None:
        self.model = model
        self._changing = frozenset(changing)
        self._modules: tuple[nn.Module, ...] | None = None

    @contextmanager
    def over(self, images: Any) -> Iterator[Callable[[], Any]]:
        """A pass over the same images, to be repeated as often as layers change."""
        with ExitStack() as sharing:

            def forward() -> Any:
                if self._modules is None:
                    output, self._modules = _traced(self.model, self._changing, images)
                    sharing.enter_context(_forwards_wrapped(self._modules, _Once))
                else:
                    output = self.model(copied(images))  # a network may write into its input
                return output

            sharing.enter_context(_forwards_wrapped(self._modules or (), _Once))
            yield forward


@contextmanager
def _forwards_wrapped(modules: Iterable[nn.Module], wrap: Callable[..., Any]) -> Iterator[None]:
    """For a while, let something else answer for modules, also where their forward is called directly."""
    replaced = []
    try:
        for module in modules:
            own = module.__dict__.get("forward")
            module.forward = wrap(module.forward)
            replaced.append((module, own))
        yield
    finally:
        for module, own in replaced:
            del module.__dict__["forward"]
            if own is not None:
                module.__dict__["forward"] = own


class _Once:
    """A function that computes only the first time."""

    def __init__(self, compute: Callable[..., Tensor]) -> None:
        self.compute = compute
        self.output: Tensor | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        if self.output is None:
            self.output = self.compute(*args, **kwargs)
        return self.output


def _traced(model: nn.Module, changing: frozenset[nn.Module], images: Any) -> tuple[Any, tuple[nn.Module, ...]]:
    """A whole pass, and the outermost modules that are done, for good, before the first changing layer begins."""
    if compiled_from(model) is not None:  # hooks would break its graph
        return model(copied(images)), ()
    trace = _Trace(changing)
    handles = [module.register_forward_pre_hook(trace.begin) for module in model.modules()]
    handles += [module.register_forward_hook(trace.end) for module in model.modules()]
    try:
        # Outside of inference mode tensors count how often they are written into.
        with _forwards_wrapped(changing, trace.noted), torch.inference_mode(False), torch.no_grad():
            output = model(copied(images))
    finally:
        for handle in handles:
            handle.remove()
    return output, trace.outermost_repeatable()


class _Trace:
    """Which modules were called, how often, and what those gave that were done in time."""

    def __init__(self, changing: frozenset[nn.Module]) -> None:
        self.changing = changing
        self.reached = False
        self.calls: dict[nn.Module, int] = {}
        self.outputs: dict[nn.Module, tuple[Tensor, Tensor, int]] = {}

    def noted(self, forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The forward of a changing layer."""

        def begin(*args: Any, **kwargs: Any) -> Tensor:
            self.reached = True
            return forward(*args, **kwargs)

        return begin

    def begin(self, module: nn.Module, _: Any) -> None:
        self.calls[module] = self.calls.get(module, 0) + 1

    def end(self, module: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, Tensor) and not self.reached:
            self.outputs[module] = (output, output.clone(), times_written(output))

    def outermost_repeatable(self) -> tuple[nn.Module, ...]:
        repeatable = [m for m, pair in self.outputs.items() if self.calls[m] == 1 and _left_alone(*pair)]
        inner = {child for module in repeatable for child in module.modules() if child is not module}
        return tuple(module for module in repeatable if module not in inner)


def _left_alone(output: Tensor, as_given: Tensor, writes: int) -> bool:
    """Whether nothing that came later has written into an output, as in-place activations do."""
    if times_written(output) != writes:  # also where it made no difference to these images
        return False
    return torch.equal(output, as_given) or bool(((output == as_given) | (output.isnan() & as_given.isnan())).all())
