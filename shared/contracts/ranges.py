"""Search range of a setting: numbers between two bounds, or a list of values."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field, JsonValue, model_validator

from shared.contracts.strict import Strict

MOST_VALUES = 100


def _is_absent(value: Any) -> bool:
    return value is None or value is False


class NumberRange(Strict):
    low: int | float | None = Field(None, alias="from", exclude_if=_is_absent, description="Smallest number.")
    high: int | float | None = Field(None, alias="to", exclude_if=_is_absent, description="Largest number.")
    log: bool = Field(
        False,
        exclude_if=_is_absent,
        description="Whether numbers are drawn on a logarithmic scale: as many between 1 and 10 as between 10 and 100.",
    )
    of: tuple[JsonValue, ...] | None = Field(
        None, max_length=MOST_VALUES, exclude_if=_is_absent, description="Values to choose from, instead of numbers."
    )

    @model_validator(mode="after")
    def _check_choices(self) -> NumberRange:
        if self.of is not None:
            if self.low is not None or self.high is not None or self.log:
                raise ValueError("'of' lists the values; leave 'from', 'to' and 'log' out")
            if len({json.dumps(choice, sort_keys=True) for choice in self.of}) < max(2, len(self.of)):
                raise ValueError("'of' needs at least two values without repeats")
            return self
        if self.low is None or self.high is None:
            raise ValueError("set either 'from' and 'to', or 'of'")
        if self.low >= self.high:
            raise ValueError(f"'from' must be less than 'to', got {self.low:g} and {self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"'log' needs numbers above 0, got {self.low:g}")
        return self

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that span the range: both bounds, or all choices."""
        return self.of if self.of is not None else (self.low, self.high)

    def holds(self, value: Any) -> bool:
        if self.of is not None:
            return any(type(value) is type(choice) and value == choice for choice in self.of)
        if isinstance(value, bool) or not isinstance(value, int | float) or self.low is None or self.high is None:
            return False
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if self.of is not None:
            return ", ".join(choice if isinstance(choice, str) else json.dumps(choice) for choice in self.of)
        return f"{self.low:g} to {self.high:g}" + (", logarithmic" if self.log else "")


def between(low: float, high: float, log: bool = False) -> NumberRange:
    return NumberRange.model_validate({"from": low, "to": high, "log": log})


def one_of(*values: JsonValue) -> NumberRange:
    return NumberRange(of=values)
