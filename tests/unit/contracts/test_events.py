"""Feedback is taken as it was meant, or refused: a key is an integer and a value a number."""

from __future__ import annotations

import pytest

from shared.contracts.events import Interaction
from shared.contracts.strict import read
from shared.domain.errors import Invalid

EVENT = {"recommender": "films", "user": 1, "item": 2}


@pytest.mark.parametrize("field", ["user", "item"])
@pytest.mark.parametrize("value", [True, "42", 4.0, 2**63])
def test_a_key_that_is_no_integer_is_refused(field: str, value: object) -> None:
    with pytest.raises(Invalid, match=f"event: {field}: "):
        read(Interaction, EVENT | {field: value}, "event")


@pytest.mark.parametrize("value", [True, "4", float("nan")])
def test_a_value_that_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(Invalid, match="event: value: "):
        read(Interaction, EVENT | {"value": value}, "event")


@pytest.mark.parametrize("value", [4, 4.5, None])
def test_a_value_is_any_number_or_absent(value: float | None) -> None:
    assert read(Interaction, EVENT | {"value": value}, "event").value == value
