"""What surgeon uses of torch and timm without a promise: all of it named here, and in one module alone."""

from __future__ import annotations

import ast
import copy
import json
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import surgeon
from surgeon.core import private
from tests.helpers import randn, small_images, small_resnet

PACKAGE = Path(surgeon.__file__).parent
HOME = PACKAGE / "core" / "private.py"

NAMED = {
    "torch": {
        "_BatchNorm",
        "_C",
        "_InstanceNorm",
        "_buffers",
        "_current_autograd_node",
        "_current_graph_task_id",
        "_current_level",
        "_device",
        "_execution_engine",
        "_forward_hooks",
        "_forward_pre_hooks",
        "_functorch",
        "_get_current_function_mode_stack",
        "_get_sequence_nr",
        "_has_any_global_hook",
        "_is_tracing",
        "_is_zerotensor",
        "_len_torch_dispatch_stack",
        "_len_torch_dispatch_stack_pre_dispatch",
        "_len_torch_function_stack",
        "_metadata",
        "_modules",
        "_ops",
        "_orig_mod",
        "_parameters",
        "_prims_common",
        "_python_dispatch",
        "_sample_dirichlet",
        "_sequence_nr",
        "_version",
    },
    "timm": {"_hub"},
}
"""To be looked at with every release of either: a name that becomes superfluous goes, a new one needs a reason."""

OF_PYTHON = {"_compat_pickle", "_exit", "_run_exitfuncs", "_replace"}
"""Of pickle, os, atexit and named tuples."""

ATTRIBUTE_FUNCTIONS = {"getattr", "hasattr", "setattr", "delattr"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def used_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every private name that a module imports from elsewhere or takes of an object, also by its string."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [part for alias in node.names for part in alias.name.split(".")]
        elif isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ATTRIBUTE_FUNCTIONS:
            names = [arg.value for arg in node.args[1:2] if isinstance(arg, ast.Constant)]
        yield from ((node.lineno, name) for name in names if is_private(name))


def own_names(tree: ast.AST) -> Iterator[str]:
    """What a module defines itself: functions, classes, attributes of self, fields and constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def trees() -> dict[Path, ast.AST]:
    return {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py")) if "assets" not in path.parts}


def test_the_one_module_uses_what_is_named_here() -> None:
    assert {name for _, name in used_names(trees()[HOME])} == NAMED["torch"] | NAMED["timm"]


def test_no_other_module_uses_a_private_name_of_torch_or_timm() -> None:
    others = {path: tree for path, tree in trees().items() if path != HOME}
    own = {name for tree in others.values() for name in own_names(tree)} | OF_PYTHON
    inherited = {name for name in dir(nn.Module()) if is_private(name)} - set(private.OVERRIDDEN)
    foreign = [
        f"{path.relative_to(PACKAGE)}:{line} {name}"
        for path, tree in others.items()
        for line, name in used_names(tree)
        if name not in own or name in inherited - set(own_names(tree))
    ]
    assert not foreign, "use surgeon.core.private, or a public name"


def test_the_search_finds_each_kind_of_use() -> None:
    code = "import torch._C\nfrom timm.models import _hub\nx._modules\ngetattr(x, '_orig_mod')\nself.__dict__\n_ = 1"
    assert sorted(used_names(ast.parse(code))) == [(1, "_C"), (2, "_hub"), (3, "_modules"), (4, "_orig_mod")]


def test_layers_extend_only_the_methods_that_are_named() -> None:
    defined = {
        method.name
        for tree in trees().values()
        for owner in ast.walk(tree)
        if isinstance(owner, ast.ClassDef)
        for method in owner.body
        if isinstance(method, ast.FunctionDef) and is_private(method.name) and hasattr(nn.Module, method.name)
    }
    assert defined == set(private.OVERRIDDEN)


# ---- what each of them does ----


def test_children_are_a_live_table_with_shared_and_empty_ones() -> None:
    module = nn.Module()
    module.first = module.second = nn.ReLU()
    module.empty = None
    module.register_module("none", None)
    assert list(private.children_of(module)) == ["first", "second", "none"]
    private.children_of(module)["second"] = nn.GELU()
    assert isinstance(module.second, nn.GELU)


def test_a_compiled_module_gives_what_it_was_made_of() -> None:
    model = nn.Linear(2, 2)
    assert private.compiled_from(torch.compile(model)) is model
    assert private.compiled_from(model) is None


class Doubling:
    def __call__(self, module: nn.Module, inputs: Any, output: Tensor | None = None) -> Tensor | None:  # noqa: ARG002
        return None if output is None else 2 * output


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_are_found_and_removed_by_their_class_also_in_a_copy(register: str) -> None:
    model, calls = nn.Identity(), []
    getattr(model, register)(Doubling())
    model.register_forward_hook(lambda *_: calls.append(1))
    model = copy.deepcopy(model)
    assert [type(hook) for hook in private.hooks_of(model, Doubling)] == [Doubling]
    private.remove_hooks(model, Doubling)
    assert not private.hooks_of(model, Doubling)
    assert model(torch.ones(1)) == 1


def test_a_state_takes_the_notes_of_another() -> None:
    model = nn.BatchNorm2d(3)
    bare = OrderedDict((name, value) for name, value in model.state_dict().items() if "tracked" not in name)
    assert private.metadata_of_state(bare) is None
    noted = private.with_metadata(bare, model.state_dict())
    assert private.metadata_of_state(noted)[""]["version"] == 2
    with pytest.raises(RuntimeError, match="num_batches_tracked"):  # of version 2: the counter must be there
        model.load_state_dict(noted)


def test_batch_norm_is_the_base_of_all() -> None:
    for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, timm.layers.BatchNormAct2d):
        assert issubclass(kind, private.BatchNorm)
    assert issubclass(nn.InstanceNorm2d, private.InstanceNorm)
    assert not issubclass(nn.InstanceNorm2d, private.BatchNorm)


def test_writing_into_a_tensor_is_counted() -> None:
    x = torch.zeros(2)
    before = private.times_written(x)
    x.add_(1)
    assert private.times_written(x) == before + 1
    with torch.inference_mode():
        assert private.times_written(torch.zeros(2)) == 0


def test_lazy_zeros_are_told() -> None:
    assert private.is_lazily_zero(torch._efficientzerotensor(2))
    assert not private.is_lazily_zero(torch.zeros(2))


def test_beta_draws_come_from_the_generator_and_have_its_moments() -> None:
    def draw(alpha: float) -> Tensor:
        return private.beta_draws(20_000, alpha, torch.Generator().manual_seed(1), "cpu").double()

    torch.manual_seed(2)
    first = draw(0.4)
    torch.manual_seed(3)
    assert torch.equal(draw(0.4), first)
    for alpha in (0.4, 3.0):
        assert draw(alpha).mean().item() == pytest.approx(0.5, abs=0.01)
        assert draw(alpha).var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.03)


def test_each_interception_is_noticed() -> None:
    seen: list[bool] = []

    def look(x: Tensor) -> Tensor:
        seen.append(private.operations_are_intercepted())
        return x * 2

    class Counting(private.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    x = torch.ones(2)
    look(x)
    with torch.device("cpu"):
        look(x)
    assert seen == [False, False]
    seen.clear()
    with Counting():
        look(x)
    torch.func.vmap(look)(x)
    torch.func.jvp(look, (x,), (x,))
    with torch.overrides.BaseTorchFunctionMode():
        look(x)
    assert seen == [True] * 4


def test_nodes_are_numbered_as_they_are_made_and_known_in_a_recomputation() -> None:
    seen: list[tuple[int | None, int | None]] = []
    ended: list[int] = []

    def look(x: Tensor) -> Tensor:
        seen.append((private.current_backward(), private.asking_node()))
        if private.current_backward() is not None:
            private.after_backward(lambda: ended.append(len(seen)))
        return x.sin()

    x = randn(2).requires_grad_()
    before = private.next_node()
    y = checkpoint(look, x, use_reentrant=False)
    after = private.next_node()
    y.sum().backward()
    (first, node_first), (second, node_second) = seen
    assert (first, node_first) == (None, None)
    assert second is not None
    assert node_second is not None
    assert before <= node_second < after
    assert ended == [2]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_the_memory_format_of_a_tensor_is_told(memory_format: torch.memory_format) -> None:
    assert private.suggest_memory_format(randn(2, 3, 4, 5).contiguous(memory_format=memory_format)) is memory_format


def test_a_folder_of_timm_is_read(tmp_path: Path) -> None:
    config = {"architecture": "resnet18", "num_classes": 7, "model_args": {"in_chans": 1}, "pretrained_cfg": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    _, architecture, arguments = private.timm_config(str(tmp_path))
    assert (architecture, arguments) == ("resnet18", {"in_chans": 1})


def test_batch_norms_are_exchanged_where_they_are_shared() -> None:
    model = small_resnet()
    model.again = model.bn1
    converted = surgeon.convert(model, "ghost:size=3")
    assert converted.again is converted.bn1
    assert converted(small_images()).shape == (3, 4)


def test_a_call_is_plain_until_somebody_waits_for_it() -> None:
    module, other = nn.ReLU(), nn.ReLU()
    assert private.calls_are_plain(module, other)
    for register in (
        module.register_forward_hook,
        module.register_forward_pre_hook,
        module.register_full_backward_hook,
        module.register_full_backward_pre_hook,
        nn.modules.module.register_module_forward_hook,
        nn.modules.module.register_module_forward_pre_hook,
        nn.modules.module.register_module_full_backward_hook,
    ):
        handle = register(lambda *_: None)
        assert not private.calls_are_plain(other, module)
        handle.remove()
        assert private.calls_are_plain(other, module)
    module.forward = other.forward  # type: ignore[method-assign]
    assert not private.calls_are_plain(module)


def test_tensors_are_those_that_a_module_holds() -> None:
    layer = nn.BatchNorm2d(3, affine=False)
    assert private.tensors_of(layer)["running_mean"] is layer.running_mean
    assert private.tensors_of(layer)["weight"] is None
    layer = nn.utils.parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Identity())
    assert "weight" not in private.tensors_of(layer)
