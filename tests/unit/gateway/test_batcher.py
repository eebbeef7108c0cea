"""One bounded queue per key: requests that wait together are processed together, and a slow key delays no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait

import pytest

from services.gateway.batcher import Batcher, _Queue
from services.gateway.thread_cache import ThreadCache
from shared.domain.errors import NotFound, Overloaded, Unavailable
from shared.testing.waiting import wait_for


class Work:
    """Answers with the double; remembers what it was given at once. May be held up."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.standing_still: set[int] = set()
        """Batches with one of these wait until they may go."""

    def __call__(self, asks: Sequence[int]) -> Sequence[int | Exception]:
        self.batches.append(list(asks))
        if self.standing_still & set(asks):
            self.may_go.clear()
            assert self.may_go.wait(30)
        elif not self.standing_still:
            assert self.may_go.wait(30)
        if 13 in asks:
            raise ZeroDivisionError("thirteen")
        return [NotFound(f"no {one}") if one < 0 else 2 * one for one in asks]


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def batcher(work: Work) -> Iterator[Batcher[str, int]]:
    made = Batcher[str, int](work, in_flight=1, batch=4)
    yield made
    work.may_go.set()
    made.close()


def test_one_that_finds_a_free_hand_is_taken_up_alone(work: Work, batcher: Batcher[str, int]) -> None:
    assert [batcher.submit("a", one).result(10) for one in (1, 2)] == [2, 4]
    assert work.batches == [[1], [2]]


def threads(name: str) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == name]


def held_up(work: Work, batcher: Batcher[str, int], asks: Sequence[int]) -> list[Future[int]]:
    """The first is under way, the others wait."""
    work.may_go.clear()
    first = batcher.submit("a", 0)
    wait_for(lambda: work.batches == [[0]])
    return [first, *(batcher.submit("a", one) for one in asks)]


def test_those_that_come_meanwhile_are_done_together_in_their_order_a_bounded_number_at_once(
    work: Work, batcher: Batcher[str, int]
) -> None:
    futures = held_up(work, batcher, [1, 2, 3, 4, 5])
    work.may_go.set()
    assert [one.result(10) for one in futures] == [0, 2, 4, 6, 8, 10]
    assert work.batches == [[0], [1, 2, 3, 4], [5]]


def test_what_goes_wrong_for_one_is_told_to_that_one(work: Work, batcher: Batcher[str, int]) -> None:
    futures = held_up(work, batcher, [1, -2, 3])
    work.may_go.set()
    wait(futures, 10)
    assert [futures[1].result(), futures[3].result()] == [2, 6]
    with pytest.raises(NotFound, match="no -2"):
        futures[2].result()


def test_what_nobody_foresaw_is_told_to_all_of_the_batch_and_the_next_one_is_done(work: Work, batcher: Batcher[str, int]) -> None:
    futures = held_up(work, batcher, [13, 1])
    work.may_go.set()
    for one in futures[1:]:
        with pytest.raises(ZeroDivisionError, match="thirteen"):
            one.result(10)
    assert batcher.submit("a", 4).result(10) == 8


def test_several_hands_share_what_waits(work: Work) -> None:
    batcher = Batcher[str, int](work, in_flight=2, batch=100)
    work.may_go.clear()
    futures = [batcher.submit("a", 0)]
    wait_for(lambda: len(work.batches) == 1)
    futures.append(batcher.submit("a", 1))
    wait_for(lambda: len(work.batches) == 2)
    futures += [batcher.submit("a", one) for one in range(2, 12)]
    work.may_go.set()
    assert [one.result(10) for one in futures] == [2 * one for one in range(12)]
    assert max(map(len, work.batches)) <= 5
    batcher.close()


def test_one_that_would_wait_too_long_is_refused_at_once(work: Work, batcher: Batcher[str, int]) -> None:
    futures = held_up(work, batcher, range(100, 100 + batcher.most("a")))
    with pytest.raises(Overloaded, match="requests are already waiting"):
        batcher.submit("a", 99)
    work.may_go.set()
    assert [one.result(10) for one in futures[1:]] == [2 * one for one in range(100, 100 + len(futures) - 1)]
    assert batcher.submit("a", 99).result(10) == 198


def test_how_many_may_wait_follows_from_how_fast_they_are_processed(work: Work) -> None:
    batcher = Batcher[str, int](work, in_flight=2, wait=0.5)
    least = batcher.most("a")
    batcher._queues["a"] = _Queue(pace=0.001)
    assert batcher.most("a") == 1000
    batcher._queues["a"].pace = 1.0
    assert batcher.most("a") == least


def test_a_queue_that_stands_still_delays_and_refuses_no_other_key(work: Work, batcher: Batcher[str, int]) -> None:
    work.standing_still = {0}
    slow = batcher.submit("slow", 0)
    waiting = [batcher.submit("slow", 1) for _ in range(batcher.most("slow"))]
    with pytest.raises(Overloaded):
        batcher.submit("slow", 2)
    assert [batcher.submit(f"fast {n}", 50 + n).result(10) for n in range(50)] == [100 + 2 * n for n in range(50)]
    assert not slow.done()
    work.may_go.set()
    assert {one.result(10) for one in (slow, *waiting)} == {0, 2}


def test_an_idle_queue_holds_no_thread_and_threads_end_after_a_while(work: Work) -> None:
    batcher = Batcher[str, int](work, in_flight=1)
    batcher._threads = ThreadCache("idle-test", idle=0.05)
    for n in range(12):
        assert batcher.submit(f"key {n}", n).result(10) == 2 * n
    assert len(threads("idle-test")) <= 2
    wait_for(lambda: not threads("idle-test"))
    assert batcher.submit("key 0", 3).result(10) == 6


def test_threads_that_just_end_lose_no_task() -> None:
    """Tasks come about as often as threads give up waiting."""
    cache, done = ThreadCache("race", idle=0.002), threading.Semaphore(0)
    for _ in range(500):
        cache.run(done.release)
        assert done.acquire(timeout=10)
        time.sleep(0.002)


def test_idle_queues_of_keys_that_are_gone_are_forgotten(work: Work, batcher: Batcher[str, int]) -> None:
    futures = held_up(work, batcher, [1])
    batcher._queues["b"] = _Queue(pace=1.0)
    batcher.keep({"c"})
    assert set(batcher._queues) == {"a"}
    work.may_go.set()
    wait(futures, 10)
    wait_for(lambda: (batcher.keep(()), not batcher._queues)[1])


def test_a_request_that_was_accepted_is_processed_though_nobody_waits_for_it_any_more(work: Work, batcher: Batcher[str, int]) -> None:
    """A slow version's users give up more often: left out, their requests would make it look better."""
    futures = held_up(work, batcher, [1, 2])
    assert not futures[1].cancel()
    work.may_go.set()
    assert [one.result(10) for one in futures] == [0, 2, 4]


def test_closing_answers_who_waits_and_takes_in_nobody_else(work: Work, batcher: Batcher[str, int]) -> None:
    futures = held_up(work, batcher, [1, 2])
    closing = threading.Thread(target=batcher.close)
    closing.start()
    wait_for(lambda: batcher._closing)
    with pytest.raises(Unavailable, match="gateway: shutting down"):
        batcher.submit("a", 3)
    work.may_go.set()
    closing.join(10)
    assert [one.result(10) for one in futures] == [0, 2, 4]
