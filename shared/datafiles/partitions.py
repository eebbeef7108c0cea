"""Partitions of a folder: sub-folders `key=value`, as Hive and Spark write them, are columns of the rows below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from shared.domain.errors import BadData

_NULL = "__HIVE_DEFAULT_PARTITION__"


def partition_values(path: Path, base: Path) -> dict[str, str | None]:
    """Returns the values of a file's partitions, by column; `base`: the folder that contains them."""
    folders = path.relative_to(base).parts[:-1] if path.is_relative_to(base) else ()
    pairs = [folder.partition("=") for folder in folders if "=" in folder.strip("=")]
    return {unquote(key): None if value == _NULL else unquote(value) for key, _, value in pairs}


def partitions(files: Sequence[Path], base: Path, uri: str) -> Mapping[Path, Mapping[str, str | None]]:
    """Returns the values of each file; rejects files with different columns."""
    values = {path: partition_values(path, base) for path in files}
    first = values[files[0]]
    for path, other in values.items():
        if list(other) != list(first):
            columns = " and ".join(", ".join(names) or "none" for names in (first, other))
            raise BadData(f"{uri}: the files {files[0].name} and {path.relative_to(base)} have different partition columns: {columns}")
    return values if first else {}
