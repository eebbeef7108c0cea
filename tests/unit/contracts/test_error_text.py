"""What a value that doesn't fit is told."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import pytest
from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from shared.contracts.error_text import fault_message


class Thing(BaseModel):
    count: Annotated[int, Field(ge=1, lt=1 << 63)] = 1
    share: Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)] = 0.5
    mode: Literal["full", "warm"] = "full"
    at: AwareDatetime = datetime.min
    names: Annotated[tuple[str, ...], Field(min_length=1, max_length=2)] = ("a",)
    yes: bool = False
    inner: Thing | None = None


FAULTS = [
    ("count", 0, "expected at least 1, got 0"),
    ("count", "lots", "expected a whole number, got 'lots'"),
    ("count", 1.5, "expected a whole number, got 1.5"),
    ("count", 10**19, "expected less than 9223372036854775808, got 10000000000000000000"),
    ("count", [1], "expected a whole number, got a list"),
    ("share", 0, "expected more than 0, got 0"),
    ("share", 2, "expected at most 1, got 2"),
    ("share", float("nan"), "expected a finite number, got nan"),
    ("mode", "lukewarm", "expected 'full' or 'warm', got 'lukewarm'"),
    ("at", "yesterday", "expected a time with its zone, such as 2026-01-31T12:00:00Z, got 'yesterday'"),
    ("at", "2026-01-31T12:00:00", "expected a time with its zone, such as 2026-01-31T12:00:00Z, got '2026-01-31T12:00:00'"),
    ("names", [], "expected at least 1 entries, got 0"),
    ("names", ["a", "b", "c"], "expected at most 2 entries, got 3"),
    ("names", None, "expected a list, got null"),
    ("yes", {}, "expected true or false, got an object"),
    ("inner", "x", "expected an object, got 'x'"),
]


def test_a_fault_says_what_was_expected_and_found(subtests: pytest.Subtests) -> None:
    for field, value, words in FAULTS:
        with subtests.test(field=field, value=value):
            with pytest.raises(ValidationError) as caught:
                Thing(**{field: value})
            (fault,) = caught.value.errors()
            assert fault_message(fault) == words
            assert "got" not in fault_message(fault, secret=True)


def test_a_long_text_is_repeated_in_part() -> None:
    with pytest.raises(ValidationError) as caught:
        Thing(mode="x" * 1000)
    assert len(fault_message(caught.value.errors()[0])) < 150
