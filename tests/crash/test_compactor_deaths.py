"""A compactor dies between any two calls of its stores, in process: the next one finishes what it began."""

from __future__ import annotations

from pathlib import Path

from tests.support.compaction_deaths import is_finished_after_death


def test_a_compaction_that_dies_between_any_two_calls_is_finished_by_the_next_one(tmp_path: Path) -> None:
    deaths = 0
    while is_finished_after_death(tmp_path / str(deaths), deaths + 1):
        deaths += 1
        assert deaths < 500
    assert deaths > 30
