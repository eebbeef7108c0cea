"""Files of a version's feature values by key, in parts of bounded size, so that loading needs bounded memory.

A part is an `.npz` (never a pickle) with `key` (int64, ascending over all parts), `at` (int64: event times as microseconds since 1970), and
`column/NAME` for each column: int64, float32 or text, one value a row, or a row padded with blanks. Blanks are unknown values.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shared.contracts.online import OnlineColumn, OnlineView, View, part_name
from shared.domain.errors import Unavailable
from shared.domain.feature_values import Stored, StoredRow, moment
from shared.serving.signature import BLANK

Array = np.ndarray[Any, Any]
PART = 50_000
"""Rows of a part."""
KEY, AT, COLUMN = "key", "at", "column/"
_KINDS = {"int64": "i", "float32": "f", "string": "U"}


@dataclass(frozen=True, eq=False)
class ValueRows:
    """Rows by ascending key."""

    keys: Array
    at: Array
    columns: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in (self.keys, self.at, *self.columns.values()))

    def row(self, place: int, columns: Sequence[OnlineColumn]) -> StoredRow:
        values = {column.name: _decoded(self.columns[column.name][place], column) for column in columns}
        present = {name: value for name, value in values.items() if value is not None}
        return StoredRow(int(self.keys[place]), moment(int(self.at[place])), present)


def write_values(view: View, values: ValueRows, place: Callable[[str], Path], part: int = PART) -> tuple[OnlineView, dict[str, Path]]:
    """Writes the parts; returns the view for `online.json` and the files by name. Keys need no order."""
    order = np.argsort(values.keys, kind="stable")
    if len(np.unique(values.keys)) < len(values.keys):
        raise ValueError(f"view '{view.name}': two rows have the same key")
    files: dict[str, Path] = {}
    for number, start in enumerate(range(0, len(order), part)):
        rows = order[start : start + part]
        arrays: dict[str, Any] = {KEY: values.keys[rows].astype(np.int64), AT: values.at[rows].astype(np.int64)}
        arrays |= {COLUMN + column.name: _typed(values.columns[column.name][rows], column) for column in view.columns}
        path = files[part_name(view.name, number)] = place(part_name(view.name, number))
        with path.open("wb") as stream:
            np.savez_compressed(stream, **arrays)
    return OnlineView(**view.model_dump(), parts=tuple(files), rows=len(order)), files


def read_values(content: bytes, view: View, label: str) -> ValueRows:
    """Raises Unavailable for a file that does not match the view."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            keys, at = stored[KEY], stored[AT]
            columns = {column.name: stored[COLUMN + column.name] for column in view.columns}
    except (ValueError, OSError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise Unavailable(f"{label}: cannot be read: {error}") from None
    if any(array.ndim != 1 or array.dtype != np.int64 or len(array) != len(keys) for array in (keys, at)) or (np.diff(keys) <= 0).any():
        raise Unavailable(f"{label}: expected one int64 key and time per row, with ascending keys")
    for column in view.columns:
        array = columns[column.name]
        shape = (len(keys),) if column.width is None else (len(keys), column.width)
        if array.shape != shape or array.dtype.kind != _KINDS[column.dtype]:
            raise Unavailable(f"{label}: '{column.name}' is {array.dtype} of shape {array.shape}, expected {column.dtype} of {shape}")
    return ValueRows(keys, at, columns)


def join_values(parts: Sequence[ValueRows]) -> ValueRows:
    """Joins parts in their order."""
    names = parts[0].columns
    return ValueRows(
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.at for part in parts]),
        {name: np.concatenate([part.columns[name] for part in parts]) for name in names},
    )


def _typed(array: Array, column: OnlineColumn) -> Array:
    if column.dtype == "string":
        return array.astype(np.str_)
    return array.astype(np.int64 if column.dtype == "int64" else np.float32)


def _decoded(value: Any, column: OnlineColumn) -> Stored | None:
    if column.width is None:
        scalar = value.item()
        return None if _blank(scalar, column) else scalar
    several = value.tolist()
    while several and _blank(several[-1], column):
        several.pop()
    return tuple(None if _blank(each, column) and column.dtype == "float32" else each for each in several) if several else None


def _blank(value: Any, column: OnlineColumn) -> bool:
    return not math.isfinite(value) if column.dtype == "float32" else bool(value == BLANK[column.dtype])
