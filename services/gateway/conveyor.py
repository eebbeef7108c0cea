"""Requests that come while others are at work are taken up together: what many of them need once is done once.

Nobody waits for company: a request that finds a free hand is taken up at once, alone. How many wait at most follows from how fast
they are done, so that who would wait too long is told so at once instead of making everybody wait longer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from shared.domain.errors import Overloaded, Unavailable

log = logging.getLogger(__name__)

A = TypeVar("A")
B = TypeVar("B")

HANDS = 2
TOGETHER = 32
WAIT = 0.5
"""Seconds that a request may have to wait before it is taken up; one that would wait longer is refused."""
_ALWAYS = 64
"""So many may wait whatever they take."""
_MEMORY = 0.1


class Conveyor(Generic[A, B]):
    """`work` answers each of the requests that it is given, in their order, with what is to be given back or the exception to raise."""

    def __init__(
        self, work: Callable[[Sequence[A]], Sequence[B | Exception]], hands: int = HANDS, together: int = TOGETHER, wait: float = WAIT
    ) -> None:
        self._work = work
        self._hands = hands
        self._together = together
        self._wait = wait
        self._line: deque[tuple[A, Future[B]]] = deque()
        self._more = threading.Condition()
        self._pace = 0.0
        """Seconds of one hand that a request takes, as of late."""
        self._threads: list[threading.Thread] = []
        self._closing = False

    def submit(self, one: A) -> Future[B]:
        """Overloaded where too many wait already."""
        with self._more:
            if self._closing:
                raise Unavailable("this gateway is closing: ask another one")
            if len(self._line) >= self.most:
                raise Overloaded(f"{len(self._line)} requests wait already, which takes {self._wait:g} s: ask again in a moment")
            future: Future[B] = Future()
            self._line.append((one, future))
            if len(self._threads) < self._hands:
                self._hire()
            self._more.notify()
        return future

    @property
    def most(self) -> int:
        """How many may wait now."""
        return max(_ALWAYS, int(self._wait * self._hands / self._pace)) if self._pace else _ALWAYS

    def close(self) -> None:
        """Whoever waits is answered; nobody else is taken in."""
        with self._more:
            self._closing = True
            self._more.notify_all()
        for thread in self._threads:
            thread.join(5)

    def _hire(self) -> None:
        thread = threading.Thread(target=self._serve, name=f"answers-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while taken := self._next():
            began = time.perf_counter()
            try:
                found = self._work([one for one, _ in taken])
            except Exception as error:
                log.exception("answering %d requests", len(taken))
                found = [error] * len(taken)
            each = (time.perf_counter() - began) / len(taken)
            self._pace = each if not self._pace else (1 - _MEMORY) * self._pace + _MEMORY * each
            for (_, future), one in zip(taken, found, strict=True):
                if isinstance(one, Exception):
                    future.set_exception(one)
                else:
                    future.set_result(one)

    def _next(self) -> list[tuple[A, Future[B]]]:
        with self._more:
            while not self._line and not self._closing:
                self._more.wait()
            # An equal part for each hand: one that takes all leaves the others idle while the model server could compute.
            count = min(self._together, max(1, -(-len(self._line) // self._hands)))
            taken = [self._line.popleft() for _ in range(min(count, len(self._line)))]
        return [(one, future) for one, future in taken if future.set_running_or_notify_cancel()] or (self._next() if taken else [])
