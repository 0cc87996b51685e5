"""What describes a folder of data, looked at before the `datasets` library follows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from surgeon.core.bounded_yaml import parse_yaml
from surgeon.core.errors import SurgeonError
from surgeon.core.reading import check_ordinary, parse_json, read_bounded

CARD, SETTINGS = "README.md", ".huggingface.yaml"
TABLES = ("dataset_infos.json", "dataset_dict.json", "dataset_info.json", "state.json")
KIND = "description of a data set"
MOST_BYTES, MOST_VALUES = 1 << 23, 200_000
"""ImageNet-21k names 21,841 classes in its card."""


def check_descriptions(folder: Path) -> None:
    """Refuse descriptions that never end, would fill the memory, or lead out of a folder to the network."""
    for place in (folder, *(child for child in sorted(folder.iterdir()) if child.is_dir())):
        for name in (CARD, SETTINGS, *TABLES):
            if (path := place / name).exists():
                _refuse_addresses(path, _content(path))


def check_tables(files: list[str]) -> None:
    """Refuse what is no file among the tables of a folder: opening a pipe waits for ever."""
    for file in files:
        check_ordinary(Path(file), "table of a data set")


def _content(path: Path) -> Any:
    from huggingface_hub.repocard import REGEX_YAML_BLOCK  # so that it is the same block that is looked at and read

    try:
        text = read_bounded(path, KIND, MOST_BYTES).decode("utf-8", "replace")
        if path.name in TABLES:
            return parse_json(text)
        if path.name == SETTINGS:
            return parse_yaml(text, MOST_VALUES, each_key_once=False)
        header = REGEX_YAML_BLOCK.search(text)
        return parse_yaml(header[2], MOST_VALUES, each_key_once=False) if header else None
    except ValueError as error:
        raise SurgeonError(f"The {KIND} {str(path)!r} cannot be read: {str(error).rstrip('.')}.") from None


def _refuse_addresses(path: Path, content: Any) -> None:
    configurations = content.get("configs") if isinstance(content, dict) else None
    for files in _texts(_files_of(configurations)):
        if "://" in files:
            raise SurgeonError(
                f"The {KIND} {str(path)!r} refers to remote files, which are not fetched.",
                "Download them, or name the data set on the hub with --data hf:OWNER/NAME.",
            )


def _files_of(configurations: Any) -> list[Any]:
    found = configurations if isinstance(configurations, list) else []
    keys = ("data_files", "data_dir")
    return [configuration.get(key) for configuration in found if isinstance(configuration, dict) for key in keys]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _texts(child)
