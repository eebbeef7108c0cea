"""What versions earn: told to people, and exported as gauges that end with their version."""

from __future__ import annotations

import itertools
import math
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from services.monitor.activity import DriftActivity
from services.monitor.catalogues import CatalogueSizes
from services.monitor.earnings import Earnings, ItemSpread
from services.monitor.gauges import SPREAD_EVERY, EarningsGauges
from shared.contracts.events import Impression, Interaction
from shared.contracts.feedback import Feedback
from shared.contracts.monitoring import Monitor
from shared.domain.errors import Invalid, NotFound
from shared.domain.route import Route
from tests.unit.monitor.conftest import ATTRIBUTION, NAME, World, spec

KPI: dict[str, Any] = {"kpi": {"hit_rate": "-10%", "window": "1h", "season": "none", "min_answers": 50}}


@pytest.fixture
def earnings(world: World) -> Earnings:
    kinds = {"share": {"weight": 3, "conversion": True}}
    known = spec(NAME).model_copy(update={"feedback": Feedback.model_validate({"kinds": kinds})})
    world.recommenders.put(known, world.clock.now(), "ada")
    world.serve(world.version())
    return told_of(world)


def told_of(world: World) -> Earnings:
    return Earnings(world.recommenders, world.registry, world.artifacts, world.kpis, world.clock)


@pytest.fixture
def gauges(world: World, earnings: Earnings) -> EarningsGauges:
    return EarningsGauges(world.recommenders, world.routes, earnings, world.clock)


def answer(world: World, name: str, *done: dict[str, Any], version: int = 1, **more: Any) -> None:
    """An answer with two items, and what its user did with it."""
    at = world.clock.now()
    shown = {"request_id": name, "recommender": NAME, "user": 1, "version": version, "variant": "stable", "generation": 1, "step": -1}
    world.events.impressions([Impression(**shown | {"items": (7, 8), "at": at} | more)])
    events = [Interaction(**{"recommender": NAME, "user": 1, "item": 7, "request_id": name, "at": at} | one) for one in done]
    world.events.interactions(events, [True] * len(events), ATTRIBUTION)


def gauge(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"recommender": NAME, "version": "1", **labels})


@pytest.mark.requirement("G-13", "C-06")
def test_a_version_earns_by_the_words_of_its_spec(world: World, earnings: Earnings, gauges: EarningsGauges) -> None:
    answer(world, "a", {"kind": "click"}, {"kind": "share", "item": 8})
    answer(world, "b", {"kind": "purchase", "revenue": 2.5})
    for name in ("c", "d"):
        answer(world, name)
    world.clock.time += ATTRIBUTION + timedelta(seconds=1)
    (one,) = earnings.of(NAME, timedelta(minutes=5)).values()
    assert (one.earned.answers, one.earned.hits, one.earned.conversions, one.earned.revenue) == (4, 2, 2, 2_500_000)
    assert one.engagement == (1 + 3 + 1) / 4
    gauges.export()
    names = ("eyas_conversion", "eyas_revenue_per_answer", "eyas_engagement")
    assert [gauge(name) for name in names] == [0.5, 0.625, 1.25]
    assert [gauge("eyas_click_rate", place=place) for place in ("1", "2", "3")] == [0.5, 0.25, None]


def test_gauges_end_with_what_they_speak_of(world: World, gauges: EarningsGauges) -> None:
    answer(world, "a", {"kind": "click"})
    world.clock.time += ATTRIBUTION + timedelta(seconds=1)
    gauges.export()
    assert gauge("eyas_engagement") == 1
    world.clock.pass_by(hours=1)
    gauges.export()
    assert (gauge("eyas_engagement"), gauge("eyas_click_rate", place="1")) == (None, None)


def test_a_recommender_that_cannot_be_measured_is_said_once_and_stops_no_other(
    world: World, gauges: EarningsGauges, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.kpis, "parts", lambda *_: 1 / 0)
    for _ in range(3):
        gauges.export()
    assert len([one for one in caplog.records if one.levelname == "ERROR"]) == 1


def test_one_that_has_answered_nothing_lately_costs_no_question_and_is_shown_again_when_it_answers(
    world: World, earnings: Earnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    gauges = EarningsGauges(world.recommenders, world.routes, earnings, world.clock, DriftActivity(world.routes, world.sightings, fresh=0))
    world.clock.pass_by(hours=2)
    gauges.export()
    asked: list[str] = []
    parts = world.kpis.parts
    monkeypatch.setattr(world.kpis, "parts", lambda *given: asked.append(given[0]) or parts(*given))
    for _ in range(5):
        gauges.export()
    assert asked == []
    answer(world, "a", {"kind": "click"})
    world.clock.time += ATTRIBUTION + timedelta(seconds=1)
    gauges.export()
    assert gauge("eyas_engagement") == 1
    world.clock.pass_by(hours=1)
    gauges.export()
    assert gauge("eyas_engagement") is None
    assert len(asked) == 1


@pytest.fixture
def serving(world: World) -> World:
    """Version 1 serves, and a trigger says which window the hit rate is of."""
    world.apply(KPI)
    world.serve(world.version())
    return world


@pytest.fixture
def told(world: World) -> Earnings:
    return told_of(world)


@pytest.fixture
def metered(world: World, told: Earnings) -> EarningsGauges:
    return EarningsGauges(world.recommenders, world.routes, told, world.clock)


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
def test_each_version_that_answered_has_its_own_hit_rate(serving: World, told: Earnings, metered: EarningsGauges) -> None:
    serving.version()
    serving.version()
    serving.answer(1, 20, hits=5)
    serving.answer(2, 10, hits=9)
    serving.clock.pass_by(minutes=31)
    assert hit_rates(told, timedelta(hours=1)) == {1: (20, 5), 2: (10, 9)}
    metered.export()
    for version, rate, answers in (("1", 0.25, 20), ("2", 0.9, 10)):
        labels = {"recommender": NAME, "version": version}
        assert REGISTRY.get_sample_value("eyas_hit_rate", labels) == rate
        assert REGISTRY.get_sample_value("eyas_hit_rate_answers", labels) == answers


def test_kpis_of_an_unknown_recommender_are_not_found(told: Earnings) -> None:
    with pytest.raises(NotFound, match="nobody"):
        told.of("nobody", timedelta(hours=1))


def test_a_version_that_no_longer_answers_says_so_on_metrics(serving: World, metered: EarningsGauges) -> None:
    serving.answer(1, 20, hits=5)
    serving.clock.pass_by(minutes=31)
    metered.export()
    serving.clock.pass_by(hours=5)
    metered.export()
    assert not REGISTRY.get_sample_value("eyas_hit_rate_answers", {"recommender": NAME, "version": "1"})


def test_one_that_nobody_knows_is_said_once_and_stops_no_other(
    serving: World, metered: EarningsGauges, caplog: pytest.LogCaptureFixture
) -> None:
    serving.routes.put("a-stranger", Route(1), serving.clock.now(), "ada", "a test")
    serving.answer(1, 20, hits=5)
    serving.clock.pass_by(minutes=31)
    metered.export()
    metered.export()
    assert REGISTRY.get_sample_value("eyas_hit_rate", {"recommender": NAME, "version": "1"}) == 0.25
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "kpi gauges: update failed recommender=a-stranger error=no recommender is called 'a-stranger'"
    ]


@pytest.mark.requirement("G-13", "C-06")
def test_a_version_earns_apart_by_variant_and_slice(world: World, earnings: Earnings, gauges: EarningsGauges) -> None:
    slices = {"germany": "user.country == 'de'"}
    spec_now = world.recommenders.get(NAME).spec.model_copy(update={"monitor": Monitor(slices=slices)})
    world.recommenders.put(spec_now, world.clock.now(), "ada")
    answer(world, "a", {"kind": "click"}, slices=("germany", "gone"))
    answer(world, "b", slices=("germany",), variant="candidate")
    answer(world, "c", {"kind": "purchase"}, fallback="unknown user")
    answer(world, "d", fallback="front end")
    world.clock.time += ATTRIBUTION + timedelta(seconds=1)
    (one,) = earnings.of(NAME, timedelta(minutes=5)).values()
    counted = {name: (part.earned.answers, part.earned.hits) for name, part in {**one.variants, **one.slices}.items()}
    assert counted == {
        "stable": (3, 2),
        "candidate": (1, 0),
        "germany": (2, 1),
        "gone": (1, 1),
        "known_users": (2, 1),
        "new_users": (1, 1),
    }
    gauges.export()
    assert [gauge("eyas_slice_hit_rate", slice=name) for name in ("germany", "new_users", "known_users")] == [0.5, 1.0, 0.5]
    assert gauge("eyas_slice_hit_rate", slice="gone") is None, "what the spec no longer names is no label"
    assert [gauge("eyas_slice_conversion", slice="new_users"), gauge("eyas_slice_answers", slice="germany")] == [1.0, 2]
    assert [gauge("eyas_variant_hit_rate", variant=name) for name in ("stable", "candidate")] == [2 / 3, 0]
    assert gauge("eyas_variant_answers", variant="stable") == 3


@pytest.mark.requirement("G-13", "C-06")
def test_how_far_a_version_reaches_is_told_and_looked_at_now_and_then(world: World, earnings: Earnings, gauges: EarningsGauges) -> None:
    size = CatalogueSizes(world.registry, world.artifacts).of(NAME, 1)
    answer(world, "a", {"kind": "click"}, items=(1, 2))
    answer(world, "b", items=(2, 3))
    world.clock.time += ATTRIBUTION + timedelta(seconds=1)
    world.like([2])
    (one,) = earnings.of(NAME, timedelta(minutes=5)).values()
    # one positive before the window's end, of item 7: all items shown are liked once of 1 + size
    expected = ItemSpread(2, 3 / size, math.log2(1 + size))
    assert (one.spread.looked, one.spread.coverage) == (2, expected.coverage)
    assert one.spread.novelty == pytest.approx(expected.novelty)
    gauges.export()
    assert gauge("eyas_coverage") == 3 / size
    assert gauge("eyas_novelty") == pytest.approx(math.log2(1 + size))
    answer(world, "c", items=(4, 5))
    world.clock.time += ATTRIBUTION + timedelta(seconds=1)
    gauges.export()
    assert gauge("eyas_coverage") == 2 / size
    spread = gauge("eyas_coverage")
    world.clock.time += SPREAD_EVERY / 2
    gauges.export()
    assert gauge("eyas_coverage") == spread


def test_a_version_whose_files_are_gone_is_measured_without_its_reach(
    world: World, earnings: Earnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(world, "a", {"kind": "click"})
    world.clock.time += ATTRIBUTION + timedelta(seconds=1)

    def gone(_: object) -> bytes:
        raise NotFound("collected")

    monkeypatch.setattr(world.artifacts, "read", gone)
    (one,) = earnings.of(NAME, timedelta(minutes=5)).values()
    assert (one.earned.answers, one.spread) == (1, ItemSpread(1, None, None))


@pytest.mark.requirement("G-13")
def test_a_series_is_of_windows_that_end_a_step_apart(serving: World, told: Earnings) -> None:
    """Each window is what the KPIs are at its end."""
    began = serving.clock.now()
    serving.answer(1, 60, hits=30, seconds=60)
    serving.version()
    serving.answer(2, 30, hits=3, seconds=60)
    serving.clock.time += ATTRIBUTION
    window, step = timedelta(minutes=20), timedelta(minutes=5)
    found = told.series(NAME, window, step, 30)
    now = serving.clock.now()
    assert [one.ends for one in found[2]][-1] <= now - ATTRIBUTION
    assert found.keys() == {1, 2}
    for version, line in found.items():
        assert [later.ends - sooner.ends for sooner, later in itertools.pairwise(line)] == [step] * (len(line) - 1)
        for point in line:
            serving.clock.time = point.ends + ATTRIBUTION
            assert told.of(NAME, window)[version].earned == point.earning.earned
    assert sum(one.earning.earned.answers for one in found[1]) > 60, "windows overlap"
    assert found[1][0].ends <= began + window
    serving.clock.time = now
    assert told.series(NAME, window, step, 1)[2] == found[2][-1:]


def test_a_series_is_bounded(serving: World, told: Earnings, subtests: pytest.Subtests) -> None:
    for window, step, points in ((10, 3, 1), (3, 10, 1), (10, 10, 0), (10, 10, 501), (60 * 24, 1, 561)):
        with subtests.test(window=window, step=step, points=points), pytest.raises(Invalid, match=r"step|points"):
            told.series(NAME, timedelta(minutes=window), timedelta(minutes=step), points)
