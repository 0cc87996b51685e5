"""Hugging Face Accelerate as a fine-tuning run needs it."""

from __future__ import annotations

from typing import Any

import torch

from surgeon.commands.finetune.request import FinetuneRequest
from surgeon.core.devices import Precision


def accelerator_for(
    device: torch.device, precision: Precision, request: FinetuneRequest, leaves_parameters_out: bool
) -> Any:
    """The accelerator of a run.

    Args:
        device: Where it trains.
        precision: Of its computations.
        request: Says where its curves go.
        leaves_parameters_out: Whether some parameters take no part in the loss.
    """
    from accelerate import Accelerator
    from accelerate.utils import DistributedDataParallelKwargs

    short = {Precision.FLOAT32: "no", Precision.BFLOAT16: "bf16", Precision.FLOAT16: "fp16"}[precision]
    return Accelerator(
        cpu=device.type == "cpu",
        mixed_precision=short,
        log_with=request.track,
        project_dir=str(request.output),
        kwargs_handlers=[
            DistributedDataParallelKwargs(
                # Every process keeps the statistics of its own images; they are averaged at the end of an epoch.
                broadcast_buffers=False,
                find_unused_parameters=leaves_parameters_out,
            )
        ],
    )
