"""What a version earns now against what it earned before, over real stores."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from shared.domain.drift.reading import DriftReading
from tests.unit.monitor.conftest import ATTRIBUTION, NAME, World

KPI: dict[str, Any] = {"kpi": {"hit_rate": "-10%", "window": "1h", "season": "none", "min_answers": 50}}


@pytest.fixture
def serving(world: World) -> World:
    world.apply(KPI)
    world.serve(world.version())
    return world


def reading(world: World) -> DriftReading | None:
    look = world.monitor.signals(NAME).kpi
    return look.readings[0] if look else None


@pytest.mark.requirement("G-13")
def test_a_fall_is_found_with_what_was_earned_before_and_since(serving: World) -> None:
    serving.answer(1, 600, hits=360, seconds=3)
    serving.answer(1, 600, hits=60, seconds=3)
    serving.clock.pass_by(minutes=31)
    found = reading(serving)
    assert found is not None
    (rates,) = found.moved
    assert rates.before > 0.5
    assert rates.after < 0.2
    assert found.size > 0.5
    assert found.chance < found.limit


def test_what_is_earned_as_before_is_no_fall(serving: World) -> None:
    for _ in range(40):
        serving.answer(1, 60, hits=20, seconds=15)
    serving.clock.pass_by(minutes=31)
    found = reading(serving)
    assert found is not None
    assert found.chance > 0.01


@pytest.mark.parametrize(("first", "newest"), [(49, 0), (0, 49), (60, 49), (49, 60)])
def test_too_few_answers_say_nothing(serving: World, first: int, newest: int) -> None:
    serving.answer(1, first, hits=first)
    serving.clock.pass_by(hours=3)
    serving.answer(1, newest, hits=0)
    serving.clock.pass_by(minutes=61)
    assert reading(serving) is None


def test_answers_whose_attribution_window_is_open_do_not_count(serving: World) -> None:
    serving.answer(1, 60, hits=60)
    serving.clock.time += timedelta(minutes=14)  # the second quarter of an hour begins
    serving.answer(1, 60, hits=0)
    serving.clock.time = serving.serving_since + timedelta(minutes=30) + ATTRIBUTION - timedelta(microseconds=1)
    assert reading(serving) is None
    serving.clock.pass_by(microseconds=1)
    found = reading(serving)
    assert found is not None
    assert found.size == 1


def test_answers_of_another_version_do_not_count(serving: World) -> None:
    for version, hits in ((1, 30), (2, 60)):
        serving.answer(version, 60, hits=hits)
    serving.clock.pass_by(hours=3)
    for version, hits in ((1, 30), (2, 0)):
        serving.answer(version, 60, hits=hits)
    serving.clock.pass_by(minutes=61)
    found = reading(serving)
    assert found is not None
    assert (found.moved[0].before, found.moved[0].after, found.size) == (0.5, 0.5, 0)


def test_what_it_earned_as_the_candidate_does_not_count(serving: World) -> None:
    number = serving.version()
    serving.serve(1, candidate=number, weight=0.2)
    serving.answer(number, 60, hits=0)
    serving.clock.pass_by(seconds=1)
    serving.serve(number)
    serving.answer(number, 60, hits=48)
    serving.clock.pass_by(hours=3)
    serving.answer(number, 60, hits=24)
    serving.clock.pass_by(minutes=61)
    found = reading(serving)
    assert found is not None
    assert (found.moved[0].before, found.moved[0].after) == (0.8, 0.4)


def test_blocks_are_counted_once_and_again_after_a_restart(serving: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    count = serving.sightings.blocks
    monkeypatch.setattr(serving.sightings, "blocks", lambda *values: asked.append(values) or count(*values))
    for _ in range(8):
        serving.answer(1, 60, hits=20, seconds=15)
        for _ in range(5):
            serving.monitor.signals(NAME)
            serving.clock.pass_by(seconds=1)
    assert len(asked) <= 9
    assert all(later[2] == earlier[3] for earlier, later in pairwise(asked)), "each stretch of time once"
    assert serving.watcher().signals(NAME).kpi == serving.monitor.signals(NAME).kpi


def test_without_the_trigger_hit_rates_are_not_compared(world: World) -> None:
    world.apply()
    world.serve(world.version())
    world.answer(1, 60, hits=30)
    world.clock.pass_by(hours=3)
    world.answer(1, 60, hits=15)
    world.clock.pass_by(minutes=61)
    assert reading(world) is None
