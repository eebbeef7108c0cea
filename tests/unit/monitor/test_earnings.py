"""What versions earn: told to people, and exported as gauges that end with their version."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from services.monitor.earnings import Earnings
from shared.contracts.events import Impression, Interaction
from shared.contracts.feedback import Feedback
from shared.domain.errors import NotFound
from shared.domain.route import Route
from tests.unit.monitor.conftest import ATTRIBUTION, NAME, World, spec

KPI: dict[str, Any] = {"kpi": {"hit_rate": "-10%", "window": "1h", "min_answers": 50}}


@pytest.fixture
def earnings(world: World) -> Earnings:
    kinds = {"share": {"weight": 3, "conversion": True}}
    known = spec(NAME).model_copy(update={"feedback": Feedback.model_validate({"kinds": kinds})})
    world.recommenders.put(known, world.clock.now(), "ada")
    world.serve(world.version())
    return Earnings(world.recommenders, world.routes, world.registry, world.kpis, world.clock)


def answer(world: World, name: str, *done: dict[str, Any], version: int = 1) -> None:
    """An answer with two items, and what its user did with it."""
    at = world.clock.now()
    shown = {"request_id": name, "recommender": NAME, "user": 1, "version": version, "variant": "stable", "generation": 1, "step": -1}
    world.events.impressions([Impression(**shown, items=(7, 8), at=at)])
    events = [Interaction(**{"recommender": NAME, "user": 1, "item": 7, "request_id": name, "at": at} | one) for one in done]
    world.events.interactions(events, [True] * len(events), ATTRIBUTION)


def gauge(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"recommender": NAME, "version": "1", **labels})


@pytest.mark.requirement("G-13", "C-06")
def test_a_version_earns_by_the_words_of_its_spec(world: World, earnings: Earnings) -> None:
    answer(world, "a", {"kind": "click"}, {"kind": "share", "item": 8})
    answer(world, "b", {"kind": "purchase", "revenue": 2.5})
    for name in ("c", "d"):
        answer(world, name)
    world.clock.time += ATTRIBUTION + timedelta(seconds=1)
    (one,) = earnings.of(NAME, timedelta(minutes=5)).values()
    assert (one.earned.answers, one.earned.hits, one.earned.conversions, one.earned.revenue) == (4, 2, 2, 2_500_000)
    assert one.engagement == (1 + 3 + 1) / 4
    earnings.export()
    names = ("eyas_conversion", "eyas_revenue_per_answer", "eyas_engagement")
    assert [gauge(name) for name in names] == [0.5, 0.625, 1.25]
    assert [gauge("eyas_click_rate", place=place) for place in ("1", "2", "3")] == [0.5, 0.25, None]


def test_gauges_end_with_what_they_speak_of(world: World, earnings: Earnings) -> None:
    answer(world, "a", {"kind": "click"})
    world.clock.time += ATTRIBUTION + timedelta(seconds=1)
    earnings.export()
    assert gauge("eyas_engagement") == 1
    world.clock.pass_by(hours=1)
    earnings.export()
    assert (gauge("eyas_engagement"), gauge("eyas_click_rate", place="1")) == (None, None)


def test_a_recommender_that_cannot_be_measured_is_said_once_and_stops_no_other(
    world: World, earnings: Earnings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.kpis, "earned", lambda *_: 1 / 0)
    for _ in range(3):
        earnings.export()
    assert len([one for one in caplog.records if one.levelname == "ERROR"]) == 1


@pytest.fixture
def serving(world: World) -> World:
    """Version 1 serves, and a trigger says which window the hit rate is of."""
    world.apply(KPI)
    world.serve(world.version())
    return world


@pytest.fixture
def told(world: World) -> Earnings:
    return Earnings(world.recommenders, world.routes, world.registry, world.kpis, world.clock)


def hit_rates(told: Earnings, window: timedelta) -> dict[int, tuple[int, int]]:
    """Answers and hits, by version."""
    return {number: (one.earned.answers, one.earned.hits) for number, one in told.of(NAME, window).items()}


@pytest.mark.requirement("G-13")
def test_kpis_are_of_the_newest_closed_stretch_of_time(serving: World, told: Earnings) -> None:
    serving.answer(1, 10, hits=10)  # too old
    serving.clock.pass_by(hours=2)
    serving.answer(1, 20, hits=5)
    serving.clock.pass_by(minutes=31)
    serving.answer(1, 30, hits=30)  # still open
    assert hit_rates(told, timedelta(hours=1)) == {1: (20, 5)}
    assert hit_rates(told, timedelta(hours=4)) == {1: (30, 15)}
    assert hit_rates(told, timedelta(seconds=1)) == {}


def test_the_window_holds_its_start_and_not_its_end(serving: World, told: Earnings) -> None:
    serving.answer(1, 1, hits=1)
    given = serving.clock.now()
    serving.clock.time = given + ATTRIBUTION
    assert hit_rates(told, timedelta(minutes=1)) == {}
    serving.clock.time = given + ATTRIBUTION + timedelta(minutes=1)
    assert hit_rates(told, timedelta(minutes=1)) == {1: (1, 1)}
    serving.clock.pass_by(milliseconds=1)
    assert hit_rates(told, timedelta(minutes=1)) == {}


@pytest.mark.requirement("G-13", "C-06")
def test_each_version_that_answered_has_its_own_hit_rate(serving: World, told: Earnings) -> None:
    serving.version()
    serving.version()
    serving.answer(1, 20, hits=5)
    serving.answer(2, 10, hits=9)
    serving.clock.pass_by(minutes=31)
    assert hit_rates(told, timedelta(hours=1)) == {1: (20, 5), 2: (10, 9)}
    told.export()
    for version, rate, answers in (("1", 0.25, 20), ("2", 0.9, 10)):
        labels = {"recommender": NAME, "version": version}
        assert REGISTRY.get_sample_value("eyas_hit_rate", labels) == rate
        assert REGISTRY.get_sample_value("eyas_hit_rate_answers", labels) == answers


def test_kpis_of_an_unknown_recommender_are_not_found(told: Earnings) -> None:
    with pytest.raises(NotFound, match="nobody"):
        told.of("nobody", timedelta(hours=1))


def test_a_version_that_no_longer_answers_says_so_on_metrics(serving: World, told: Earnings) -> None:
    serving.answer(1, 20, hits=5)
    serving.clock.pass_by(minutes=31)
    told.export()
    serving.clock.pass_by(hours=5)
    told.export()
    assert not REGISTRY.get_sample_value("eyas_hit_rate_answers", {"recommender": NAME, "version": "1"})


def test_one_that_nobody_knows_is_said_once_and_stops_no_other(serving: World, told: Earnings, caplog: pytest.LogCaptureFixture) -> None:
    serving.routes.put("a-stranger", Route(1), serving.clock.now(), "ada", "a test")
    serving.answer(1, 20, hits=5)
    serving.clock.pass_by(minutes=31)
    told.export()
    told.export()
    assert REGISTRY.get_sample_value("eyas_hit_rate", {"recommender": NAME, "version": "1"}) == 0.25
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "what 'a-stranger' earns: no recommender is called 'a-stranger'"
    ]
