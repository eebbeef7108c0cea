"""Requests that come together are done together; nobody waits for company, and nobody waits too long."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait

import pytest

from services.gateway import Question
from services.gateway.conveyor import Conveyor
from shared.domain.errors import NotFound, Overloaded, Unavailable
from shared.telemetry import metrics
from shared.testing.waiting import wait_for
from tests.support.gateway_world import World


class Work:
    """Answers with the double; remembers what it was given at once. May be held up."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.may_go = threading.Event()
        self.may_go.set()

    def __call__(self, asks: Sequence[int]) -> Sequence[int | Exception]:
        self.batches.append(list(asks))
        assert self.may_go.wait(30)
        if 13 in asks:
            raise ZeroDivisionError("thirteen")
        return [NotFound(f"no {one}") if one < 0 else 2 * one for one in asks]


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def conveyor(work: Work) -> Iterator[Conveyor[int, int]]:
    made = Conveyor[int, int](work, hands=1, together=4)
    yield made
    work.may_go.set()
    made.close()


def test_one_that_finds_a_free_hand_is_taken_up_alone(work: Work, conveyor: Conveyor[int, int]) -> None:
    assert [conveyor.submit(one).result(10) for one in (1, 2)] == [2, 4]
    assert work.batches == [[1], [2]]


def held_up(work: Work, conveyor: Conveyor[int, int], asks: Sequence[int]) -> list[Future[int]]:
    """The first is under way, the others wait."""
    work.may_go.clear()
    first = conveyor.submit(0)
    wait_for(lambda: work.batches == [[0]])
    return [first, *(conveyor.submit(one) for one in asks)]


def test_those_that_come_meanwhile_are_done_together_in_their_order_a_bounded_number_at_once(
    work: Work, conveyor: Conveyor[int, int]
) -> None:
    futures = held_up(work, conveyor, [1, 2, 3, 4, 5])
    work.may_go.set()
    assert [one.result(10) for one in futures] == [0, 2, 4, 6, 8, 10]
    assert work.batches == [[0], [1, 2, 3, 4], [5]]


def test_what_goes_wrong_for_one_is_told_to_that_one(work: Work, conveyor: Conveyor[int, int]) -> None:
    futures = held_up(work, conveyor, [1, -2, 3])
    work.may_go.set()
    wait(futures, 10)
    assert [futures[1].result(), futures[3].result()] == [2, 6]
    with pytest.raises(NotFound, match="no -2"):
        futures[2].result()


def test_what_nobody_foresaw_is_told_to_all_of_the_batch_and_the_next_one_is_done(work: Work, conveyor: Conveyor[int, int]) -> None:
    futures = held_up(work, conveyor, [13, 1])
    work.may_go.set()
    for one in futures[1:]:
        with pytest.raises(ZeroDivisionError, match="thirteen"):
            one.result(10)
    assert conveyor.submit(4).result(10) == 8


def test_several_hands_share_what_waits(work: Work) -> None:
    conveyor = Conveyor[int, int](work, hands=2, together=100)
    work.may_go.clear()
    futures = [conveyor.submit(0)]
    wait_for(lambda: len(work.batches) == 1)
    futures.append(conveyor.submit(1))
    wait_for(lambda: len(work.batches) == 2)
    futures += [conveyor.submit(one) for one in range(2, 12)]
    work.may_go.set()
    assert [one.result(10) for one in futures] == [2 * one for one in range(12)]
    assert max(map(len, work.batches)) <= 5
    conveyor.close()


def test_one_that_would_wait_too_long_is_refused_at_once(work: Work, conveyor: Conveyor[int, int]) -> None:
    futures = held_up(work, conveyor, range(100, 100 + conveyor.most))
    with pytest.raises(Overloaded, match=f"{conveyor.most} requests wait already"):
        conveyor.submit(99)
    work.may_go.set()
    assert [one.result(10) for one in futures[1:]] == [2 * one for one in range(100, 100 + len(futures) - 1)]
    assert conveyor.submit(99).result(10) == 198


def test_how_many_may_wait_follows_from_how_fast_they_are_done(work: Work) -> None:
    conveyor = Conveyor[int, int](work, hands=2, wait=0.5)
    least = conveyor.most
    conveyor._pace = 0.001
    assert conveyor.most == 1000
    conveyor._pace = 1.0
    assert conveyor.most == least


def test_one_that_nobody_waits_for_any_more_is_not_done(work: Work, conveyor: Conveyor[int, int]) -> None:
    futures = held_up(work, conveyor, [1, 2])
    assert futures[1].cancel()
    work.may_go.set()
    assert futures[2].result(10) == 4
    assert work.batches == [[0], [2]]


def test_closing_answers_who_waits_and_takes_in_nobody_else(work: Work, conveyor: Conveyor[int, int]) -> None:
    futures = held_up(work, conveyor, [1, 2])
    closing = threading.Thread(target=conveyor.close)
    closing.start()
    wait_for(lambda: conveyor._closing)
    with pytest.raises(Unavailable, match="closing"):
        conveyor.submit(3)
    work.may_go.set()
    closing.join(10)
    assert [one.result(10) for one in futures] == [0, 2, 4]


def test_a_gateway_counts_the_requests_that_it_refuses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = world.gateway()
    monkeypatch.setattr(Conveyor, "most", property(lambda _: 0))
    before = metrics.REFUSED._value.get()
    with pytest.raises(Overloaded):
        gateway.submit(Question("m", 7))
    assert metrics.REFUSED._value.get() == before + 1
