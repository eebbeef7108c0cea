"""The heartbeat: a step that fails is said once and stops nobody; stopping ends it."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator

import pytest

from services.control.worker_loop import SETTLE, Loop, OnChange
from shared.domain.errors import Unavailable
from shared.testing.waiting import wait_for

Start = Callable[..., Loop]
LONG = 3600.0
REST = 60.0


class World:
    """What a step looks at: a mark that rises with each change, a clock, and a due time of the step's own."""

    def __init__(self) -> None:
        self.mark = 0
        self.now = 1000.0
        self.due: float | None = None
        self.done = 0
        self.faulty = False

    def step(self) -> None:
        self.done += 1
        if self.faulty:
            raise Unavailable("the database is away")

    def on_change(self) -> OnChange:
        return OnChange(self.step, lambda: self.mark, REST, lambda: self.due, lambda: self.now)

    def settle(self, step: OnChange) -> None:
        step()
        self.now += SETTLE
        step()
        self.done = 0


@pytest.fixture
def start() -> Iterator[Start]:
    loops: list[Loop] = []

    def make(*steps: Callable[[], object], interval: float = 0.001) -> Loop:
        loops.append(Loop("test", steps, interval))
        loops[-1].start()
        return loops[-1]

    yield make
    for loop in loops:
        loop.stop()


def test_steps_run_in_their_order_again_and_again(start: Start) -> None:
    done: list[str] = []
    loop = start(lambda: done.append("a"), lambda: done.append("b"))
    wait_for(lambda: len(done) >= 6)
    loop.stop()
    assert done[:6] == ["a", "b"] * 3


def test_a_step_that_fails_does_not_stop_the_others_and_is_said_once(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    faults = [True]
    done: list[int] = []

    def fails() -> None:
        if faults:
            raise Unavailable("Triton is away")

    loop = start(fails, lambda: done.append(1))
    wait_for(lambda: len(done) >= 5)
    faults.clear()
    wait_for(lambda: "recovered" in caplog.text)
    loop.stop()
    assert caplog.text.count("Triton is away") == 1
    assert "Traceback" not in caplog.text
    assert caplog.text.count("recovered") == 1


def test_a_full_disk_is_said_once_without_a_traceback(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    def fails() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/home/ada/work")

    start(fails, lambda: done.append(1))
    wait_for(lambda: len(done) >= 3)
    assert [(one.getMessage(), one.exc_info) for one in caplog.records] == [
        ("loop: step failed loop=test error=[Errno 28] No space left on device: '/home/ada/work'", None)
    ]


def test_a_bug_is_said_with_its_traceback(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise ZeroDivisionError("a bug")

    start(fails)
    wait_for(lambda: "Traceback" in caplog.text)
    assert "ZeroDivisionError: a bug" in caplog.text


def test_a_loop_that_is_woken_does_not_wait_for_its_interval(start: Start) -> None:
    done: list[int] = []
    loop = start(lambda: done.append(1), interval=LONG)
    wait_for(lambda: len(done) == 1)
    loop.wake()
    wait_for(lambda: len(done) == 2)


def test_a_loop_that_is_stopped_does_not_wait_for_its_interval(start: Start) -> None:
    done: list[int] = []
    loop = start(lambda: done.append(1), interval=LONG)
    wait_for(lambda: len(done) == 1)
    loop.stop(timeout=10)
    assert not loop._thread.is_alive()
    assert len(done) == 1


def test_a_step_is_skipped_while_nothing_changes_and_repaired_by_a_slow_poll() -> None:
    world = World()
    step = world.on_change()
    world.settle(step)
    for _ in range(100):
        step()
    assert (world.done, step.rest()) == (0, REST)
    world.now += REST  # a change that nobody has told of is found then
    step()
    step()
    assert world.done == 1


def test_a_change_leads_to_steps_until_everything_remembered_is_old() -> None:
    world = World()
    step = world.on_change()
    world.settle(step)
    world.mark += 1
    assert step.rest() == 0
    for _ in range(4):
        step()
        world.now += SETTLE / 4
    assert world.done == 4
    for _ in range(5):
        step()
    assert world.done == 5, "and once when that is over"


def test_what_is_committed_while_a_step_reads_leads_to_another_one() -> None:
    world = World()

    def step() -> None:
        world.step()
        if world.done == 1:
            world.mark += 1

    on_change = OnChange(step, lambda: world.mark, REST, clock=lambda: world.now)
    on_change()
    world.now += SETTLE
    assert on_change.rest() == 0
    on_change()
    assert world.done == 2


def test_a_step_that_is_due_by_itself_is_not_slept_through() -> None:
    world = World()
    world.due = 5.0
    step = world.on_change()
    world.settle(step)
    assert step.rest() == 5
    world.now += 5
    step()
    assert world.done == 1


def test_a_step_that_failed_is_repeated_at_once() -> None:
    world = World()
    step = world.on_change()
    world.settle(step)
    world.faulty = True
    world.now += REST
    for _ in range(3):
        with pytest.raises(Unavailable):
            step()
    assert (world.done, step.rest()) == (3, 0)


def test_a_loop_sleeps_until_it_is_told_of_a_change(start: Start) -> None:
    world = World()
    step = world.on_change()
    world.settle(step)
    loop = start(step)
    wait_for(lambda: loop._sleeps)
    assert (world.done, loop.rest()) == (0, REST)
    world.mark += 1
    loop.notice()
    wait_for(lambda: world.done > 0)


def test_a_loop_with_a_step_that_is_always_due_does_not_sleep(start: Start) -> None:
    world = World()
    step = world.on_change()
    world.settle(step)
    done: list[int] = []
    loop = start(step, lambda: done.append(1))
    wait_for(lambda: len(done) >= 5)
    assert (loop.rest(), world.done) == (0, 0)
