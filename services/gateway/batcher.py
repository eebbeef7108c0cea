"""One bounded queue per key: requests that wait while others are processed are processed together.

A request in an idle queue is processed at once, alone. Each queue limits its batches in flight and sheds its own load, so a slow key delays
no other key. The number of requests that may wait follows from the queue's pace: a request that would wait too long is rejected at once.
A queue without requests holds no thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from services.gateway.thread_cache import ThreadCache
from shared.domain.errors import Overloaded, Unavailable

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")

IN_FLIGHT = 2
"""Batches of one key that are processed at the same time."""
BATCH = 32
"""Maximum requests of one batch."""
WAIT = 0.5
"""Maximum seconds that a request may wait; a request that would wait longer is rejected."""
_ALWAYS = 64
"""Requests that may always wait, because the pace is an estimate."""
_MEMORY = 0.1
"""Weight of the newest batch in the estimated pace."""


@dataclass(eq=False)
class _Queue(Generic[A]):
    waiting: deque[tuple[A, Future[Any]]] = field(default_factory=deque)
    in_flight: int = 0
    pace: float = 0.0
    """Recent seconds per request of a batch; 0: unknown."""


class Batcher(Generic[K, A]):
    """`work` processes a batch of one key; it returns each request's result or exception, in order."""

    def __init__(
        self, work: Callable[[Sequence[A]], Sequence[Any]], in_flight: int = IN_FLIGHT, batch: int = BATCH, wait: float = WAIT
    ) -> None:
        self._work = work
        self._in_flight = in_flight
        self._batch = batch
        self._wait = wait
        self._queues: dict[K, _Queue[A]] = {}
        self._lock = threading.Condition()
        self._closing = False
        self._threads = ThreadCache("answers")

    def submit(self, key: K, request: A) -> Future[Any]:
        """Queues a request. Raises Overloaded if too many requests of this key wait. An accepted request cannot be cancelled."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._closing:
                raise Unavailable("gateway: shutting down; send the request to another gateway")
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = _Queue()
            if len(queue.waiting) >= self._most(queue):
                raise Overloaded(f"{len(queue.waiting)} requests are already waiting, about {self._wait:g} s of work; retry in a moment")
            queue.waiting.append((request, future))
            if queue.in_flight >= self._in_flight:
                return future
            queue.in_flight += 1
        self._threads.run(lambda: self._drain(queue))
        return future

    def most(self, key: K) -> int:
        """Returns how many requests of this key may wait now."""
        return self._most(self._queues.get(key) or _Queue())

    def keep(self, keys: Collection[K]) -> None:
        """Removes idle queues of all other keys."""
        with self._lock:
            self._queues = {key: queue for key, queue in self._queues.items() if key in keys or queue.in_flight}

    def close(self, patience: float = 5.0) -> None:
        """Accepts no more requests and waits for the accepted ones."""
        with self._lock:
            self._closing = True
            self._lock.wait_for(lambda: not any(queue.in_flight for queue in self._queues.values()), patience)

    def _most(self, queue: _Queue[A]) -> int:
        return max(_ALWAYS, int(self._wait * self._in_flight / queue.pace)) if queue.pace else _ALWAYS

    def _drain(self, queue: _Queue[A]) -> None:
        while batch := self._next(queue):
            began = time.perf_counter()
            try:
                results = self._work([request for request, _ in batch])
            except Exception as error:
                log.exception("batch: answering failed requests=%d", len(batch))
                results = [error] * len(batch)
            pace = (time.perf_counter() - began) / len(batch)
            queue.pace = pace if not queue.pace else (1 - _MEMORY) * queue.pace + _MEMORY * pace
            for (_, future), result in zip(batch, results, strict=True):
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _next(self, queue: _Queue[A]) -> list[tuple[A, Future[Any]]]:
        with self._lock:
            if not queue.waiting:
                queue.in_flight -= 1
                if self._closing:
                    self._lock.notify_all()
                return []
            # Equal parts for all batches in flight: a batch that takes all requests leaves the model server idle meanwhile.
            count = min(self._batch, -(-len(queue.waiting) // self._in_flight))
            return [queue.waiting.popleft() for _ in range(count)]
