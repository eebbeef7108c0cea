"""The life of a recommender's models: hit rates by version over time, and how sure they are."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from services.monitor import kpi_history as module
from services.monitor.kpi_history import KpiHistories, KpiPeriod, LifeQuery, RecentKpis, bounds, telling
from shared.contracts.events import Impression, Interaction
from shared.domain.errors import Invalid
from shared.domain.sequential_test import VariantSample
from tests.unit.monitor.conftest import ATTRIBUTION, NAME, NOW, World

pytestmark = pytest.mark.requirement("C-09")


@pytest.fixture
def lives(world: World) -> KpiHistories:
    world.apply()
    world.serve(world.version())
    return KpiHistories(world.recommenders, world.routes, world.sightings, world.clock)


def answered(world: World, version: int, users: range, hits: int, each: int = 1) -> None:
    """So many answers for each, all at this moment; the first users like all of theirs."""
    at, impressions, likes = world.clock.now(), [], []
    for user in users:
        for number in range(each):
            id = f"{version}-{user}-{number}-{at.timestamp()}"
            shown = {"request_id": id, "recommender": NAME, "user": user, "version": version, "variant": "stable", "generation": 1}
            impressions.append(Impression(**shown, step=-1, items=(7,), at=at))
            if user < users.start + hits:
                likes.append(Interaction(recommender=NAME, user=user, item=7, request_id=id, at=at))
    world.events.impressions(impressions)
    world.events.interactions(likes, [True] * len(likes), ATTRIBUTION)


def test_each_version_has_its_stretches_of_users(world: World, lives: KpiHistories) -> None:
    answered(world, 1, range(10), 4, each=3)
    world.clock.pass_by(minutes=10)
    world.serve(world.version())
    answered(world, 2, range(20), 5)
    world.clock.pass_by(minutes=40)
    life = lives.of(NAME, LifeQuery(5))
    assert (life.since, life.until, life.every, life.left_out) == (
        NOW,
        NOW + timedelta(minutes=40, seconds=1),
        timedelta(minutes=10),
        0,
    )
    assert life.newest == NOW + timedelta(minutes=10)
    told = {
        number: [(one.since - NOW, one.sample.users, one.sample.answers, one.sample.mean) for one in line]
        for number, line in life.versions.items()
    }
    assert told == {1: [(timedelta(0), 10, 30, 0.4)], 2: [(timedelta(minutes=10), 20, 20, 0.25)]}


def test_answers_whose_attribution_is_open_are_not_there_yet(world: World, lives: KpiHistories) -> None:
    answered(world, 1, range(10), 4)
    world.clock.pass_by(minutes=29)
    assert lives.of(NAME, LifeQuery(5)).versions == {}
    world.clock.pass_by(minutes=2)
    assert list(lives.of(NAME, LifeQuery(5)).versions) == [1]


def test_versions_that_served_at_other_times_are_not_asked_for(world: World, lives: KpiHistories) -> None:
    answered(world, 1, range(10), 4)
    world.clock.pass_by(hours=2)
    world.serve(world.version())
    answered(world, 2, range(10), 4)
    world.clock.pass_by(hours=1)
    assert list(lives.of(NAME, LifeQuery(10)).versions) == [1, 2]
    assert list(lives.of(NAME, LifeQuery(10, since=NOW + timedelta(hours=2))).versions) == [2]
    assert list(lives.of(NAME, LifeQuery(10, NOW, NOW + timedelta(hours=1))).versions) == [1]


def test_what_a_version_earned_until_it_was_taken_back_is_told_though_nobody_has_come_since(world: World, lives: KpiHistories) -> None:
    answered(world, 1, range(10), 4)
    world.clock.pass_by(hours=1)
    world.serve(world.version())
    world.clock.pass_by(hours=1)
    answered(world, 2, range(20), 2)
    world.clock.pass_by(hours=1)
    world.serve(1)
    world.clock.pass_by(hours=5)
    life = lives.of(NAME, LifeQuery(10))
    assert {number: sum(stretch.sample.users for stretch in line) for number, line in life.versions.items()} == {1: 10, 2: 20}
    assert (life.newest, life.until) == (NOW, NOW + timedelta(hours=2, minutes=30, seconds=1))
    answered(world, 1, range(10), 4)
    world.clock.pass_by(hours=1)
    assert lives.of(NAME, LifeQuery(10)).until == NOW + timedelta(hours=8, minutes=30, seconds=1)


def test_of_many_versions_the_last_ones_are_told(world: World, lives: KpiHistories, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VERSIONS", 2)
    for number in (1, 2, 3):
        if number > 1:
            world.clock.pass_by(minutes=5)
            world.serve(world.version())
        answered(world, number, range(5), 1)
    world.clock.pass_by(hours=1)
    life = lives.of(NAME, LifeQuery(10))
    assert (list(life.versions), life.left_out) == ([2, 3], 1)


def test_what_is_counted_in_parts_is_what_is_counted_at_once(world: World, lives: KpiHistories) -> None:
    for minutes in range(40):
        answered(world, 1, range(minutes % 7), 2)
        world.clock.pass_by(minutes=1)
        narrow = lives.of(NAME, LifeQuery(12, NOW, NOW + timedelta(hours=2)))
        anew = KpiHistories(world.recommenders, world.routes, world.sightings, world.clock).of(
            NAME, LifeQuery(12, NOW, NOW + timedelta(hours=2))
        )
        assert narrow == anew


def test_of_one_that_nobody_asks_any_more_the_time_of_its_life_is_told(world: World, lives: KpiHistories) -> None:
    world.clock.pass_by(minutes=20)
    answered(world, 1, range(10), 4)
    world.clock.pass_by(days=10)
    life = lives.of(NAME, LifeQuery(10))
    assert life.until == NOW + timedelta(minutes=50, seconds=1)
    assert sum(stretch.sample.users for stretch in life.versions[1]) == 10
    assert lives.of(NAME, LifeQuery(10, window=timedelta(minutes=35))).since == NOW + timedelta(minutes=15)
    assert lives.of(NAME, LifeQuery(10, window=timedelta(days=9))).since == NOW, "it wasn't there before"


def test_of_many_what_serves_is_told_as_it_is_told_of_one(world: World, lives: KpiHistories) -> None:
    world.clock.pass_by(minutes=20)
    answered(world, 1, range(10), 4)
    world.serve(world.version())
    world.clock.pass_by(minutes=20)
    answered(world, 2, range(20), 5)
    world.clock.pass_by(days=1)
    known, week = [world.recommenders.get(NAME)], timedelta(days=7)
    (told,) = lives.lately(known, 24, week).values()
    alone = lives.of(NAME, LifeQuery(24, window=week))
    assert (told.newest, list(told.stretches)) == (alone.newest, list(alone.versions[2]))
    assert sum(one.sample.users for one in told.stretches) == 20


def test_what_serves_and_was_never_asked_has_earned_nothing(world: World, lives: KpiHistories) -> None:
    assert lives.lately([world.recommenders.get(NAME)], 24, timedelta(days=7)) == {NAME: RecentKpis(None, ())}


def test_what_was_counted_stands_the_longer_the_more_it_took(world: World, lives: KpiHistories, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks, counts, blocks = [0.0], [], world.sightings.blocks

    def slow(*asked: Any) -> Any:
        counts.append(asked)
        ticks[0] += 3.0
        return blocks(*asked)

    monkeypatch.setattr(module.time, "monotonic", lambda: ticks[0])
    monkeypatch.setattr(world.sightings, "blocks", slow)
    answered(world, 1, range(10), 4)
    world.clock.pass_by(hours=2)
    for at, times in ((0, 1), (100, 1), (299, 1), (301, 2)):
        ticks[0] = max(ticks[0], float(at))
        assert sum(stretch.sample.users for stretch in lives.of(NAME, LifeQuery(10)).versions[1]) == 10
        assert len(counts) == times


def test_a_time_that_ends_before_it_begins_is_refused(world: World, lives: KpiHistories) -> None:
    with pytest.raises(Invalid, match="since"):
        lives.of(NAME, LifeQuery(10, since=NOW + timedelta(hours=1)))
    assert lives.of(NAME, LifeQuery(10)).versions == {}, "of a recommender that was made just now"


@pytest.mark.parametrize("rate, users, most", [(0.05, 40, 1), (0.3, 40, 1), (0.3, 25, 8), (0.8, 300, 5)])
def test_the_interval_holds_what_is_true_of_users_however_many_answers_they_get(rate: float, users: int, most: int) -> None:
    """Users whose own rates differ, each with another number of answers: an interval over answers would be too narrow for them."""
    chance, held, rounds = random.Random(7), 0, 600
    for _ in range(rounds):
        values = []
        for _ in range(users):
            own = chance.betavariate(rate * 2, (1 - rate) * 2)
            answers = chance.randint(1, most)
            values.append(sum(chance.random() < own for _ in range(answers)) / answers)
        low, high = bounds(sum(values) / users, users)
        held += low <= rate <= high
    assert held / rounds >= 0.93


USER_COUNTS = [((), None), ((3,), 0), ((3, 9, 2), 1), ((40, 31, 2), 1), ((29, 30), 1), ((30, 29), 0)]


def test_what_is_said_in_one_figure_is_the_newest_stretch_with_users_enough(subtests: pytest.Subtests) -> None:
    for users, index in USER_COUNTS:
        with subtests.test(users=users):
            line = [
                KpiPeriod(NOW + n * timedelta(hours=1), NOW, VariantSample(count, 0.0, 0.0, count, 0, 0)) for n, count in enumerate(users)
            ]
            assert telling(line) == (None if index is None else line[index])


def test_bounds_are_shares_and_hold_the_mean() -> None:
    assert bounds(0.0, 0) == (0.0, 1.0)
    for users in (1, 5, 1000):
        for mean in (0.0, 0.1, 0.5, 1.0):
            low, high = bounds(mean, users)
            assert 0 <= low <= mean + 1e-12 and mean - 1e-12 <= high <= 1
    assert bounds(0.5, 1000)[1] - bounds(0.5, 1000)[0] < 0.07
