"""What every record is, and what a gain is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from surgeon.core.readable import Readable
from surgeon.models.facts import Gain

__all__ = ["Gain", "Result"]


class Result(Readable, BaseModel):
    """What a command found; `print` and notebooks show what the command tells people of it."""

    # JSON has no infinity; as a string it survives being written and read.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
