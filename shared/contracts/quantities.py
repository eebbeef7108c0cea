"""How people write quantities in a spec: `30m`, `7d`, `2%`, `>= 4`; each parses to a plain value and says what it wanted."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_PERCENT = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*%")
_RULE = re.compile(r"(>=|>|<=|<|==)\s*([+-]?\d+(?:\.\d+)?)")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
}


def parse_duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match:
        raise ValueError(f"expected a duration such as 30s, 15m, 6h or 7d, got {value!r}")
    try:
        return timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError:
        raise ValueError(f"{value!r} is longer than any duration that can be kept") from None


def write_duration(value: timedelta) -> str:
    milliseconds = round(value.total_seconds() * 1000)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def parse_fraction(value: Any) -> float:
    """`2%` and 0.02 are the same fraction."""
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value.strip())):
        return float(match[1]) / 100
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"expected a percentage such as 2% or a fraction such as 0.02, got {value!r}")


@dataclass(frozen=True)
class Rule:
    """A comparison with a constant, such as `>= 4`."""

    compare: str
    bound: float

    def holds(self, value: float) -> bool:
        return _COMPARE[self.compare](value, self.bound)

    def __str__(self) -> str:
        return f"{self.compare} {self.bound:g}"


def parse_rule(value: Any) -> Rule:
    if isinstance(value, Rule):
        return value
    match = _RULE.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match:
        raise ValueError(f"expected a comparison such as '>= 4', got {value!r}")
    return Rule(match[1], float(match[2]))


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(write_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _DURATION.pattern, "examples": ["30s", "15m", "6h", "7d"]}),
]
Fraction = Annotated[
    float,
    BeforeValidator(parse_fraction),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": _PERCENT.pattern}], "examples": ["2%", 0.02]}),
]
Comparison = Annotated[
    Rule,
    BeforeValidator(parse_rule),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _RULE.pattern, "examples": [">= 4"]}),
]
