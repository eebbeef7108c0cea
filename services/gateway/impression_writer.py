"""The way into the event log and out of it, for an answer that can't wait.

An impression is durable before its answer goes out, as long as the log takes it in a moment. When it doesn't, answers go out and
their impressions wait here, a bounded number of them, until it does; nobody waits for a log that is known to be away. One thread
writes, all that came meanwhile in one transaction: a request id that is there already is left as it is, so nothing counts twice.
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
"""Seconds that an answer waits for the log."""
PAUSE = 0.5
"""Between two tries of a log that is away."""
CAPACITY = 500_000
"""Items shown in the answers that wait at most, each answer counted as ten more; beyond that the oldest are lost."""
_AT_ONCE = 500
_READERS = 8


@dataclass(eq=False)
class _Entry:
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
        self._line: deque[_Entry] = deque()
        self._weight = 0
        self._more = threading.Condition()
        self._closing = threading.Event()
        self._writer: threading.Thread | None = None
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="seen")
        self._away = False
        self._outages = Outages(log, QUIET)

    @property
    def behind(self) -> bool:
        """Whether answers may have gone out that the log doesn't know."""
        return self._away and bool(self._line)

    def write(self, *impressions: Impression) -> None:
        """Durable when it returns, unless the log is away."""
        entries = self.add(*impressions)
        until = time.monotonic() + self._patience
        for entry in entries:
            if not self._away and not entry.settled.wait(max(0.0, until - time.monotonic())):
                self._gone(f"a write took more than {self._patience:g} s")

    def add(self, *impressions: Impression) -> Sequence[_Entry]:
        """To be written soon: nobody waits for it."""
        entries = [_Entry(impression) for impression in impressions]
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
        self, recommender: str, users: Collection[int], since: datetime | None = None, patience: float = PATIENCE
    ) -> Mapping[int, Mapping[int, datetime]]:
        """By user, what they have liked, and when last; nothing, and counted, while the log is away or takes longer than the patience."""
        if not self._away:
            future: Future[Mapping[int, Mapping[int, datetime]]] = self._readers.submit(self._events.seen_items, recommender, users, since)
            try:
                return future.result(min(patience, self._patience))
            except TooLate:
                future.cancel()
                if patience >= self._patience:  # who can't wait so long says nothing of the log
                    self._gone(f"a look took more than {self._patience:g} s")
            except Unavailable as error:
                self._gone(str(error))
        metrics.UNFILTERED.labels(recommender).inc(len(users))
        return {}

    def close(self, patience: float = 5.0) -> None:
        """Writes what it can; what it can't is lost, and said."""
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
                log.error("%d answers never came into the event log: it is away", len(self._line))

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

    def _next(self) -> Sequence[_Entry]:
        """The first ones in line; none when it is time to end. They stay in line until they are durable."""
        with self._more:
            while not self._line and not self._closing.is_set():
                self._more.wait()
            return list(itertools.islice(self._line, _AT_ONCE))

    def _store(self, batch: Sequence[_Entry]) -> None:
        try:
            self._events.impressions([entry.impression for entry in batch])
        except Unavailable:
            raise
        except Exception:
            if len(batch) > 1:  # one that can't be stored holds up no other
                for entry in batch:
                    self._store([entry])
                return
            self._lose(batch[0])
            log.exception("answer '%s' can't be stored", batch[0].impression.request_id)

    def _settle(self, batch: Sequence[_Entry]) -> None:
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
            self._outages.succeed("", "event log: recovered, impressions are written")
        metrics.WAITING.set(left if self._away else 0)

    def _release(self) -> None:
        """Whoever waits for an impression waits no longer: the answers go out."""
        with self._more:
            waiting = list(self._line)
        metrics.WAITING.set(len(waiting))
        for entry in waiting:
            entry.settled.set()

    def _gone(self, reason: str) -> None:
        self._away = True
        self._outages.fail("", "event log: no answer, answers go out and their impressions wait: %s", reason)

    def _drop_first(self) -> _Entry:
        entry = self._line.popleft()
        self._weight -= entry.weight
        return entry

    def _lose(self, entry: _Entry) -> None:
        metrics.LOST.labels(entry.impression.recommender).inc()
        entry.settled.set()
