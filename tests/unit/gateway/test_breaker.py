"""Who fails in a row is left alone for a while, longer each time; one call finds out for all."""

from __future__ import annotations

import pytest

from services.gateway.breaker import Breaker
from shared.domain.route import Route
from shared.telemetry import metrics


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def breaker(time: Time) -> Breaker:
    return Breaker(failures=3, pause=1.0, longest=5.0, now=time)


def break_(breaker: Breaker, key: str = "a") -> None:
    for _ in range(3):
        assert breaker.lets(key)
        breaker.failed(key)


def test_a_few_failures_in_a_row_break_it_and_others_are_untouched(breaker: Breaker) -> None:
    for _ in range(2):
        breaker.failed("a")
        breaker.failed("a")
        breaker.answered("a")
    assert breaker.lets("a")
    break_(breaker)
    assert not breaker.lets("a")
    assert breaker.lets("b")


def test_when_its_time_is_over_one_is_let_through_and_decides_for_all(breaker: Breaker, time: Time) -> None:
    break_(breaker)
    time.now += 1.0
    assert [breaker.lets("a") for _ in range(3)] == [True, False, False]
    breaker.answered("a")
    assert [breaker.lets("a") for _ in range(3)] == [True, True, True]


def test_pauses_grow_up_to_a_longest_one(breaker: Breaker, time: Time) -> None:
    break_(breaker)
    for pause in (1.0, 2.0, 4.0, 5.0, 5.0):
        time.now += pause - 0.01
        assert not breaker.lets("a")
        time.now += 0.01
        assert breaker.lets("a")
        breaker.failed("a")


def test_failures_of_calls_that_were_under_way_when_it_broke_make_no_pause_longer(breaker: Breaker, time: Time) -> None:
    break_(breaker)
    for _ in range(5):
        breaker.failed("a")
    time.now += 1.0
    assert breaker.lets("a")


@pytest.mark.requirement("G-03")
def test_a_version_that_fails_in_a_row_is_not_waited_for_and_scores_again_when_it_is_back(world) -> None:
    world.routes["m"] = Route(1, generation=1)
    gateway = world.gateway()
    gateway.refresh()
    gateway._scoring._breaker = Breaker(now=(time := Time()))
    world.scoring_fails = True
    answers = [gateway.recommend("m", 1) for _ in range(10)]
    assert {one.fallback for one in answers} == {"scoring unavailable"}
    assert len(world.feeds) == 3
    assert [one.bucket is None for one in world.shown] == [False] * 3 + [True] * 7
    world.scoring_fails = False
    assert gateway.recommend("m", 1).fallback == "scoring unavailable"
    time.now += 1.0
    assert [gateway.recommend("m", 1).fallback for _ in range(3)] == [None] * 3


def test_what_was_not_asked_is_counted(world) -> None:
    world.routes["m"] = Route(1, generation=1)
    gateway = world.gateway()
    gateway.refresh()
    world.scoring_fails = True
    before = metrics.UNASKED.labels("m", "1")._value.get()
    for _ in range(5):
        gateway.recommend("m", 1)
    assert metrics.UNASKED.labels("m", "1")._value.get() - before == 2
