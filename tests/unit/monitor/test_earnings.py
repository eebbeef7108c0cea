"""What versions earn: told to people, and exported as gauges that end with their version."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from services.monitor.earnings import Earnings
from shared.contracts.events import Impression, Interaction
from shared.contracts.feedback import Feedback
from tests.unit.monitor.conftest import ATTRIBUTION, NAME, World, spec


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
