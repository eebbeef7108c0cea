"""The control plane's loops: steps one after the other in a thread, again and again; asleep while none of them has anything to do."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

from shared.telemetry.outages import Outages

log = logging.getLogger(__name__)


SETTLE = 1.5
"""Seconds after a change during which a step is done at every pass: longer than anything below it remembers what it has read."""


class OnChange:
    """A step that is skipped while it has nothing to do: nothing has changed lately, and it isn't due by itself.

    A step that failed is repeated at once. After `rest` seconds it is done in any case, so a change that was missed is repaired then.
    """

    def __init__(
        self,
        step: Callable[[], object],
        mark: Callable[[], object],
        rest: float,
        due: Callable[[], float | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`mark` is equal to an earlier one while nothing has changed; `due` tells after a step in how many seconds the next one has
        something to do without any change, None if never."""
        self._step = step
        self._mark = mark
        self._rest = rest
        self._due = due
        self._clock = clock
        self._seen: object = None
        self._settled = self._next = -math.inf

    def __call__(self) -> None:
        mark, now = self._mark(), self._clock()  # before the step reads: what is committed meanwhile is the next one's
        if mark != self._seen:
            self._seen, self._settled = mark, now + SETTLE
        if now >= self._settled and now < self._next:
            return
        self._next = -math.inf
        self._step()
        due = self._due()
        self._next = self._clock() + (self._rest if due is None else min(due, self._rest))
        if now < self._settled:  # and once more when what was remembered is old
            self._next = min(self._next, self._settled)

    def rest(self) -> float:
        """Seconds until the step is due, if nothing changes before."""
        if self._mark() != self._seen:
            return 0.0
        now = self._clock()
        return 0.0 if now < self._settled else max(0.0, self._next - now)


class Loop:
    """Calls its steps in order, again and again; a step that fails is logged and doesn't stop the others.

    There is a pause of `interval` seconds between two passes. A loop whose steps all are `OnChange` sleeps longer, until one of them is
    due or `notice` says that something has changed.
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
        """The next pass begins at once."""
        self._wake.set()

    def notice(self) -> None:
        """Something has changed: the next pass begins after the usual pause. For any thread, many times a second."""
        if self._sleeps:
            self._wake.set()

    def stop(self, timeout: float = 30) -> None:
        """Ends after the step under way."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout)

    def rest(self) -> float:
        """For how many seconds no step has anything to do unless something changes."""
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
        self._sleeps = True  # before the look: a change that comes after the look wakes
        rest = self.rest()
        if rest > 0:
            self._wake.wait(rest)
        self._sleeps = False

    def _guarded(self, number: int, step: Callable[[], object]) -> None:
        """Says a fault once, and once again when it is over."""
        try:
            step()
        except Exception as error:
            self._outages.fail(number, "%s: %s", self._thread.name, error, error=error)
        else:
            self._outages.succeed(number, "%s: recovered", self._thread.name)
