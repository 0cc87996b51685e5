"""The main job in one minute, offline: convert the bundled model, sweep alpha, evaluate, draw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from surgeon import checkpoint
from surgeon.atomic import check_destination
from surgeon.conversion import Conversion, perform_conversion, plan_conversion
from surgeon.data.digits import Split, load_digits
from surgeon.metrics import Metrics
from surgeon.scoring import evaluate
from surgeon.surgery.apply import convert, surgical_layers

MODEL = "digits-resnet8"
ALPHAS = tuple(round(0.05 * i, 2) for i in range(17))


class DemoResult(BaseModel):
    """What the demo found; the terminal, the picture and the JSON show nothing else."""

    model_config = ConfigDict(frozen=True)

    conversion: Conversion
    curve: dict[float, Metrics]
    """Metrics on the validation images by alpha."""
    chosen_alpha: float
    test_plain: Metrics
    test_chosen: Metrics
    picture: str | None = None


def run_demo(folder: Path, alphas: Sequence[float] = ALPHAS) -> DemoResult:
    """Convert, sweep on validation images, choose by cross-entropy, confirm on test images, save the choice."""
    destination = folder / "checkpoint"
    check_destination(destination, overwrite=True)
    loaded = checkpoint.open_model(MODEL)
    model = convert(loaded.model, "example-weighted")
    layers = surgical_layers(model).values()

    def score(alpha: float, split: Split) -> Metrics:
        for layer in layers:
            layer.set_alpha(alpha)
        return evaluate(model, [data[split]])

    splits: tuple[Split, ...] = ("validation", "test")
    data = {split: load_digits(split) for split in splits}
    curve = {alpha: score(alpha, "validation") for alpha in alphas}
    chosen = min(curve, key=lambda alpha: curve[alpha].cross_entropy)
    planned = plan_conversion(loaded, [f"example-weighted:alpha={chosen}"])
    return DemoResult(
        curve=curve,
        chosen_alpha=chosen,
        test_plain=score(0.0, "test"),
        test_chosen=score(chosen, "test"),
        conversion=perform_conversion(loaded, planned, destination, overwrite=True),
    )
