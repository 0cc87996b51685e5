"""An ensemble's record made by hand, for tests of what is rendered from it."""

from __future__ import annotations

from typing import Any

from surgeon.core.devices import Precision
from surgeon.models.origin import Preprocessing
from surgeon.results import Combination, Ensemble, Member
from surgeon.views import Merge
from tests.unit.sweep_record import figures, gain

SMALL = Preprocessing(input_size=(3, 32, 32), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
NAMES = ("runs/mine/snapshots/1", "runs/mine/snapshots/2", "a <b>third</b> & last one")


def ensemble(**changes: Any) -> Ensemble:
    """Three members and their average, which is better than each."""
    members = tuple(
        Member(name=name, rewrites="ghost:size=16", preprocessing=SMALL, metrics=figures(0.1 * place))
        for place, name in enumerate(NAMES)
    )
    gains = tuple(gain(metric, 0.3) for metric in ("accuracy", "cross-entropy"))
    average = Combination(
        name="all members", members=NAMES, passes=3, metrics=figures(0.3), over_best=gains, over_mean=gains
    )
    record = Ensemble(
        data="pets",
        split="test",
        merge=Merge.LOGITS,
        metric="accuracy",
        members=members,
        best=NAMES[2],
        combinations=(average,),
        disagreement=((0.0, 0.125, 0.0625), (0.125, 0.0, 0.03125), (0.0625, 0.03125, 0.0)),
        mean_disagreement=0.0729,
        summary=("The average is better than the best member.",),
        tta=None,
        views=1,
        device="cpu",
        precision=Precision.FLOAT32,
        bad_images=(),
        seconds=12.5,
    )
    return record.model_copy(update=changes)
