"""How long events stay in the database: bounds, and a default that no rollout outlasts."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from shared.contracts.spec import RecommenderSpec, parse_spec
from shared.domain.errors import Invalid

DAY = timedelta(days=1)
DOCUMENT = {
    "name": "films",
    "data": {"interactions": {"uri": "a.csv"}, "items": {"uri": "b.csv", "key": "film"}},
    "schema": {"user": "person", "item": "film", "time": "at", "label": {"column": "stars", "positive": ">= 4"}},
}


def read(**changes: Any) -> RecommenderSpec:
    return parse_spec(json.dumps(DOCUMENT | changes))


@pytest.mark.requirement("U-11")
def test_the_default_is_400_days_and_either_can_be_set() -> None:
    assert (read().keep.of("impressions"), read().keep.of("interactions")) == (400 * DAY, 400 * DAY)
    keep = read(keep={"impressions": "30d", "interactions": "10w"}).keep
    assert (keep.of("impressions"), keep.of("interactions")) == (30 * DAY, 70 * DAY)


@pytest.mark.requirement("U-11")
def test_a_spec_that_uses_the_default_is_stored_as_releases_of_before_read_it() -> None:
    assert "keep" not in read().document() and "keep" not in read(keep={"impressions": "400d"}).document()
    document = read(keep={"interactions": "500d"}).document()
    assert document["keep"] == {"impressions": "400d", "interactions": "500d"}
    assert parse_spec(json.dumps(document)).keep.interactions == 500 * DAY


@pytest.mark.requirement("U-11")
def test_events_stay_for_as_long_as_a_rollout_reads_them() -> None:
    rollout: dict[str, Any] = {
        "steps": [{"weight": "5%", "max": "20d"}, {"weight": "50%"}],
        "shadow": "3d",
        "analysis": {"window": "12h", "attribution": "12h"},
    }
    spec = read(keep={"impressions": "30d", "interactions": "40d"}, rollout=rollout)
    assert (spec.horizon("impressions"), spec.horizon("interactions")) == (31 * DAY, 40 * DAY)
    rollout["analysis"]["deadline"] = "3660d"
    assert read(rollout=rollout).horizon("impressions") == 3660 * DAY, "the longest duration"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keep": {"impressions": "29d"}}, "impressions: expected at least 30d, got 29d"),
        ({"keep": {"interactions": "60d"}}, r"interactions: 60d is below impressions \(400d\); KPIs of an answer need its interactions"),
        ({"keep": {"impressions": "soon"}}, "expected a duration such as 30s"),
        ({"keep": {"histories": "30d"}}, "histories"),
    ],
)
def test_too_short_times_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        read(**changes)
