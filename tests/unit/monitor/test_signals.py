"""What the monitor says of a serving version: nothing while there is too little, and then what really happened."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from shared.domain.errors import NotFound
from shared.domain.route import Route
from shared.ports import HitRate
from tests.unit.monitor.conftest import ATTRIBUTION, NAME, World

KPI: dict[str, Any] = {"kpi": {"hit_rate": "-10%", "window": "1h", "min_answers": 50}}


@pytest.fixture
def serving(world: World) -> World:
    """Version 1 serves."""
    world.apply(KPI)
    world.serve(world.version())
    return world


# For people and for /metrics


@pytest.mark.requirement("G-13")
def test_kpis_are_of_the_newest_closed_stretch_of_time(serving: World) -> None:
    serving.answer(1, 10, hits=10)  # too old
    serving.clock.pass_by(hours=2)
    serving.answer(1, 20, hits=5)
    serving.clock.pass_by(minutes=31)
    serving.answer(1, 30, hits=30)  # still open
    assert serving.monitor.kpis(NAME, timedelta(hours=1)) == {1: HitRate(20, 5)}
    assert serving.monitor.kpis(NAME, timedelta(hours=4)) == {1: HitRate(30, 15)}
    assert serving.monitor.kpis(NAME, timedelta(seconds=1)) == {}


def test_the_window_holds_its_start_and_not_its_end(serving: World) -> None:
    serving.answer(1, 1, hits=1)
    given = serving.clock.now()
    serving.clock.time = given + ATTRIBUTION
    assert serving.monitor.kpis(NAME, timedelta(minutes=1)) == {}
    serving.clock.time = given + ATTRIBUTION + timedelta(minutes=1)
    assert serving.monitor.kpis(NAME, timedelta(minutes=1)) == {1: HitRate(1, 1)}
    serving.clock.pass_by(milliseconds=1)
    assert serving.monitor.kpis(NAME, timedelta(minutes=1)) == {}


@pytest.mark.requirement("G-13", "C-06")
def test_each_version_that_answered_has_its_own_hit_rate(serving: World) -> None:
    serving.version()
    serving.version()
    serving.answer(1, 20, hits=5)
    serving.answer(2, 10, hits=9)
    serving.clock.pass_by(minutes=31)
    assert serving.monitor.kpis(NAME, timedelta(hours=1)) == {1: HitRate(20, 5), 2: HitRate(10, 9)}
    serving.monitor.export()
    for version, rate, answers in (("1", 0.25, 20), ("2", 0.9, 10)):
        labels = {"recommender": NAME, "version": version}
        assert REGISTRY.get_sample_value("eyas_hit_rate", labels) == rate
        assert REGISTRY.get_sample_value("eyas_hit_rate_answers", labels) == answers


def test_kpis_of_an_unknown_recommender_are_not_found(world: World) -> None:
    with pytest.raises(NotFound, match="nobody"):
        world.monitor.kpis("nobody", timedelta(hours=1))


def test_a_version_that_no_longer_answers_says_so_on_metrics(serving: World) -> None:
    serving.answer(1, 20, hits=5)
    serving.clock.pass_by(minutes=31)
    serving.monitor.export()
    serving.clock.pass_by(hours=5)
    serving.monitor.export()
    assert not REGISTRY.get_sample_value("eyas_hit_rate_answers", {"recommender": NAME, "version": "1"})


def test_a_recommender_that_cannot_be_measured_is_said_once_and_stops_no_other(serving: World, caplog: pytest.LogCaptureFixture) -> None:
    serving.routes.put("a-stranger", Route(1), serving.clock.now(), "ada", "a test")
    serving.answer(1, 20, hits=5)
    serving.clock.pass_by(minutes=31)
    serving.monitor.export()
    serving.monitor.export()
    assert REGISTRY.get_sample_value("eyas_hit_rate", {"recommender": NAME, "version": "1"}) == 0.25
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "the hit rate of 'a-stranger': no recommender is called 'a-stranger'"
    ]


@pytest.mark.requirement("C-03")
def test_events_since_the_snapshot_of_the_serving_version_are_counted_as_far_as_is_asked(world: World) -> None:
    number = world.version()
    cut = world.clock.now()
    made = world.registry.get(NAME, number)
    dated = world.registry.register(replace(made, run="dated", lineage={"snapshot": cut.isoformat()})).number
    world.apply({"new_events": 5})
    world.serve(number)
    world.like(range(3))
    assert (world.monitor.signals(NAME).snapshot, world.monitor.signals(NAME).events) == (None, None)
    world.serve(dated)
    world.clock.pass_by(seconds=1)
    assert (world.monitor.signals(NAME).snapshot, world.monitor.signals(NAME).events) == (cut, 3)
    world.like(range(9), positive=False)
    world.clock.pass_by(seconds=11)
    assert world.monitor.signals(NAME).events == 5
    world.apply({"new_data": {"every": "1d"}})
    assert world.monitor.signals(NAME).events == 1
    world.apply()
    assert world.monitor.signals(NAME).events is None


def test_a_count_stands_for_a_moment(world: World) -> None:
    made = world.registry.get(NAME, world.version())
    world.apply({"new_events": 100})
    world.serve(world.registry.register(replace(made, run="dated", lineage={"snapshot": world.clock.now().isoformat()})).number)
    asked = []
    count = world.events.count
    world.events.count = lambda *values: asked.append(values) or count(*values)  # type: ignore[method-assign,func-returns-value]
    for _ in range(25):
        world.monitor.signals(NAME)
        world.clock.pass_by(seconds=1)
    assert len(asked) == 3
