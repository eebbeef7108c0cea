"""What the monitor says of a serving version: nothing while there is too little, and then what really happened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from services.monitor.activity import DriftActivity
from services.monitor.retrain_signals import Monitor
from shared.testing.records import LINEAGE
from tests.unit.monitor.conftest import NAME, World

KPI: dict[str, Any] = {"kpi": {"hit_rate": "-10%", "window": "1h", "season": "none", "min_answers": 50}}


@pytest.fixture
def serving(world: World) -> World:
    """Version 1 serves."""
    world.apply(KPI)
    world.serve(world.version())
    return world


@pytest.mark.requirement("C-03")
def test_events_since_the_snapshot_of_the_serving_version_are_counted_as_far_as_is_asked(world: World) -> None:
    number = world.version()
    cut = world.clock.now()
    made = world.registry.get(NAME, number)
    dated = world.registry.register(replace(made, run="dated", lineage=replace(LINEAGE, snapshot=cut))).number
    world.apply({"new_events": 5})
    world.like(range(3))
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
    world.serve(world.registry.register(replace(made, run="dated", lineage=replace(LINEAGE, snapshot=world.clock.now()))).number)
    asked = []
    count = world.events.count
    world.events.count = lambda *values: asked.append(values) or count(*values)  # type: ignore[method-assign,func-returns-value]
    for _ in range(25):
        world.monitor.signals(NAME)
        world.clock.pass_by(seconds=1)
    assert len(asked) == 3


@pytest.mark.requirement("G-13")
def test_drift_is_not_looked_at_again_before_anything_new_is_known(serving: World, monkeypatch: pytest.MonkeyPatch) -> None:
    activity = DriftActivity(serving.routes, serving.sightings, fresh=0)
    stores = (serving.recommenders, serving.routes, serving.registry, serving.events, serving.sightings, serving.artifacts)
    monitor = Monitor(*stores, serving.clock, activity)
    asked: list[str] = []
    likes = serving.sightings.likes
    monkeypatch.setattr(serving.sightings, "likes", lambda *given, **more: asked.append(given[0]) or likes(*given, **more))
    for _ in range(5):
        monitor.export()
    assert asked == [NAME]
    serving.clock.pass_by(seconds=1)
    serving.answer(1, 10, hits=10)
    for _ in range(5):
        monitor.export()
    assert asked == [NAME, NAME]
    serving.apply({"drift": {"psi": 0.5}})
    for _ in range(5):
        monitor.export()
    assert asked == [NAME, NAME, NAME]
