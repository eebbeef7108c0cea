"""What the monitor says of a serving version: nothing while there is too little, and then what really happened."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from shared.domain.errors import NotFound
from shared.domain.route import Route
from shared.ports import HitRate, Signals
from tests.unit.monitor.conftest import ATTRIBUTION, COMEDIES, DRAMAS, NAME, World

DRIFT: dict[str, Any] = {"drift": {"psi": 0.2, "min_events": 100}}
KPI: dict[str, Any] = {"kpi": {"hit_rate": "-10%", "window": "1h", "min_answers": 50}}
MIXED = [film for pair in zip(DRAMAS, COMEDIES, strict=True) for film in pair]


@pytest.fixture
def serving(world: World) -> World:
    """Version 1 serves, and both triggers are set."""
    world.apply(DRIFT, KPI)
    world.serve(world.version())
    return world


# Drift


@pytest.mark.requirement("C-03")
def test_there_is_no_drift_while_there_are_too_few_likes_for_two_samples(serving: World) -> None:
    serving.like(MIXED)
    serving.like(MIXED[:99])
    assert serving.monitor.drift(NAME) == {}
    serving.like(MIXED[:1])
    assert set(serving.monitor.drift(NAME)) == {"genres", "age"}


def test_who_goes_on_liking_the_same_does_not_drift(serving: World) -> None:
    for _ in range(5):
        serving.like(MIXED)
    assert serving.monitor.drift(NAME) == pytest.approx({"genres": 0, "age": 0})


@pytest.mark.requirement("C-03", "C-06")
def test_drift_rises_while_likes_move_to_another_genre_and_in_that_feature_alone(serving: World) -> None:
    serving.like(MIXED)
    found = []
    for moved in (0, 20, 50):
        serving.like([*DRAMAS[moved:], *COMEDIES, *COMEDIES[:moved]])
        drift = serving.monitor.drift(NAME)
        found.append(drift["genres"])
        assert drift["age"] < 0.01
        assert REGISTRY.get_sample_value("eyas_drift_psi", {"recommender": NAME, "feature": "genres"}) == drift["genres"]
    assert found == sorted(found)
    assert found[0] < 0.01
    assert found[1] > 0.05
    assert found[2] > 1


def test_it_is_the_first_likes_that_the_newest_are_held_against(serving: World) -> None:
    serving.like(MIXED)
    serving.like(COMEDIES)
    serving.like(COMEDIES)
    moved = serving.monitor.drift(NAME)["genres"]
    serving.like(MIXED)
    assert moved > 1
    assert serving.monitor.drift(NAME)["genres"] == pytest.approx(0)


def test_likes_from_before_the_version_served_do_not_count(world: World) -> None:
    world.apply(DRIFT)
    number = world.version()
    for _ in range(3):
        world.like(COMEDIES)
    world.clock.pass_by(seconds=1)
    world.serve(number)
    assert world.monitor.drift(NAME) == {}
    world.like(MIXED)
    world.like(MIXED)
    assert world.monitor.drift(NAME)["genres"] == pytest.approx(0)


def test_what_users_did_not_like_does_not_count(serving: World) -> None:
    serving.like(MIXED)
    serving.like(MIXED)
    serving.like([*COMEDIES] * 4, positive=False)
    assert serving.monitor.drift(NAME)["genres"] == pytest.approx(0)


def test_a_new_stable_version_starts_anew(serving: World) -> None:
    serving.like(MIXED)
    serving.like([*COMEDIES] * 2)
    assert serving.monitor.drift(NAME)["genres"] > 1
    serving.clock.pass_by(seconds=1)
    serving.serve(serving.version())
    assert serving.monitor.drift(NAME) == {}


def test_a_canary_beside_it_does_not_start_anew(serving: World) -> None:
    serving.like(MIXED)
    serving.like([*COMEDIES] * 2)
    before = serving.monitor.drift(NAME)
    serving.serve(1, candidate=serving.version(), weight=0.2)
    assert serving.monitor.drift(NAME) == before


def test_items_with_several_values_count_for_each_of_them(world: World) -> None:
    world.apply(DRIFT)
    both: dict[int, tuple[str, ...]] = {film: ("drama", "comedy") if film in DRAMAS else ("comedy",) for film in (*DRAMAS, *COMEDIES)}
    world.serve(world.version(both))
    world.like(MIXED)
    world.like([*DRAMAS] * 2)
    # comedy 100 and drama 50 became 100 and 100: psi of (2/3, 1/3) against (1/2, 1/2)
    assert world.monitor.drift(NAME)["genres"] == pytest.approx(0.1155, abs=1e-4)


def test_films_that_the_catalogue_does_not_know_are_drift_too(serving: World) -> None:
    serving.like(MIXED)
    serving.like(MIXED)
    before = serving.monitor.drift(NAME)
    serving.like(range(10_000, 10_030))
    found = serving.monitor.drift(NAME)
    assert found["genres"] > before["genres"] + 0.25


def test_without_a_trigger_drift_is_measured_all_the_same(world: World) -> None:
    world.apply()
    world.serve(world.version())
    for _ in range(19):
        world.like(MIXED)
    assert world.monitor.drift(NAME) == {}
    world.like(MIXED)
    assert world.monitor.drift(NAME) == pytest.approx({"genres": 0, "age": 0})


def test_the_catalogue_is_read_once_for_each_version(serving: World) -> None:
    serving.like(MIXED)
    serving.like(MIXED)
    before = serving.monitor.drift(NAME)
    file = serving.registry.get(NAME, 1).files["catalogue.npz"]
    (serving.folder / "artifacts" / "blobs" / file.sha256[:2] / file.sha256).unlink()
    assert serving.monitor.drift(NAME) == before


def test_what_does_not_serve_says_nothing(world: World) -> None:
    world.apply(DRIFT, KPI)
    world.like(MIXED)
    world.like(MIXED)
    assert world.monitor.drift(NAME) == {}
    assert world.monitor.signals(NAME) == Signals({})


# Hit rates


@pytest.mark.requirement("G-13")
def test_the_first_hit_rate_and_the_newest_are_given_when_both_rest_on_enough(serving: World) -> None:
    serving.answer(1, 50, hits=30)
    serving.clock.pass_by(hours=3)
    serving.answer(1, 60, hits=15)
    serving.clock.pass_by(minutes=31)
    found = serving.monitor.signals(NAME)
    assert (found.baseline, found.current) == (0.6, 0.25)


@pytest.mark.parametrize(("first", "newest"), [(49, 0), (0, 49), (60, 49)])
def test_too_few_answers_say_nothing(serving: World, first: int, newest: int) -> None:
    serving.answer(1, first, hits=0)
    serving.clock.pass_by(hours=3)
    serving.answer(1, newest, hits=0)
    serving.clock.pass_by(minutes=31)
    found = serving.monitor.signals(NAME)
    assert (found.baseline, found.current) == (None, None)


def test_answers_whose_attribution_window_is_open_do_not_count(serving: World) -> None:
    serving.answer(1, 60, hits=60)
    serving.clock.pass_by(hours=2)
    serving.answer(1, 50, hits=0)
    serving.clock.time += ATTRIBUTION - timedelta(seconds=1)
    assert serving.monitor.signals(NAME).current is None
    serving.clock.pass_by(seconds=2)
    assert serving.monitor.signals(NAME).current == 0


def test_a_version_younger_than_the_window_says_nothing(serving: World) -> None:
    serving.answer(1, 100, hits=50)
    serving.clock.pass_by(minutes=80)
    assert serving.monitor.signals(NAME).baseline is None
    serving.answer(1, 60, hits=0)
    serving.clock.pass_by(minutes=31)
    assert serving.monitor.signals(NAME).baseline == 1.0


def test_answers_of_another_version_do_not_count(serving: World) -> None:
    serving.answer(1, 50, hits=25)
    serving.answer(2, 50, hits=50)
    serving.clock.pass_by(hours=3)
    serving.answer(1, 50, hits=25)
    serving.answer(2, 50, hits=0)
    serving.clock.pass_by(minutes=31)
    found = serving.monitor.signals(NAME)
    assert (found.baseline, found.current) == (0.5, 0.5)


def test_the_baseline_is_what_it_earned_as_the_stable_version_not_as_the_candidate(serving: World) -> None:
    number = serving.version()
    serving.serve(1, candidate=number, weight=0.2)
    serving.answer(number, 50, hits=0)
    serving.serve(number)
    serving.answer(number, 50, hits=40)
    serving.clock.pass_by(hours=3)
    serving.answer(number, 50, hits=20)
    serving.clock.pass_by(minutes=31)
    found = serving.monitor.signals(NAME)
    assert (found.baseline, found.current) == (0.8, 0.4)


def test_without_the_trigger_hit_rates_are_not_compared(world: World) -> None:
    world.apply(DRIFT)
    world.serve(world.version())
    world.answer(1, 50, hits=30)
    world.clock.pass_by(hours=3)
    world.answer(1, 60, hits=15)
    world.clock.pass_by(minutes=31)
    found = world.monitor.signals(NAME)
    assert (found.baseline, found.current) == (None, None)


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
