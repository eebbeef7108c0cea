"""Search range of a setting: numbers between two bounds, or a list of values."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field, JsonValue, model_validator

from shared.contracts.strict import Strict

MOST_VALUES = 100


def _is_absent(value: Any) -> bool:
    return value is None or value is False


class Range(Strict):
    low: int | float | None = Field(None, alias="from", exclude_if=_is_absent, description="The smallest number.")
    high: int | float | None = Field(None, alias="to", exclude_if=_is_absent, description="The largest one.")
    log: bool = Field(
        False,
        exclude_if=_is_absent,
        description="Whether numbers are drawn evenly by their size: between 1 and 10 as many as between 10 and 100.",
    )
    of: tuple[JsonValue, ...] | None = Field(
        None, max_length=MOST_VALUES, exclude_if=_is_absent, description="In place of numbers: the values to choose from."
    )

    @model_validator(mode="after")
    def _has_something_to_choose(self) -> Range:
        if self.of is not None:
            if self.low is not None or self.high is not None or self.log:
                raise ValueError("'of' names the values: leave 'from', 'to' and 'log' out")
            if len({json.dumps(choice, sort_keys=True) for choice in self.of}) < max(2, len(self.of)):
                raise ValueError("'of' names at least two values, each once")
            return self
        if self.low is None or self.high is None:
            raise ValueError("either 'from' and 'to', or 'of'")
        if self.low >= self.high:
            raise ValueError(
                f"'from' is less than 'to': {self.low:g} to {self.high:g} holds {'one number' if self.low == self.high else 'none'}"
            )
        if self.log and self.low <= 0:
            raise ValueError(f"'log' takes numbers above 0: {self.low:g} has no logarithm")
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
        return f"{self.low:g} to {self.high:g}" + (", by their size" if self.log else "")


def between(low: float, high: float, log: bool = False) -> Range:
    return Range.model_validate({"from": low, "to": high, "log": log})


def one_of(*values: JsonValue) -> Range:
    return Range(of=values)
