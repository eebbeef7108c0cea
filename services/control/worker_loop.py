"""Worker loop of the control plane: runs steps in order in a thread, again and again; sleeps while no step has work."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from shared.domain.errors import Unavailable
from shared.telemetry.outages import Outages

K = TypeVar("K")

log = logging.getLogger(__name__)


SETTLE = 1.5
"""Seconds after a change during which a step runs at every pass: longer than any cache below it lasts."""


def in_turn(keys: Iterable[K], work: Callable[[K], int]) -> tuple[int, Unavailable | None]:
    """Calls `work` for each key; returns the sum, and the last error of something unavailable, for the caller to raise when all keys had
    their turn."""
    total, fault = 0, None
    for key in keys:
        try:
            total += work(key)
        except Unavailable as error:
            fault = error
    return total, fault


class OnChange:
    """Step that is skipped while it has no work: nothing has changed lately, and it isn't due by itself.

    A failed step is repeated at once. After `rest` seconds the step runs in any case, which repairs a missed change.
    """

    def __init__(
        self,
        step: Callable[[], object],
        mark: Callable[[], object],
        rest: float,
        due: Callable[[], float | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`mark` returns an equal value while nothing has changed; `due` returns, after a step, the seconds until the next step has work
        without any change, None if never."""
        self._step = step
        self._mark = mark
        self._rest = rest
        self._due = due
        self._clock = clock
        self._last_value: object = None
        self._settled = self._next = -math.inf

    def __call__(self) -> None:
        mark, now = self._mark(), self._clock()  # before the step reads: later commits belong to the next step
        if mark != self._last_value:
            self._last_value, self._settled = mark, now + SETTLE
        if now >= self._settled and now < self._next:
            return
        self._next = -math.inf
        self._step()
        due = self._due()
        self._next = self._clock() + (self._rest if due is None else min(due, self._rest))
        if now < self._settled:  # and once more when caches have expired
            self._next = min(self._next, self._settled)

    def rest(self) -> float:
        """Returns the seconds until the step is due, if nothing changes before."""
        if self._mark() != self._last_value:
            return 0.0
        now = self._clock()
        return 0.0 if now < self._settled else max(0.0, self._next - now)


class Loop:
    """Calls its steps in order, again and again; a failing step is logged and doesn't stop the others.

    There is a pause of `interval` seconds between two passes. A loop whose steps all are `OnChange` sleeps longer, until a step is due or
    `notice` reports a change.
    """

    def __init__(self, name: str, steps: Sequence[Callable[[], object]], interval: float) -> None:
        self._steps = steps
        self._interval = interval
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._sleeps = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._outages = Outages(log)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Starts the next pass at once."""
        self._wake.set()

    def notice(self) -> None:
        """Reports a change: the next pass starts after the usual pause. Any thread may call it, many times a second."""
        if self._sleeps:
            self._wake.set()

    def stop(self, timeout: float = 30) -> None:
        """Stops after the current step."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout)

    def rest(self) -> float:
        """Returns for how many seconds no step has work unless something changes."""
        return min((step.rest() if isinstance(step, OnChange) else 0.0 for step in self._steps), default=0.0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            for number, step in enumerate(self._steps):
                if self._stopping.is_set():
                    return
                self._guarded(number, step)
            if not self._wake.wait(self._interval):
                self._sleep()
            self._wake.clear()

    def _sleep(self) -> None:
        self._sleeps = True  # before rest() reads: a later change wakes the loop
        rest = self.rest()
        if rest > 0:
            self._wake.wait(rest)
        self._sleeps = False

    def _guarded(self, number: int, step: Callable[[], object]) -> None:
        """Logs a fault once, and its end once."""
        try:
            step()
        except Exception as error:
            self._outages.fail(number, "loop: step failed loop=%s error=%s", self._thread.name, error, error=error)
        else:
            self._outages.succeed(number, "loop: step recovered loop=%s", self._thread.name)
