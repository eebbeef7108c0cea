"""Writes impressions to the event log and reads seen items, without delaying answers.

An impression is durable before its answer goes out, unless the log is slow or away. Then answers go out and a bounded number of impressions
wait here; no answer waits for a log that is known to be away. One thread writes all waiting impressions in one transaction. The log
ignores a request id that it already has, so a retry counts nothing twice.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from dataclasses import dataclass, field
from datetime import datetime

from shared.contracts.events import Impression
from shared.domain.errors import Unavailable
from shared.ports import EventLog
from shared.telemetry import metrics
from shared.telemetry.outages import QUIET, Outages

log = logging.getLogger(__name__)

PATIENCE = 2.0
"""Maximum seconds that an answer waits for the log."""
PAUSE = 0.5
"""Seconds between two attempts while the log is away."""
CAPACITY = 500_000
"""Maximum weight of the waiting impressions: shown items, plus ten per impression. Beyond it the oldest are lost."""
_AT_ONCE = 500
_READERS = 8


@dataclass(eq=False)
class _QueuedImpression:
    impression: Impression
    settled: threading.Event = field(default_factory=threading.Event)

    @property
    def weight(self) -> int:
        return 10 + len(self.impression.items)


class ImpressionWriter:
    def __init__(self, events: EventLog, patience: float = PATIENCE, pause: float = PAUSE, capacity: int = CAPACITY) -> None:
        self._events = events
        self._patience = patience
        self._pause = pause
        self._capacity = capacity
        self._line: deque[_QueuedImpression] = deque()
        self._weight = 0
        self._more = threading.Condition()
        self._closing = threading.Event()
        self._writer: threading.Thread | None = None
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="seen")
        self._away = False
        self._outages = Outages(log, QUIET)

    @property
    def behind(self) -> bool:
        """Whether answers may have gone out whose impressions are not in the log."""
        return self._away and bool(self._line)

    def write(self, *impressions: Impression) -> None:
        """Returns when the impressions are durable, or the log is away."""
        entries = self.add(*impressions)
        until = time.monotonic() + self._patience
        for entry in entries:
            if not self._away and not entry.settled.wait(max(0.0, until - time.monotonic())):
                self._gone(f"a write took more than {self._patience:g} s")

    def add(self, *impressions: Impression) -> Sequence[_QueuedImpression]:
        """Queues impressions without waiting."""
        entries = [_QueuedImpression(impression) for impression in impressions]
        with self._more:
            for entry in entries:
                self._line.append(entry)
                self._weight += entry.weight
            while self._weight > self._capacity and len(self._line) > 1:
                self._lose(self._drop_first())
            if self._writer is None:
                self._writer = threading.Thread(target=self._work, name="journal", daemon=True)
                self._writer.start()
            self._more.notify()
        return entries

    def seen_items(
        self, recommender: str, users: Collection[int], since: datetime | None = None, patience: float = PATIENCE, counted: bool = True
    ) -> Mapping[int, Mapping[int, datetime]]:
        """Returns the items that each user liked, with the time of the last like; empty while the log is away or slow, and then `counted`
        as answers that no filter of seen items could test."""
        if not self._away:
            future: Future[Mapping[int, Mapping[int, datetime]]] = self._readers.submit(self._events.seen_items, recommender, users, since)
            try:
                return future.result(min(patience, self._patience))
            except TooLate:
                future.cancel()
                if patience >= self._patience:  # a shorter deadline does not prove an outage
                    self._gone(f"reading seen items took more than {self._patience:g} s")
            except Unavailable as error:
                self._gone(str(error))
        if counted:
            metrics.UNFILTERED.labels(recommender).inc(len(users))
        return {}

    def close(self, patience: float = 5.0) -> None:
        """Writes the waiting impressions if possible; logs and counts the lost ones."""
        self._closing.set()
        with self._more:
            self._more.notify()
        if self._writer is not None:
            self._writer.join(patience)
        self._readers.shutdown(wait=False, cancel_futures=True)
        with self._more:
            for entry in self._line:
                self._lose(entry)
            if self._line:
                log.error("event log: impressions are lost at shutdown impressions=%d", len(self._line))

    def _work(self) -> None:
        while batch := self._next():
            last = self._closing.is_set()
            try:
                self._store(batch)
            except Unavailable as error:
                self._gone(str(error))
                self._release()
                if last:
                    return
                self._closing.wait(self._pause)
            else:
                self._settle(batch)

    def _next(self) -> Sequence[_QueuedImpression]:
        """Returns the first waiting impressions, empty on closing. They stay in the queue until they are durable."""
        with self._more:
            while not self._line and not self._closing.is_set():
                self._more.wait()
            return list(itertools.islice(self._line, _AT_ONCE))

    def _store(self, batch: Sequence[_QueuedImpression]) -> None:
        try:
            self._events.impressions([entry.impression for entry in batch])
        except Unavailable:
            raise
        except Exception:
            if len(batch) > 1:  # a bad impression does not block the others
                for entry in batch:
                    self._store([entry])
                return
            self._lose(batch[0])
            log.exception("impression: storing failed request=%s", batch[0].impression.request_id)

    def _settle(self, batch: Sequence[_QueuedImpression]) -> None:
        stored = set(batch)
        with self._more:
            while self._line and self._line[0] in stored:
                self._drop_first()
            left = len(self._line)
        for entry in batch:
            entry.settled.set()
        if self._away and left < _AT_ONCE:
            self._away, left = False, 0
        if not self._away:
            self._outages.succeed("", "event log: recovered, waiting impressions are written")
        metrics.WAITING.set(left if self._away else 0)

    def _release(self) -> None:
        """Lets all waiting answers go out."""
        with self._more:
            waiting = list(self._line)
        metrics.WAITING.set(len(waiting))
        for entry in waiting:
            entry.settled.set()

    def _gone(self, reason: str) -> None:
        self._away = True
        self._outages.fail("", "event log: unavailable, answers go out and their impressions wait reason=%s", reason)

    def _drop_first(self) -> _QueuedImpression:
        entry = self._line.popleft()
        self._weight -= entry.weight
        return entry

    def _lose(self, entry: _QueuedImpression) -> None:
        metrics.LOST.labels(entry.impression.recommender).inc()
        entry.settled.set()
