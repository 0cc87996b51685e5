"""BatchNorm layers folded into the convolutions before them, in a traced graph.

In the graph a fused layer's activation is a step of its own and every use of a tensor is seen, so that
what is folded is exact: a convolution whose only use is a BatchNorm by constant statistics.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.nn.utils.fusion import fuse_conv_bn_weights

from surgeon.commands.export.tracing import trace_again

aten = torch.ops.aten
CONVOLUTIONS = {
    getattr(getattr(aten, name), overload)
    for name in ("conv1d", "conv2d", "conv3d")
    for overload in ("default", "padding")
}


def fold(program: ExportedProgram, images: Tensor) -> tuple[ExportedProgram, int]:
    """The program with BatchNorm folded where that is exact, and how many were."""
    module = program.module()
    norms = [node for node in module.graph.nodes if node.target is aten.batch_norm.default]
    folded = sum(_fold_one(module, norm, number) for number, norm in enumerate(norms))
    if not folded:
        return program, 0
    module.graph.eliminate_dead_code()
    return trace_again(GraphModule(module, module.graph), images), folded  # a new module keeps only what is used


def _fold_one(module: GraphModule, norm: Node, number: int) -> bool:
    features, *tensors, by_batch, _, eps = norm.args[:8]
    if by_batch or not isinstance(features, Node) or features.target not in CONVOLUTIONS or len(features.users) > 1:
        return False
    x, filters, offset, *geometry = (*features.args, None)[: max(3, len(features.args))]
    try:
        weight, bias, scale, shift, mean, var = (
            None if node is None else _constant(module, node).double() for node in (filters, offset, *tensors)
        )
    except NotConstantError:
        return False
    if mean is None or var is None or weight is None:
        return False
    weight, bias = fuse_conv_bn_weights(weight, bias, mean, var, eps, scale, shift)  # type: ignore[arg-type]
    with module.graph.inserting_before(norm):
        arguments = [
            _new_tensor(module, f"folded_{number}_{name}", value)
            for name, value in (("weight", weight), ("bias", bias))
        ]
        convolution = module.graph.call_function(features.target, (x, *arguments, *geometry), features.kwargs)  # type: ignore[arg-type]
    norm.replace_all_uses_with(convolution)
    module.graph.erase_node(norm)
    module.graph.erase_node(features)
    return True


def _new_tensor(module: GraphModule, name: str, value: Any) -> Node:
    module.register_buffer(name, value.detach().float())
    return module.graph.get_attr(name)


class NotConstantError(Exception):
    """A tensor of the graph depends on the images."""


def _constant(module: GraphModule, node: Any) -> Any:
    """The value of a node that depends on parameters and buffers alone, as statistics that channels share do."""
    if not isinstance(node, Node):
        return node
    if node.op == "get_attr":
        value: Any = module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return value.detach() if isinstance(value, Tensor) else value
    if node.op != "call_function":
        raise NotConstantError
    arguments, keywords = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: _constant(module, n))
    return cast("Any", node.target)(*arguments, **keywords)
