"""Feature values by key and time, and the rule which value of a key is valid.

The value of a key at a moment is the newest one whose event time is not later, unless it is older than its time to live. So training, which
reads past moments, and serving, which reads now, get the same value for the same moment. If two values have the same event time, the
greater digest wins, so that the order of writes does not matter.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal

from shared.domain.errors import Invalid

Scalar = int | float | str
Stored = Scalar | tuple[Scalar | None, ...]
"""Lists may contain None."""
DataType = Literal["int64", "float32", "string"]

MOST_TEXT = 500
MOST_BYTES = 65_536
"""Limit for the serialised values of one row."""
VIEW = r"[a-z][a-z0-9_]{0,59}"
EARLY = timedelta(seconds=5)
"""How far in the future the time of a value may be, because clocks differ."""
_PLACE = re.compile(rf"{VIEW}(@[0-9]{{1,10}})?")
_BAD = re.compile("[\0\ud800-\udfff]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAID: Mapping[DataType, str] = {"int64": "a 64-bit integer", "float32": "a number that fits float32", "string": "a text"}


@dataclass(frozen=True)
class StoredRow:
    """Values of a key at a time; unknown values are left out."""

    key: int
    at: datetime
    values: Mapping[str, Stored]

    @cached_property
    def text(self) -> str:
        """The values as JSON, always the same text for the same values."""
        return json.dumps(dict(self.values), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    @property
    def rank(self) -> tuple[datetime, str]:
        """Order of the rows of a key; the row with the greatest rank is valid."""
        return self.at, self.digest


def newest(rows: Iterable[StoredRow]) -> Mapping[int, StoredRow]:
    """Returns the valid row of each key."""
    by_key: dict[int, StoredRow] = {}
    for row in rows:
        if row.key not in by_key or by_key[row.key].rank < row.rank:
            by_key[row.key] = row
    return by_key


def read_row(key: int, at: datetime, text: str) -> StoredRow:
    """Parses a stored row; raises ValueError if the text is not a JSON object."""
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("not an object")
    return StoredRow(key, at, {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def is_over(at: datetime, ttl: timedelta | None, now: datetime) -> bool:
    """Returns whether a value of that time has passed its time to live."""
    return ttl is not None and now - at > ttl


def instant(at: datetime) -> int:
    """Whole microseconds since 1970."""
    if at.tzinfo is None:
        raise Invalid(f"event time without a time zone: {at.isoformat()}")
    return (at - _EPOCH) // timedelta(microseconds=1)


def moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def own_place(view: str, version: int) -> str:
    """Returns the place of the values that a version was published with; they are separate from those of other versions."""
    return f"{view}@{version}"


def version_of(place: str) -> int | None:
    """Returns the version that owns the place; None for a view that any client may write to."""
    _, at, number = place.partition("@")
    return int(number) if at else None


def check_place(place: str) -> str:
    """Accepts a view's name or a version's own part of a view; no other text becomes part of a key."""
    if not _PLACE.fullmatch(place):
        raise Invalid(f"{place[:80]!r} is not a view name: use lower-case letters, digits, underscores, at most 60, a letter first")
    return place


def take(value: Any, dtype: DataType, width: int | None, name: str) -> Stored | None:
    """Converts a value to the column's type; None stays None. With a `width` the value is a list of at most `width` elements."""
    if value is None:
        return None
    if width is None:
        return _scalar(value, dtype, name)
    if not isinstance(value, list | tuple) or len(value) > width:
        raise Invalid(f"{name}: expected a list of at most {width}, each {_SAID[dtype]}, got {str(value)[:80]!r}")
    return tuple(None if element is None else _scalar(element, dtype, name) for element in value)


def _scalar(value: Any, dtype: DataType, name: str) -> Scalar:
    scalar: Scalar | None = _TAKE[dtype](value)
    if scalar is None:
        raise Invalid(f"{name}: expected {_SAID[dtype]}, got {str(value)[:80]!r}")
    return scalar


def _int64(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63 else None


def _float32(value: Any) -> float | None:
    """Rounds to float32, as in the model's input, so that a value is the same in every store."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except (OverflowError, struct.error):
        return None
    return rounded if math.isfinite(rounded) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) <= MOST_TEXT and not _BAD.search(value) else None


_TAKE: Mapping[DataType, Any] = {"int64": _int64, "float32": _float32, "string": _text}
