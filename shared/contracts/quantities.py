"""Text forms of quantities in a spec: `30m`, `7d`, `2%`, `>= 4`. Errors name the expected form.

The text form is exact: parsing it gives the same value. Values without an exact form are rejected.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, GetJsonSchemaHandler, PlainSerializer, WithJsonSchema
from pydantic_core import CoreSchema

_UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
"""In milliseconds, the resolution of a duration."""
LONGEST = timedelta(days=3660)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_SIZES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
LEAST_MEMORY, MOST_MEMORY = 1 << 20, 64 << 40
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(Ki|Mi|Gi|Ti)")
MOST_CPU = 1_024_000
_CPU = re.compile(r"(\d+(?:\.\d+)?)(m?)")
_PERCENT = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*%")
_RULE = re.compile(r"(>=|>|<=|<|==)\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
}


def parse_duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return timedelta(milliseconds=_bounded(_milliseconds(value), value))
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match:
        raise ValueError(f"expected a duration such as 30s, 15m, 6h or 7d, got {value!r}")
    milliseconds = Decimal(match[1]) * _UNITS[match[2]]
    return timedelta(milliseconds=_bounded(milliseconds, value))


def _bounded(milliseconds: Decimal, value: Any) -> int:
    if not 0 < milliseconds <= _milliseconds(LONGEST):
        raise ValueError(f"expected a duration above 0 and at most {LONGEST.days}d, got '{value}'")
    if milliseconds != int(milliseconds):
        raise ValueError(f"expected a duration of whole milliseconds, got '{value}'")
    return int(milliseconds)


def _milliseconds(value: timedelta) -> Decimal:
    return Decimal(value // timedelta(microseconds=1)) / 1000


def write_duration(value: timedelta) -> str:
    """Formats a duration in the largest exact unit."""
    milliseconds = _bounded(_milliseconds(value), value)
    unit, size = next((unit, size) for unit, size in _UNITS.items() if unit != "w" and milliseconds % size == 0)
    return f"{milliseconds // size}{unit}"


def parse_memory(value: Any) -> int:
    """Parses `512Mi` or `32Gi` to bytes."""
    match = _MEMORY.fullmatch(value.strip()) if isinstance(value, str) else None
    size = Decimal(match[1]) * _SIZES[match[2]] if match else Decimal(value) if type(value) is int else Decimal(0)
    if not match and size == 0:
        raise ValueError(f"expected an amount of memory such as 512Mi or 32Gi, got {value!r}")
    if size % 1024 or not LEAST_MEMORY <= size <= MOST_MEMORY:
        raise ValueError(f"expected an amount of memory from 1Mi to 64Ti in whole Ki, got {value!r}")
    return int(size)


def write_memory(value: int) -> str:
    """Formats bytes in the largest exact unit."""
    unit = next(unit for unit in reversed(_SIZES) if value % _SIZES[unit] == 0)
    return f"{value // _SIZES[unit]}{unit}"


def parse_cpu(value: Any) -> int:
    """Parses `2`, `0.5` or `500m` to thousandths of a core."""
    match = _CPU.fullmatch(str(value).strip()) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    if not match:
        raise ValueError(f"expected a number of cores such as 2, 0.5 or 500m, got {value!r}")
    thousandths = Decimal(match[1]) * (1 if match[2] else 1000)
    if thousandths != int(thousandths) or not 1 <= thousandths <= MOST_CPU:
        raise ValueError(f"expected 1m to {MOST_CPU // 1000} cores in whole thousandths, got {value!r}")
    return int(thousandths)


def write_cpu(value: int) -> str:
    return f"{value}m" if value % 1000 else str(value // 1000)


def parse_fraction(value: Any) -> float:
    """Parses a fraction; `2%` and 0.02 are equal."""
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value.strip())):
        fraction = float(match[1]) / 100
    elif isinstance(value, int | float) and not isinstance(value, bool):
        fraction = float(value) if abs(value) < 1e300 else math.inf
    else:
        fraction = math.nan
    if math.isfinite(fraction):
        return fraction
    raise ValueError(f"expected a percentage such as 2% or a fraction such as 0.02, got {value!r}")


@dataclass(frozen=True)
class NumberComparison:
    """Comparison with a constant, such as `>= 4`."""

    compare: str
    bound: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.bound):
            raise ValueError(f"expected a comparison with a finite number, such as '>= 4', got {self.bound!r}")

    def holds(self, value: float) -> bool:
        return _COMPARE[self.compare](value, self.bound)

    def __str__(self) -> str:
        """Exact text form: `>= 1000000`, never the rounded `>= 1e+06`."""
        return f"{self.compare} {repr(float(self.bound)).removesuffix('.0')}"


@dataclass(frozen=True)
class ListedValues:
    """Values of the label that are positive: all texts, or all numbers."""

    values: tuple[str, ...] | tuple[float, ...]
    weights: tuple[float, ...] | None = None
    """Weight of each value in training; None if all are 1."""

    @property
    def is_text(self) -> bool:
        return isinstance(self.values[0], str)

    def holds(self, value: float) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return f"one of {', '.join(str(value).removesuffix('.0') for value in self.values)}"


@dataclass(frozen=True)
class AnyRow:
    """Every interaction is positive."""

    def holds(self, value: float) -> bool:
        return True

    def __str__(self) -> str:
        return "any"


PositiveRule = NumberComparison | ListedValues | AnyRow
_MOST_LISTED = 100
MOST_WEIGHT = 1000


def parse_positive(value: Any) -> PositiveRule:
    """Parses a comparison, a list of values, texts with their weights, or `any`."""
    if isinstance(value, PositiveRule):
        return value
    if value == "any":
        return AnyRow()
    if isinstance(value, str) and value.strip()[:1] in ("<", ">", "="):
        return parse_rule(value)
    if isinstance(value, Mapping):
        return _parse_weights(value)
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a comparison such as '>= 4', a list of values such as [purchase], or any, got {value!r}")
    if not 1 <= len(value) <= _MOST_LISTED or len(set(map(repr, value))) < len(value):
        raise ValueError(f"expected 1 to {_MOST_LISTED} different values, such as [purchase], got {value!r}")
    if all(isinstance(entry, str) and 0 < len(entry) <= 100 for entry in value):
        return ListedValues(tuple(value))
    if all(isinstance(entry, int | float) and not isinstance(entry, bool) and abs(entry) < 2**53 for entry in value):
        return ListedValues(tuple(float(entry) for entry in value))
    raise ValueError(f"expected only texts or only numbers, such as [purchase] or [4, 5], got {value!r}")


def _parse_weights(value: Mapping[Any, Any]) -> ListedValues:
    texts = parse_positive(list(value))
    if not isinstance(texts, ListedValues) or not texts.is_text:
        raise ValueError(f"only texts have weights, such as {{purchase: 5, click: 1}}, got {dict(value)!r}")
    for text, weight in value.items():
        if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 < weight <= MOST_WEIGHT:
            raise ValueError(f"the weight of '{text}' is a number above 0, at most {MOST_WEIGHT}, got {weight!r}")
    return ListedValues(texts.values, tuple(float(weight) for weight in value.values()))


def _write_positive(rule: PositiveRule) -> str | list[str] | list[float] | dict[str, float]:
    if not isinstance(rule, ListedValues):
        return str(rule)
    if rule.weights is not None:
        return dict(zip(map(str, rule.values), rule.weights, strict=True))
    return list(rule.values)  # type: ignore[return-value]


def parse_rule(value: Any) -> NumberComparison:
    if isinstance(value, NumberComparison):
        return value
    match = _RULE.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match:
        raise ValueError(f"expected a comparison such as '>= 4', got {value!r}")
    return NumberComparison(match[1], float(match[2]))


def _anchored(pattern: re.Pattern[str]) -> str:
    """Returns the pattern for the JSON schema, which searches; as in the parsers, spaces may surround the text."""
    return rf"^\s*(?:{pattern.pattern})\s*$"


class _NumberOrPercentage:
    """JSON schema of a fraction; a field's bounds stay those of the number."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "string", "pattern": _anchored(_PERCENT)}], "examples": ["2%", 0.02]}


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(write_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _anchored(_DURATION), "examples": ["30s", "15m", "6h", "7d"]}),
]
Memory = Annotated[
    int,
    BeforeValidator(parse_memory),
    PlainSerializer(write_memory, return_type=str),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": _anchored(_MEMORY)}, {"type": "integer"}], "examples": ["512Mi", "32Gi"]}),
]
Cpu = Annotated[
    int,
    BeforeValidator(parse_cpu),
    PlainSerializer(write_cpu, return_type=str),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": _anchored(_CPU)}], "examples": [2, "500m"]}),
]
Fraction = Annotated[
    float,
    BeforeValidator(parse_fraction),
    _NumberOrPercentage(),
]
Positive = Annotated[
    PositiveRule,
    BeforeValidator(parse_positive),
    PlainSerializer(_write_positive),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": rf"^any$|{_anchored(_RULE)}"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": _MOST_LISTED},
                {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": _MOST_LISTED},
                {
                    "type": "object",
                    "additionalProperties": {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_WEIGHT},
                    "minProperties": 1,
                    "maxProperties": _MOST_LISTED,
                },
            ],
            "examples": [">= 4", ["purchase"], "any"],
        }
    ),
]
