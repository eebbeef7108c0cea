"""Answers that filters leave empty are told: a gauge, one line when it begins, and one when it ends."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from prometheus_client import REGISTRY

from services.monitor.activity import DriftActivity
from services.monitor.empty_answers import EVERY, LEAST, WINDOW, EmptyAnswersMonitor
from shared.contracts.events import NOTHING_LEFT, Impression
from shared.contracts.monitoring import Monitor
from shared.ports import EmptyAnswers
from shared.telemetry import metrics
from tests.unit.monitor.conftest import NAME, World, spec


@pytest.fixture
def monitor(world: World) -> EmptyAnswersMonitor:
    world.recommenders.put(spec(NAME), world.clock.now(), "ada")
    world.serve(world.version())
    metrics.EMPTY_ANSWERS.clear()
    return EmptyAnswersMonitor(
        world.recommenders, world.routes, world.kpis, world.clock, DriftActivity(world.routes, world.sightings, fresh=0)
    )


def answers(world: World, name: str, full: int, empty: int) -> None:
    at, labels = world.clock.now(), {"version": 1, "variant": "stable", "generation": 1, "step": -1, "recommender": NAME, "user": 1}
    rows = [{"items": (7,)}] * full + [{"items": (), "fallback": NOTHING_LEFT}] * empty
    world.events.impressions([Impression(**{"request_id": f"{name}{n}", "at": at, **labels, **row}) for n, row in enumerate(rows)])


def look(world: World, monitor: EmptyAnswersMonitor) -> float | None:
    world.clock.pass_by(seconds=EVERY.total_seconds())
    monitor.export()
    monitor.warn()
    return REGISTRY.get_sample_value("eyas_empty_answer_share", {"recommender": NAME})


@pytest.mark.requirement("G-02")
def test_the_begin_and_the_end_are_logged_once_each(world: World, monitor: EmptyAnswersMonitor, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    answers(world, "a", 3 * LEAST, LEAST)
    assert [look(world, monitor) for _ in range(3)] == [0.25] * 3
    (begin,) = caplog.records
    assert (begin.levelname, begin.message[:46]) == ("WARNING", "empty answers: filters leave no item too often")
    assert f"recommender={NAME} share=0.250 limit=0.200 answers=80 window=0:15:00" in begin.message
    answers(world, "b", 2 * LEAST, 0)
    assert [round(look(world, monitor) or 0, 3) for _ in range(2)] == [0.167] * 2
    assert [record.message[:20] for record in caplog.records[1:]] == ["empty answers: ended"]


def test_few_answers_have_no_share(world: World, monitor: EmptyAnswersMonitor, caplog: pytest.LogCaptureFixture) -> None:
    answers(world, "a", 0, LEAST - 1)
    assert look(world, monitor) is None
    assert not caplog.records
    seen = monitor.of(NAME)
    assert (seen.share, seen.exceeds, seen.counts) == (None, False, EmptyAnswers(LEAST - 1, LEAST - 1))


def test_the_gauge_ends_when_the_answers_are_older_than_the_window(world: World, monitor: EmptyAnswersMonitor) -> None:
    answers(world, "a", 0, LEAST)
    assert look(world, monitor) == 1.0
    assert monitor.due() == EVERY.total_seconds()
    world.clock.pass_by(seconds=WINDOW.total_seconds())
    assert look(world, monitor) is None
    assert look(world, monitor) is None
    assert monitor.due() is None


def test_the_spec_sets_the_limit(world: World, monitor: EmptyAnswersMonitor, caplog: pytest.LogCaptureFixture) -> None:
    changed = spec(NAME).model_copy(update={"monitor": Monitor(empty_answers=1.0)})
    world.recommenders.put(changed, world.clock.now(), "ada")
    answers(world, "a", 0, LEAST)
    assert look(world, monitor) == 1.0
    assert not caplog.records
    assert REGISTRY.get_sample_value("eyas_empty_answer_limit", {"recommender": NAME}) == 1.0


def test_a_recommender_without_recent_answers_costs_no_query(
    world: World, monitor: EmptyAnswersMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.clock.pass_by(seconds=timedelta(hours=1).total_seconds())
    monkeypatch.setattr(world.kpis, "empty", lambda *_: 1 / 0)
    assert look(world, monitor) is None
    answers(world, "a", 0, LEAST)
    monkeypatch.undo()
    assert look(world, monitor) == 1.0
