"""Domain values to JSON and back: how specs, statuses, requests and effects are stored. Exact for what the domain uses."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def encode(kind: Any, value: Any) -> Any:
    """Plain JSON of a value of that type."""
    return _adapter(kind).dump_python(value, mode="json", by_alias=True)


def decode(kind: Any, value: Any) -> Any:
    return _adapter(kind).validate_python(value)
