"""`overview`: a line for each recommender."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.requirement("C-09")

POINT = {"users": 400, "hit_rate": 0.149, "low": 0.118, "high": 0.187}
FARES = {
    "name": "movies",
    "serving": {"stable": 3},
    "newest": "2026-01-08T10:15:00Z",
    "points": [POINT, POINT | {"users": 2, "hit_rate": 0.5}],
    "last": POINT,
    "drift": {"state": "steady", "said": ["no drift"]},
    "under_way": [{"kind": "rollout", "id": "r1-rollout", "state": "rolled_back", "reason": ""}],
}


def test_each_recommender_has_a_line(platform, eyas):
    new = {**FARES, "name": "news", "serving": None, "newest": None, "points": [], "last": None, "under_way": []}
    platform.says("GET /v1/overview", {"items": [FARES, new], "next": None})
    shown = eyas("overview").stdout
    assert "version 3" in shown and "nothing yet" in shown
    assert "14.9% (11.8% to 18.7%)" in shown and "50.0%" not in shown
    assert "rollout r1-rollout: rolled back" in shown


def test_without_any_it_says_what_to_do(platform, eyas):
    platform.says("GET /v1/overview", {"items": [], "next": None})
    assert "eyas apply" in eyas("overview").stdout
