"""The heartbeat: a step that fails is said once and stops nobody; stopping ends it."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator

import pytest

from services.control.loop import Loop
from shared.domain.errors import Unavailable
from shared.testing.waiting import wait_for

Start = Callable[..., Loop]
LONG = 3600.0


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
        ("test: [Errno 28] No space left on device: '/home/ada/work'", None)
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
