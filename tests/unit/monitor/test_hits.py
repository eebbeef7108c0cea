"""What a recommender earns now against the same hours before, over real stores and across the versions that served."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from shared.domain.drift.reading import DriftLook
from shared.ports import Version
from shared.testing.records import LINEAGE
from tests.unit.monitor.conftest import ATTRIBUTION, NAME, World

pytestmark = pytest.mark.requirement("G-13")

KPI: dict[str, Any] = {"kpi": {"hit_rate": "-10%", "window": "1d", "min_answers": 50}}
BLOCKS = 4
"""Of a day."""


@pytest.fixture
def serving(world: World) -> World:
    world.apply(KPI)
    world.clock.time = world.clock.time.replace(hour=0)
    world.serve(world.version())
    return world


def live(world: World, version: int, days: int, *hits: int) -> None:
    """A day is four stretches of 100 answers, with so many hits each."""
    for block in range(BLOCKS * days):
        start = world.clock.time
        world.answer(version, 100, hits=hits[block % len(hits)])
        world.clock.time = start + timedelta(hours=6)


def look(world: World) -> DriftLook:
    world.clock.time += ATTRIBUTION
    found = world.monitor.signals(NAME).kpi
    world.clock.time -= ATTRIBUTION
    assert found is not None
    return found


def rates(world: World) -> tuple[float, float]:
    (found,) = look(world).readings
    return round(found.moved[0].before, 3), round(found.moved[0].after, 3)


def test_it_waits_for_a_full_day_and_then_compares_the_same_hours(serving: World) -> None:
    live(serving, 1, 1, 20, 60, 60, 60)
    assert look(serving).note == "waits for a full day to compare with: 24 h of 24 h have passed"
    live(serving, 1, 1, 20, 60, 60, 60)
    (found,) = look(serving).readings
    assert (found.size, found.chance) == (0, 1)
    serving.answer(1, 100, hits=5)
    serving.clock.time += timedelta(hours=6)
    assert rates(serving) == (0.2, 0.05), "a night with two nights"


def test_what_earlier_versions_earned_is_compared_with_too(serving: World) -> None:
    live(serving, 1, 2, 60)
    serving.serve(serving.version())
    live(serving, 2, 1, 30)
    assert rates(serving) == (0.6, 0.3)


def test_a_new_salt_or_a_canary_begins_nothing_anew_and_its_answers_do_not_count(serving: World) -> None:
    live(serving, 1, 1, 60)
    number = serving.version()
    serving.serve(1, candidate=number, weight=0.2)
    serving.answer(number, 100, hits=0)
    serving.clock.time -= timedelta(seconds=100)
    live(serving, 1, 1, 60)
    serving.serve(1)
    live(serving, 1, 1, 60)
    assert rates(serving) == (0.6, 0.6)


def test_a_version_that_a_fallen_hit_rate_asked_for_begins_anew(serving: World) -> None:
    """What that retraining couldn't win back isn't asked of another one."""
    live(serving, 1, 2, 60)
    registered = serving.registry.get(NAME, serving.version())
    answer = Version(NAME, 0, "r-kpi", registered.digest, registered.files, {}, replace(LINEAGE, trigger="kpi"), None, serving.clock.now())
    number = serving.registry.register(answer).number
    serving.serve(number)
    live(serving, number, 1, 30)
    assert look(serving).note.startswith("waits for a full day")
    live(serving, number, 1, 30)
    assert rates(serving) == (0.3, 0.3)
    serving.serve(2)
    live(serving, 2, 1, 15)
    assert rates(serving) == (0.3, 0.15), "but what this version earned is compared with"


def test_stretches_are_counted_once_and_again_after_a_restart(serving: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    count = serving.sightings.blocks
    monkeypatch.setattr(serving.sightings, "blocks", lambda *values: asked.append(values) or count(*values))
    for _ in range(12):
        live(serving, 1, 1, 60, 50, 40, 30)
        look(serving)
        look(serving)
    for every in (timedelta(hours=6), timedelta(days=1)):
        stretches = [(values[2], values[3]) for values in asked if values[4] == every]
        assert all(later[0] == earlier[1] for earlier, later in pairwise(stretches)), "each stretch of time once"
    serving.clock.time += ATTRIBUTION
    assert serving.watcher().signals(NAME).kpi == serving.monitor.signals(NAME).kpi


def test_a_change_of_the_rule_is_followed(serving: World) -> None:
    live(serving, 1, 3, 60, 20, 60, 60)
    before, after = rates(serving)
    assert before == after
    serving.apply({"kpi": KPI["kpi"] | {"season": "week"}})
    assert look(serving).note == "waits for a full week to compare with: 3 days of 7 days have passed"
    serving.apply({"kpi": KPI["kpi"] | {"min_answers": 500}})
    assert look(serving).readings == ()


def test_limits_and_conversion_are_looked_at_where_the_spec_asks_for_them(serving: World) -> None:
    rates = {"hit_rate": {"min": "50%"}, "conversion": {"fall": "-10%", "min": 0.2}}
    serving.apply({"kpi": {"window": "1d", "min_answers": 50, **rates}})
    assert look(serving).note == "waits for a full day to compare with: 0 h of 24 h have passed"
    live(serving, 1, 1, 30)
    found = {one.detector: one for one in look(serving).readings}
    assert sorted(found) == ["conversion_min", "hit_rate_min"]
    assert found["hit_rate_min"].exceeds(0) and found["hit_rate_min"].size == pytest.approx(0.4)
    assert not found["conversion_min"].exceeds(0)
    live(serving, 1, 1, 5)
    found = {one.detector: one for one in look(serving).readings}
    assert sorted(found) == ["conversion", "conversion_min", "hit_rate_min"]
    assert found["conversion"].exceeds(0.1) and found["conversion_min"].exceeds(0)


def test_a_limit_alone_says_what_it_waits_for(serving: World) -> None:
    serving.apply({"kpi": {"window": "1d", "hit_rate": {"min": 0.5}}})
    live(serving, 1, 1, 60)
    assert look(serving).note == "waits for a full day of answers", "and for 500 of them"


def test_without_a_season_a_limit_is_held_against_the_newest_window(serving: World) -> None:
    serving.apply({"kpi": {"window": "1d", "season": "none", "min_answers": 50, "hit_rate": {"min": 0.5}}})
    live(serving, 1, 1, 60)
    (found,) = look(serving).readings
    assert (found.detector, found.size) == ("hit_rate_min", 0)
    live(serving, 1, 1, 30)
    (found,) = look(serving).readings
    assert found.exceeds(0)
