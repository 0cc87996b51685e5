"""Units that are put between the layers of a network, one folder per method: its options, its layer, its loss.

Where a unit can stand is found in `surgery`; arithmetic that several methods share, in `layers`.
"""

from surgeon.inserts.base import PREFIX, Effect, Insert, InsertConfig, aliases, inserts, option, register

__all__ = ["PREFIX", "Effect", "Insert", "InsertConfig", "aliases", "inserts", "option", "register"]
