"""What somebody else's package adds: a family of test-time views with an option."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from surgeon.views import ViewConfig, option, register

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.models.origin import Preprocessing
    from surgeon.views.base import Generate


class DimmedConfig(ViewConfig):
    steps: int = option(2, "How many darker views there are.", ge=1)


@register("their-dimmed", count=lambda config: 1 + config.steps, config=DimmedConfig, paper="They, 2024")
def their_dimmed(config: DimmedConfig, preprocessing: Preprocessing) -> tuple[Preprocessing, Generate]:
    """The image, and darker by a tenth for every step."""

    def generate(batch: Tensor) -> Iterator[Tensor]:
        return (batch * (1 - 0.1 * step) for step in range(1 + config.steps))

    return preprocessing, generate
