"""Codec between domain values and JSON, for stored specs, statuses, requests and effects. Exact for the types of the domain."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def encode(kind: Any, value: Any) -> Any:
    """Returns the value as plain JSON."""
    return _adapter(kind).dump_python(value, mode="json", by_alias=True)


def decode(kind: Any, value: Any) -> Any:
    return _adapter(kind).validate_python(value)
