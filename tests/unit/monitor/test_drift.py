"""What users like now against what they liked when the version was new, over real stores."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from services.monitor.retrain_signals import Monitor
from shared.domain.drift.reading import DriftReading
from shared.ports import Signals
from tests.unit.monitor.conftest import COMEDIES, DRAMAS, NAME, World

DRIFT: dict[str, Any] = {"drift": {"psi": 0.2, "min_events": 100}}
DRAMAS_TWICE, COMEDIES_TWICE = [*DRAMAS] * 2, [*COMEDIES] * 2
MIXED = [film for pair in zip(DRAMAS, COMEDIES, strict=True) for film in pair]


@pytest.fixture
def serving(world: World) -> World:
    world.apply(DRIFT)
    world.serve(world.version())
    return world


def readings(monitor: Monitor) -> dict[str, DriftReading]:
    look = monitor.drift(NAME)
    return {one.key: one for one in look.readings} if look else {}


def psi(world: World, feature: str = "genres") -> float:
    return readings(world.monitor)[f"psi/{feature}"].size


@pytest.mark.requirement("C-03")
def test_there_is_no_drift_while_there_are_too_few_likes_for_two_samples(serving: World) -> None:
    serving.like(MIXED)
    serving.like(MIXED[:99])
    assert serving.monitor.drift(NAME) is None
    serving.like(MIXED[:1])
    assert set(readings(serving.monitor)) == {"psi/genres", "psi/age", "new/film", "nulls/genres", "nulls/age"}


def test_who_goes_on_liking_the_same_does_not_drift(serving: World) -> None:
    for _ in range(5):
        serving.like(MIXED)
        assert all(one.chance == 1 and one.size == 0 for one in readings(serving.monitor).values())


@pytest.mark.requirement("U-11")
def test_a_version_that_serves_for_longer_than_events_are_kept_is_compared_with_the_first_kept_day(serving: World) -> None:
    """Whether older likes are deleted yet makes no difference."""
    serving.like(DRAMAS_TWICE)
    serving.clock.pass_by(days=350)
    serving.like(MIXED)
    serving.clock.pass_by(days=49)
    serving.like(MIXED)
    assert psi(serving) > 1
    serving.clock.pass_by(days=2)
    serving.like(MIXED)
    assert psi(serving) == 0


@pytest.mark.requirement("C-03", "C-06", "G-05")
def test_drift_rises_while_likes_move_to_another_genre_and_in_that_feature_alone(serving: World) -> None:
    serving.like(MIXED)
    found = []
    for moved in (0, 20, 50):
        serving.like([*DRAMAS[moved:], *COMEDIES, *COMEDIES[:moved]])
        serving.monitor.export()
        now = readings(serving.monitor)
        found.append(now["psi/genres"])
        assert now["psi/age"].size < 0.01
        labels = {"recommender": NAME, "detector": "psi", "feature": "genres"}
        assert REGISTRY.get_sample_value("eyas_drift", labels) == now["psi/genres"].size
        assert REGISTRY.get_sample_value("eyas_drift_chance", labels) == now["psi/genres"].chance
    assert [one.size for one in found] == sorted(one.size for one in found)
    assert found[0].size == 0
    assert 0.02 < found[1].size < 1
    assert found[2].size > 1
    assert found[2].chance < 1e-9
    drama, comedy = sorted(found[2].moved, key=lambda one: one.after)
    assert (drama.value, drama.after, comedy.value) == ("drama", 0, "comedy")
    assert (drama.before, comedy.after) == pytest.approx((0.5, 1))


def test_the_first_likes_of_a_version_are_read_once(serving: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not change while the version serves, so later looks read the newest likes only."""
    read, since = serving.sightings.likes, []

    def likes(recommender: str, start: Any, most: int, newest: bool) -> Any:
        since.extend([start] if not newest else [])
        return read(recommender, start, most, newest=newest)

    monkeypatch.setattr(serving.sightings, "likes", likes)
    for _ in range(4):
        serving.like(MIXED)
        serving.monitor.drift(NAME)
    assert len(since) > 3
    assert since.count(min(since)) == 1


def test_it_is_the_first_likes_that_the_newest_are_held_against(serving: World) -> None:
    serving.like(MIXED)
    serving.like(COMEDIES)
    serving.like(COMEDIES)
    assert psi(serving) > 1
    serving.like(MIXED)
    assert psi(serving) == 0


def live_a_day(world: World, *hours: list[int]) -> None:
    """Each stretch of the day is as long as the others, and likes 100 films."""
    for films in hours:
        start = world.clock.time
        world.like(films)
        world.clock.time = start + timedelta(days=1) / len(hours)


@pytest.mark.requirement("C-03", "G-05")
def test_what_follows_the_hour_is_compared_with_the_same_hours_of_the_first_day(world: World) -> None:
    """Dramas by day, comedies at night."""
    world.apply({"drift": DRIFT["drift"] | {"season": "day"}})
    world.serve(world.version())
    live_a_day(world, DRAMAS_TWICE, COMEDIES_TWICE)
    waiting = world.monitor.drift(NAME)
    assert waiting is not None and waiting.readings == ()
    assert waiting.note == "waits for a full day to compare with: 12 h of 24 h have passed"
    for _ in range(3):
        for films in (DRAMAS_TWICE, COMEDIES_TWICE):
            world.like(films)
            assert psi(world) == 0, "with the same hours"
            world.clock.time += timedelta(hours=12, seconds=-100)
    world.like(COMEDIES_TWICE)
    assert psi(world) > 1, "comedies by day"
    assert world.watcher().drift(NAME) == world.monitor.drift(NAME), "and so after a restart"
    world.apply(DRIFT)
    world.clock.time += timedelta(hours=12, seconds=-100)
    world.like(COMEDIES_TWICE)
    assert psi(world) > 1, "without a season every night is drift"


def test_scores_that_follow_the_hour_are_compared_by_the_hour(world: World) -> None:
    world.apply({"drift": DRIFT["drift"] | {"season": "auto"}})
    world.serve(world.version())
    for _ in range(2):
        for high in (0.2, 0.6):
            start = world.clock.time
            for number in range(100):
                world.score(number, high + number / 1000)
            world.like(MIXED)
            world.clock.time = start + timedelta(hours=12)
    assert readings(world.monitor)["scores/scores"].size == 0


def test_likes_from_before_the_version_served_do_not_count(world: World) -> None:
    world.apply(DRIFT)
    number = world.version()
    for _ in range(3):
        world.like(COMEDIES)
    world.clock.pass_by(seconds=1)
    world.serve(number)
    assert world.monitor.drift(NAME) is None
    world.like(MIXED)
    world.like(MIXED)
    assert psi(world) == 0


def test_what_users_did_not_like_does_not_count(serving: World) -> None:
    serving.like(MIXED)
    serving.like(MIXED)
    serving.like([*COMEDIES] * 4, positive=False)
    assert psi(serving) == 0


def test_a_new_stable_version_starts_anew(serving: World) -> None:
    serving.like(MIXED)
    serving.like([*COMEDIES] * 2)
    assert psi(serving) > 1
    serving.monitor.export()
    serving.clock.pass_by(seconds=1)
    serving.serve(serving.version())
    assert serving.monitor.drift(NAME) is None
    serving.monitor.export()
    gone = {"recommender": NAME, "detector": "psi", "feature": "genres"}
    assert REGISTRY.get_sample_value("eyas_drift", gone) is None, "the last version's reading isn't this one's"


def test_a_canary_beside_it_does_not_start_anew(serving: World) -> None:
    serving.like(MIXED)
    serving.like([*COMEDIES] * 2)
    before = serving.monitor.drift(NAME)
    serving.serve(1, candidate=serving.version(), weight=0.2)
    assert serving.monitor.drift(NAME) == before


@pytest.mark.requirement("G-05")
def test_films_that_the_catalogue_does_not_know_are_new_and_no_other_feature_moves(serving: World) -> None:
    serving.like(MIXED)
    serving.like(MIXED)
    assert readings(serving.monitor)["new/film"].size == 0
    serving.like(range(10_000, 10_030))
    found = readings(serving.monitor)
    assert found["new/film"].size == pytest.approx(0.3)
    assert found["new/film"].chance < 1e-6
    assert found["psi/genres"].chance > 0.01


@pytest.mark.requirement("G-05")
def test_films_without_a_genre_are_missing_values(world: World) -> None:
    world.apply(DRIFT)
    world.serve(world.version({film: (("drama",) if film in DRAMAS else ()) for film in (*DRAMAS, *COMEDIES)}))
    world.like([*DRAMAS, *DRAMAS])
    world.like([*DRAMAS, *COMEDIES])
    found = readings(world.monitor)["nulls/genres"]
    assert found.size == pytest.approx(0.5)
    assert found.chance < 1e-6


def test_scores_shown_are_read_by_their_distribution(serving: World) -> None:
    for number in range(100):
        serving.score(number, 0.2 + number / 1000)
    serving.like(MIXED)
    for number in range(100):
        serving.score(number, 0.6 + number / 1000)
    serving.like(MIXED)
    found = readings(serving.monitor)["scores/scores"]
    assert found.size == 1
    assert found.chance < 1e-9
    assert (found.moved[0].before, found.moved[0].after) == (0.25, 0.65)


def test_a_look_stands_until_a_quarter_of_a_window_is_new(serving: World) -> None:
    serving.like(MIXED)
    serving.like(MIXED)
    first = serving.monitor.drift(NAME)
    serving.like(COMEDIES[:24])
    assert serving.monitor.drift(NAME) is first
    serving.like(COMEDIES[24:25])
    second = serving.monitor.drift(NAME)
    assert first is not None
    assert second is not None
    assert second.at == serving.clock.now() > first.at


def test_after_a_restart_it_looks_as_if_nothing_had_happened(serving: World) -> None:
    serving.like(MIXED)
    serving.like([*DRAMAS[20:], *COMEDIES, *COMEDIES[:20]])
    assert serving.watcher().drift(NAME) == serving.monitor.drift(NAME)


def test_without_a_trigger_drift_is_measured_all_the_same(world: World) -> None:
    world.apply()
    world.serve(world.version())
    for _ in range(19):
        world.like(MIXED)
    assert world.monitor.drift(NAME) is None
    world.like(MIXED)
    assert psi(world) == 0


def test_the_catalogue_is_read_once_for_each_version(serving: World) -> None:
    serving.like(MIXED)
    serving.like(MIXED)
    assert psi(serving) == 0
    file = serving.registry.get(NAME, 1).files["catalogue.npz"]
    (serving.folder / "artifacts" / "blobs" / file.sha256[:2] / file.sha256).unlink()
    serving.like(COMEDIES)
    assert psi(serving) > 0


def test_what_does_not_serve_says_nothing(world: World) -> None:
    world.apply(DRIFT)
    world.like(MIXED)
    world.like(MIXED)
    assert world.monitor.drift(NAME) is None
    assert world.monitor.signals(NAME) == Signals()
