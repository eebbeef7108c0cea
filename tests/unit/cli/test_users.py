"""`eyas forget-user`: asks first, and says what was deleted and what still may know the user."""

from __future__ import annotations

import json

import pytest

from services.cli.exit_codes import Exit

pytestmark = pytest.mark.requirement("U-11", "C-02")

ROW = {
    "recommender": "m",
    "forgotten_at": "2026-03-01T12:00:00Z",
    "interactions": 1200,
    "impressions": 2,
    "feature_values": 0,
    "versions": [3, 4],
    "collected_by": "2026-03-31T12:00:00Z",
}


def test_a_user_is_forgotten_after_a_question(platform, eyas):
    platform.says("DELETE /v1/users/a/b", {"recommenders": [ROW, ROW | {"recommender": "n", "versions": []}]})
    answer = eyas("forget-user", "a/b", typed="y\n").stdout
    assert "m: deleted 1,200 interactions, 2 impressions, 0 feature values\nversions 3, 4 may know the user until 2026-03-31" in answer
    assert answer.endswith("n: deleted 1,200 interactions, 2 impressions, 0 feature values\n")
    assert json.loads(eyas("forget-user", "a/b", "--yes", "--json").stdout)["recommenders"][0] == ROW


def test_nothing_is_deleted_without_a_yes(platform, eyas):
    assert eyas("forget-user", "a/b", typed="n\n").exit_code == Exit.NO
    assert platform.asked == []
