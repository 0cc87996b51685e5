"""YAML that somebody else may have made: looked through before it is built, because a kilobyte can mean gigabytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import yaml

from surgeon.core.reading import DEEPEST, shortened

MOST_BITS = 63

# The compiled parser, where PyYAML has it, is ten times as fast.
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str, most_values: int, *, each_key_once: bool = True) -> Any:
    """A YAML document, or ValueError that says what is wrong with it in one line.

    Args:
        text: The document.
        most_values: How many keys and values it may have, those that aliases repeat included.
        each_key_once: Whether a key that appears twice is a mistake; otherwise the last one counts.
    """
    try:
        _check_size(text, most_values)
        return yaml.load(text, _EachKeyOnce if each_key_once else _SmallIntegers)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except (RecursionError, OverflowError, TypeError, AttributeError) as error:
        raise ValueError(f"it holds a value that cannot be read ({type(error).__name__})") from None


def _check_size(text: str, most_values: int) -> None:
    """Refuse, by ValueError, what would be too large or too deep once it is built."""
    size = _Size()
    for event in yaml.parse(text, _PARSER):
        size.take(event)
        if size.values > most_values:
            raise ValueError(f"it has more than {most_values:,} values")
        if len(size.open) > DEEPEST:
            raise ValueError("it is nested too deeply")


@dataclass
class _Size:
    """How many values there are so far; an alias counts as all that it repeats."""

    values: int = 0
    open: list[tuple[str | None, int]] = field(default_factory=list)
    anchored: dict[str, int] = field(default_factory=dict)

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchored:
                raise ValueError(f"the alias {shortened(event.anchor)} refers to itself or to nothing")
            self.values += self.anchored[event.anchor]
        elif isinstance(event, yaml.CollectionStartEvent):
            self.open.append((event.anchor, self.values))
            self.values += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = self.open.pop()
            self._name(anchor, self.values - before)
        elif isinstance(event, yaml.ScalarEvent):
            self.values += 1
            self._name(event.anchor, 1)

    def _name(self, anchor: str | None, values: int) -> None:
        if anchor is not None:
            self.anchored[anchor] = values


class _SmallIntegers(yaml.SafeLoader):
    """Refuses integers of more than 64 bits: as keys, thousands of them can have the same hash."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        value = int(super().construct_yaml_int(node))
        if value.bit_length() > MOST_BITS:
            raise yaml.YAMLError(f"the number {shortened(node.value)} is too large")
        return value


_SmallIntegers.add_constructor("tag:yaml.org,2002:int", _SmallIntegers.construct_yaml_int)


class _EachKeyOnce(_SmallIntegers):
    """Of a key that appears twice, YAML libraries silently take the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep)  # which refuses what cannot be a key
        if len(mapping) < len(node.value):
            keys = Counter(self.construct_object(key_node, deep=True) for key_node, _ in node.value)
            raise yaml.YAMLError(f"the key {shortened(max(keys, key=keys.__getitem__))} appears twice")
        return mapping
