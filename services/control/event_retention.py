"""Deletes events from the database when their time under the spec's `keep` is over and the archive has all of them.

Three steps, so that no event is lost: further events of old days are refused; an hour later, when no transaction is left that has not seen
the refusal, the days of which the archive has every row are marked as deleted, and readers take them from files; then their rows are
deleted, few at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from services.control.archive import EventArchive
from shared.contracts.archive import TABLES, EventTable
from shared.domain.archive import PAUSE, start_of, too_old_before
from shared.domain.errors import EyasError
from shared.ports import ArtifactStore, Clock, DeletionMarks, EventDays, EventDeletion, RecommenderStore
from shared.telemetry import metrics

log = logging.getLogger(__name__)

AT_ONCE = 500
"""Rows in one transaction, which other writers wait for."""
_WORK, _REST = 3.0, 4.0
"""Seconds of one step; time between two transactions, as a multiple of the time of the first."""


@dataclass
class _TableState:
    """State of one table of one recommender. `at`: time of the next look; `deletes`: some rows of deleted days are left."""

    at: datetime
    deletes: bool = False


class EventRetention:
    def __init__(
        self,
        recommenders: RecommenderStore,
        days: EventDays,
        deletion: EventDeletion,
        artifacts: ArtifactStore,
        clock: Clock,
        every: timedelta,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._recommenders = recommenders
        self._days = days
        self._deletion = deletion
        self._artifacts = artifacts
        self._archive = EventArchive(artifacts)
        self._clock = clock
        self._every = every
        self._sleep = sleep
        self._states: dict[tuple[str, EventTable], _TableState] = {}

    def step(self) -> None:
        """Looks for old days every `every`, and deletes for some seconds; call every few seconds."""
        for name in self._recommenders.heads():
            for table in TABLES:
                state = self._states.setdefault((name, table), _TableState(self._clock.now()))
                try:
                    if state.at <= self._clock.now():
                        state.at = self._clock.now() + self._every
                        state.deletes = self._look(name, table)
                    if state.deletes:
                        state.deletes = self._delete(name, table)
                except EyasError as error:
                    log.error("events: deletion failed recommender=%s table=%s error=%s", name, table, error)

    def _look(self, name: str, table: EventTable) -> bool:
        """Advances the marks by one step; returns whether rows of deleted days are left."""
        oldest = self._deletion.oldest(name, table)
        if oldest is None:
            return False
        now, marks = self._clock.now(), self._deletion.marks(name, table)
        before = too_old_before(now, self._recommenders.get(name).spec.keep.of(table)).date()
        if marks.refused_at is not None and now - marks.refused_at >= PAUSE and marks.deleted_before != marks.refused_before:
            marks = self._release(name, table, marks)
        if oldest < before and (marks.refused_before is None or marks.refused_before < before):
            self._deletion.refuse(name, table, before, now)
        return marks.deleted_before is not None and oldest < marks.deleted_before

    def _release(self, name: str, table: EventTable, marks: DeletionMarks) -> DeletionMarks:
        """Marks days as deleted, up to the first day that the archive lacks, or has in part."""
        assert marks.refused_before is not None
        written = {
            day: sum(part.rows for part in parts)
            for day, parts in self._archive.days(name, table).items()
            if all(self._artifacts.holds(part.file) for part in parts)
        }
        stored = self._days.counts(name, table, start_of(marks.refused_before))
        first = marks.deleted_before or date.min
        incomplete = sorted(day for day, rows in stored.items() if day >= first and written.get(day) != rows)
        if incomplete:
            log.warning("events: kept, the archive lacks rows recommender=%s table=%s day=%s", name, table, incomplete[0])
        before = incomplete[0] if incomplete else marks.refused_before
        if before > first:
            self._deletion.release(name, table, before)
            log.info("events: old days are deleted from the database recommender=%s table=%s before=%s", name, table, before)
        return self._deletion.marks(name, table)

    def _delete(self, name: str, table: EventTable) -> bool:
        """Deletes for some seconds; returns whether rows may be left."""
        until = time.monotonic() + _WORK
        while time.monotonic() < until:
            began = time.monotonic()
            rows = self._deletion.delete(name, table, AT_ONCE)
            metrics.DELETED.labels(name, table).inc(rows)
            if rows == 0:
                return False
            self._sleep(_REST * (time.monotonic() - began))
        return True
