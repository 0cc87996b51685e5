"""ONNX: for onnxruntime, TensorRT, OpenVINO and browsers; weights and description in the one file."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from surgeon.commands.export.formats import Format
from surgeon.commands.export.tracing import BATCH, INPUT, OUTPUT


def write(program: ExportedProgram, path: Path, description: str) -> None:
    outputs = program.graph_signature.user_outputs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter about itself
        written = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            input_names=[INPUT],
            output_names=[OUTPUT] if len(outputs) == 1 else None,
            dynamic_shapes=({0: BATCH},),
        )
    assert written is not None
    for node in written.model.graph.all_nodes():
        node.metadata_props.clear()  # stack traces, with the paths of the machine that wrote them
    written.model.metadata_props["surgeon"] = description
    written.save(str(path), external_data=False)


def run(path: Path) -> Callable[[Tensor], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda images: [torch.from_numpy(output) for output in session.run(None, {INPUT: images.numpy()})]


ONNX = Format(".onnx", ("onnx", "onnxscript", "onnxruntime"), write, run)
