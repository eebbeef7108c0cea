"""Column types with the same meaning on every database: exact UTC times, and JSON as text."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Dialect, Integer, Row, Text, TypeDecorator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

SEQUENCE = BigInteger().with_variant(Integer, "sqlite")
"""A number that the database generates: SQLite generates numbers only for a column of type INTEGER."""


class Instant(TypeDecorator[datetime]):
    """A time as whole microseconds since 1970: sorts, compares and round-trips exactly, and always has a time zone."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a time zone cannot be stored: {value!r}")
        return (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else _EPOCH + value * _MICROSECOND


class Damage:
    """Replaces a stored text that is not JSON, so that the other rows can still be read."""

    def __init__(self, text: str, message: str) -> None:
        self.said = f"{text[:40]!r} is not JSON: {message}"


def sound(row: Row[Any]) -> Row[Any]:
    """Returns the row if all its JSON could be parsed; else raises a ValueError that names the column."""
    for name, value in row._mapping.items():
        if isinstance(value, Damage):
            raise ValueError(f"{name}: {value.said}")
    return row


class Json(TypeDecorator[Any]):
    """JSON as text; None is NULL. A text that can't be parsed is returned as Damage, which `sound` detects."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        try:
            return None if value is None else json.loads(value)
        except (ValueError, RecursionError) as error:
            return Damage(value or "", str(error))
