"""Feedback is taken as it was meant, or refused: a key is an integer and a value a number."""

from __future__ import annotations

import pytest

from shared.contracts.events import Interaction
from shared.contracts.strict import read
from shared.domain.errors import Invalid

EVENT = {"recommender": "films", "user": 1, "item": 2}


def test_a_key_that_is_no_integer_is_refused(subtests: pytest.Subtests) -> None:
    for field in ("user", "item"):
        for value in (True, "42", 4.0, 2**63):
            with subtests.test(field=field, value=value), pytest.raises(Invalid, match=f"event: {field}: "):
                read(Interaction, EVENT | {field: value}, "event")


def test_a_value_that_is_no_number_is_refused(subtests: pytest.Subtests) -> None:
    for value in (True, "4", float("nan")):
        with subtests.test(value=value), pytest.raises(Invalid, match="event: value: "):
            read(Interaction, EVENT | {"value": value}, "event")


def test_a_value_is_any_number_or_absent(subtests: pytest.Subtests) -> None:
    for value in (4, 4.5, None):
        with subtests.test(value=value):
            assert read(Interaction, EVENT | {"value": value}, "event").value == value
