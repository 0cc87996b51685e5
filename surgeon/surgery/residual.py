"""The residual additions of a network, found by reading each block's own code, and units put right after them.

A block's forward is traced with torch.fx, every submodule a single step. A residual addition joins two
values computed from the block's input, one by way of more layers than the other; the last one counts.

Where the sum is what the block returns, a unit is a forward hook. Where something follows (ResNet's last
activation), the block's forward is generated from the traced steps with the unit's call among them, once
for training and once for evaluation, so that code that asks `self.training` goes on doing so. The block
stays an instance of its class, keeps its parameters' names, and can be copied and pickled.
"""

from __future__ import annotations

import ast
import copy
import inspect
import operator
import random
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn

from surgeon.core.errors import SurgeonError
from surgeon.inserts import PREFIX
from surgeon.surgery.selectors import select

_ADDITIONS: tuple[Any, ...] = (operator.add, operator.iadd, torch.add)
_LAYERS = {"conv1d", "conv2d", "conv3d", "linear", "matmul", "bmm", "einsum"}
_MODES = (True, False)


class UnreadableError(Exception):
    """Why a block's code cannot be followed."""


def residual_blocks(model: nn.Module, selector: str | None = None) -> list[str]:
    """The names of the (selected) blocks that have a residual addition, in the network's order.

    A block that adds and cannot be read is an error rather than left out, unless what is above or
    below it was read: then it is a stage, or a part of a block.
    """
    found, unread = _blocks(model)
    if selector is not None and (found or unread):
        selected = set(select([*found, *unread], selector))
        found = [name for name in found if name in selected]
        unread = {name: why for name, why in unread.items() if name in selected}
    named = [
        f"The code of {name!r} seems to contain an addition, but cannot be read: {why}." for name, why in unread.items()
    ]
    if unread and found:
        name = next(iter(unread))
        raise SurgeonError(
            named[0], f"Say where units go with site=NAME, e.g. site={name}, or leave it out: NAME@GLOB selects blocks."
        )
    if not found:
        raise SurgeonError(
            " ".join(["This network has no residual addition that units could be put after.", *named[:1]]),
            "Say where with site=NAME, a module's name or a glob, or site=stem.",
        )
    return found


def has_residual_addition(model: nn.Module) -> bool:
    """Whether any block of the network has one; a block that cannot be read has, if an addition is in its code."""
    seems = False
    for _, block in _candidates(model):
        try:
            if _is_residual(block):
                return True
        except UnreadableError:
            seems = seems or _seems_to_add(block)
    return seems


def _is_residual(block: nn.Module) -> bool:
    return all(_addition(block, graph) is not None for graph in _read(block).values())


def _blocks(model: nn.Module) -> tuple[list[str], dict[str, str]]:
    found: list[str] = []
    unread: dict[str, str] = {}
    for name, block in _candidates(model):
        try:
            if _is_residual(block):
                found.append(name)
        except UnreadableError as error:
            if _seems_to_add(block):
                unread[name] = str(error)
    return found, {name: why for name, why in unread.items() if not any(_related(name, other) for other in found)}


def _related(name: str, other: str) -> bool:
    return name.startswith(f"{other}.") or other.startswith(f"{name}.")


def _candidates(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, module in model.named_modules():
        containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
        if not name or isinstance(module, containers) or PREFIX in name:
            continue
        if any(_weight(child) for child in module.children()):
            yield name, module


def _weight(module: nn.Module) -> int:
    """How many layers a module stands for: convolutions and linear maps, those of inserted units aside."""
    return sum(
        any(p.dim() > 1 for p in part.parameters(recurse=False))
        for name, part in module.named_modules()
        if PREFIX not in name
    )


def _seems_to_add(block: nn.Module) -> bool:
    """Whether an addition is written in the code of its class, or of a class that this one extends."""
    try:
        for cls in original_class(block).__mro__:
            if cls is not nn.Module and "forward" in vars(cls):
                code = ast.parse(textwrap.dedent(inspect.getsource(vars(cls)["forward"])))
                if any(isinstance(getattr(node, "op", None), ast.Add) for node in ast.walk(code)):
                    return True
    except (OSError, TypeError, SyntaxError):
        return True
    return False


# --- reading


class _OwnCode(fx.Tracer):
    """What submodules do is one step each."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        return True


def _read(block: nn.Module) -> dict[bool, fx.Graph]:
    return {training: _trace(block, training) for training in _MODES}


def _trace(block: nn.Module, training: bool) -> fx.Graph:
    base = original_class(block)
    required = [
        p for p in list(inspect.signature(base.forward).parameters.values())[1:] if p.default is inspect.Parameter.empty
    ]
    if len(required) != 1 or required[0].kind not in (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.POSITIONAL_ONLY,
    ):
        raise UnreadableError(f"it takes {len(required)} inputs")
    # A stand-in with the same parts and a mode of its own; inputs that may be left out are left out.
    reader: Any = type(base.__name__, (base,), {"forward": lambda self, x: base.forward(self, x)})
    stand_in: nn.Module = reader.__new__(reader)
    stand_in.__dict__.update(block.__dict__)
    stand_in.training = training
    before = _random_states()
    try:
        graph = _OwnCode().trace(stand_in)
    except Exception as error:  # whatever the block's code does with values it does not get
        raise UnreadableError(re.split(r"\.\s|\n", str(error))[0].rstrip(".") or type(error).__name__) from error
    if before != _random_states():
        raise UnreadableError("it draws random numbers")
    if any(node.op == "get_attr" and not _has(block, str(node.target)) for node in graph.nodes):
        raise UnreadableError("it creates tensors")
    return graph


def _random_states() -> tuple[Any, ...]:
    return torch.get_rng_state().numpy().tobytes(), random.getstate()


def _has(block: nn.Module, path: str) -> bool:
    try:
        operator.attrgetter(path)(block)
    except AttributeError:
        return False
    return True


def _addition(block: nn.Module, graph: fx.Graph) -> fx.Node | None:
    """The last addition of two values of which one has passed more layers than the other."""
    depth: dict[fx.Node, int] = {}
    found = None
    for node in graph.nodes:
        if node.op == "placeholder":
            depth[node] = 0
            continue
        behind = [depth[n] for n in node.all_input_nodes if n in depth]
        if not behind:
            continue  # does not come from the input
        depth[node] = max(behind) + _layers(block, node)
        if _adds(node):
            terms = [depth.get(n) for n in node.args[:2] if isinstance(n, fx.Node)]
            if len(terms) == 2 and None not in terms and terms[0] != terms[1]:
                found = node
    return found


def _adds(node: fx.Node) -> bool:
    if node.op == "call_function":
        return node.target in _ADDITIONS
    return node.op == "call_method" and node.target in ("add", "add_")


def _layers(block: nn.Module, node: fx.Node) -> int:
    if node.op == "call_module":
        return _weight(block.get_submodule(str(node.target)))
    return int(node.op == "call_function" and getattr(node.target, "__name__", "") in _LAYERS)


# --- writing


class RunAfter:
    """A forward hook: a unit works on the module's output."""

    def __init__(self, unit: str) -> None:
        self.unit = unit

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> Any:  # noqa: ARG002
        return getattr(module, self.unit)(output)


def put_after_addition(block: nn.Module, name: str) -> None:
    """Let a unit, already a child of the block under this name, work on its residual sum."""
    graphs = _read(block)
    additions = {training: _addition(block, graph) for training, graph in graphs.items()}
    earlier: tuple[str, ...] = getattr(type(block), "surgeon_units", ())
    if not earlier and all(node is not None and _is_returned(node) for node in additions.values()):
        block.register_forward_hook(RunAfter(name))
    else:
        block.__class__ = _edited_class(block, (*earlier, name))


def _is_returned(node: fx.Node) -> bool:
    return [user.op for user in node.users] == ["output"] and next(iter(node.users)).args == (node,)


def original_class(block: nn.Module) -> type[nn.Module]:
    """The class as it was written."""
    cls: type[nn.Module] = getattr(type(block), "surgeon_base", type(block))
    return cls


def _edited_class(block: nn.Module, units: tuple[str, ...]) -> type[nn.Module]:
    base = original_class(block)
    in_training, in_evaluation = (_generated(block, training, units) for training in _MODES)

    def forward(self: nn.Module, x: Tensor, *others: Any, **named: Any) -> Any:
        if others or named:
            raise RuntimeError(
                f"a {base.__name__} is given more than one input, and with a unit after its addition takes one."
            )
        return in_training(self, x) if self.training else in_evaluation(self, x)

    members = {
        "forward": forward,
        "surgeon_base": base,
        "surgeon_units": units,
        "__deepcopy__": _deepcopy,
        "__reduce_ex__": _reduce,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
    }
    return type(base.__name__, (base,), members)


def _generated(block: nn.Module, training: bool, units: tuple[str, ...]) -> Callable[[nn.Module, Tensor], Any]:
    graph = _trace(block, training)
    addition = _addition(block, graph)
    assert addition is not None
    for name in reversed(units):
        with graph.inserting_after(addition):
            call = graph.call_module(name)
        addition.replace_all_uses_with(call)
        call.args = (addition,)
    code = graph.python_code("self")
    namespace = dict(code.globals)
    exec(compile(code.src, f"<{original_class(block).__name__} with {', '.join(units)}>", "exec"), namespace)
    function: Callable[[nn.Module, Tensor], Any] = namespace["forward"]
    return function


def _deepcopy(block: nn.Module, memo: dict[int, Any]) -> nn.Module:
    twin = type(block).__new__(type(block))
    memo[id(block)] = twin
    twin.__setstate__(copy.deepcopy(block.__dict__, memo))  # type: ignore[no-untyped-call]
    return twin


def _reduce(block: nn.Module, protocol: int) -> tuple[Any, ...]:  # noqa: ARG001
    """The generated class has no name to be found by: a pickle holds the original one, and what to put into it."""
    units = type(block).surgeon_units  # type: ignore[attr-defined]
    return _new, (original_class(block),), (block.__dict__, units), None, None, _restore


def _new(cls: Any) -> Any:
    return cls.__new__(cls)


def _restore(block: nn.Module, state: tuple[dict[str, Any], tuple[str, ...]]) -> None:
    attributes, units = state
    block.__setstate__(attributes)  # type: ignore[no-untyped-call]
    block.__class__ = _edited_class(block, units)
