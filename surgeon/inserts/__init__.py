"""Units that are put between the layers of a network, one file per insert."""

from surgeon.inserts.base import PREFIX, Effect, Insert, InsertConfig, aliases, inserts, option, register

__all__ = ["PREFIX", "Effect", "Insert", "InsertConfig", "aliases", "inserts", "option", "register"]
