"""Files with values by key, as a version publishes them: parts of bounded size, so that whoever loads them needs bounded memory.

A part is an `.npz` (never a pickle) with `key` (int64, ascending over all parts), `at` (int64: event times as microseconds since 1970),
and `column/NAME` for each column: int64, float32 or text, one value a row, or a row of them padded with blanks. Blanks aren't known.
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
from shared.domain.stored import Stored, StoredRow, moment
from shared.serving.signature import BLANK

Array = np.ndarray[Any, Any]
PART = 50_000
"""Rows of a part."""
KEY, AT, COLUMN = "key", "at", "column/"
_KINDS = {"int64": "i", "float32": "f", "string": "U"}


@dataclass(frozen=True, eq=False)
class Values:
    """Rows by ascending key."""

    keys: Array
    at: Array
    columns: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        return sum(int(one.nbytes) for one in (self.keys, self.at, *self.columns.values()))

    def row(self, place: int, columns: Sequence[OnlineColumn]) -> StoredRow:
        found = {one.name: _known(self.columns[one.name][place], one) for one in columns}
        known = {name: value for name, value in found.items() if value is not None}
        return StoredRow(int(self.keys[place]), moment(int(self.at[place])), known)


def write_values(view: View, values: Values, place: Callable[[str], Path], part: int = PART) -> tuple[OnlineView, dict[str, Path]]:
    """What `online.json` says of them, and the files by name; `place` says where a file of a name goes. Any order of keys will do."""
    order = np.argsort(values.keys, kind="stable")
    if len(np.unique(values.keys)) < len(values.keys):
        raise ValueError(f"view '{view.name}': two rows have one key")
    files: dict[str, Path] = {}
    for number, start in enumerate(range(0, len(order), part)):
        rows = order[start : start + part]
        arrays = {KEY: values.keys[rows].astype(np.int64), AT: values.at[rows].astype(np.int64)}
        arrays |= {COLUMN + one.name: _typed(values.columns[one.name][rows], one) for one in view.columns}
        path = files[part_name(view.name, number)] = place(part_name(view.name, number))
        with path.open("wb") as stream:
            np.savez_compressed(stream, **arrays)
    return OnlineView(**view.model_dump(), parts=tuple(files), rows=len(order)), files


def read_values(content: bytes, view: View, what: str) -> Values:
    """Unavailable for a file that isn't what the view says."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            keys, at = stored[KEY], stored[AT]
            columns = {one.name: stored[COLUMN + one.name] for one in view.columns}
    except (ValueError, OSError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise Unavailable(f"{what} can't be read: {error}") from None
    if any(one.ndim != 1 or one.dtype != np.int64 or len(one) != len(keys) for one in (keys, at)) or (np.diff(keys) <= 0).any():
        raise Unavailable(f"{what}: its keys and times must be one int64 a row, keys ascending")
    for one in view.columns:
        array = columns[one.name]
        shape = (len(keys),) if one.width is None else (len(keys), one.width)
        if array.shape != shape or array.dtype.kind != _KINDS[one.dtype]:
            raise Unavailable(f"{what}: '{one.name}' is {array.dtype} of shape {array.shape}, expected {one.dtype} of {shape}")
    return Values(keys, at, columns)


def join_values(parts: Sequence[Values]) -> Values:
    """Of parts in their order."""
    names = parts[0].columns
    return Values(
        np.concatenate([one.keys for one in parts]),
        np.concatenate([one.at for one in parts]),
        {name: np.concatenate([one.columns[name] for one in parts]) for name in names},
    )


def _typed(array: Array, one: OnlineColumn) -> Array:
    if one.dtype == "string":
        return array.astype(np.str_)
    return array.astype(np.int64 if one.dtype == "int64" else np.float32)


def _known(value: Any, one: OnlineColumn) -> Stored | None:
    if one.width is None:
        found = value.item()
        return None if _blank(found, one) else found
    several = value.tolist()
    while several and _blank(several[-1], one):
        several.pop()
    return tuple(None if _blank(each, one) and one.dtype == "float32" else each for each in several) if several else None


def _blank(value: Any, one: OnlineColumn) -> bool:
    return not math.isfinite(value) if one.dtype == "float32" else bool(value == BLANK[one.dtype])
