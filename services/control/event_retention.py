"""Deletes events from the database when their time under the spec's `keep` is over and the archive has all of them.

Four steps, a day apart, so that no event is lost and a release can be rolled back for a day:

1. The first old events are noticed.
2. Further events of old days are refused.
3. When no process is left that has not seen the refusal, the days of which the archive has as many rows as the database are marked as
   deleted, and readers take them from files.
4. Their rows are deleted, few at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta
from functools import partial

from services.control.archive import EventArchive
from shared.contracts.archive import TABLES, EventTable
from shared.domain.archive import REFUSAL_LEAD, start_of, too_old_before
from shared.domain.errors import EyasError
from shared.ports import ArtifactStore, Clock, DeletionMarks, EventDays, EventDeletion, ForgottenUsers, RecommenderStore
from shared.telemetry import metrics

log = logging.getLogger(__name__)

AT_ONCE = 500
"""Rows in one transaction, which other writers wait for."""
_WORK, _REST = 3.0, 4.0
"""Seconds of one step; time between two transactions, as a multiple of the time of the first."""
_FIRST_DAY = date(1970, 1, 1)
"""Refusing events before this day refuses none: old events are only noticed."""
_Place = tuple[str, EventTable]


class EventRetention:
    def __init__(
        self,
        recommenders: RecommenderStore,
        days: EventDays,
        deletion: EventDeletion,
        forgotten: ForgottenUsers,
        artifacts: ArtifactStore,
        clock: Clock,
        every: timedelta,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._recommenders = recommenders
        self._days = days
        self._deletion = deletion
        self._forgotten = forgotten
        self._artifacts = artifacts
        self._archive = EventArchive(artifacts)
        self._clock = clock
        self._every = every
        self._sleep = sleep
        self._look_at: dict[_Place, datetime] = {}
        self._deletes: dict[_Place, date] = {}
        """Tables with rows to delete, and the day before which; the first one's turn is next."""

    @property
    def deletes(self) -> bool:
        """Whether rows of deleted days are left."""
        return bool(self._deletes)

    def step(self) -> None:
        """Looks for old days every `every`, and deletes for some seconds; call every few seconds."""
        for name in self._recommenders.heads():
            for table in TABLES:
                place, now = (name, table), self._clock.now()
                if self._look_at.get(place, now) <= now:
                    self._look_at[place] = now + self._every
                    self._guarded(place, self._look)
        until = time.monotonic() + _WORK
        while self._deletes and time.monotonic() < until:
            place = next(iter(self._deletes))
            self._guarded(place, partial(self._delete, before=self._deletes.pop(place)))

    def _guarded(self, place: _Place, work: Callable[[str, EventTable], None]) -> None:
        try:
            work(*place)
        except EyasError as error:
            log.error("events: deletion failed recommender=%s table=%s error=%s", *place, error)

    def _look(self, name: str, table: EventTable) -> None:
        """Advances the marks by one step, or lowers the refusal if the spec keeps events for longer than before."""
        oldest = self._deletion.oldest(name, table)
        if oldest is None:
            return
        now, marks = self._clock.now(), self._deletion.marks(name, table)
        old_before = too_old_before(now, self._recommenders.get(name).spec.horizon(table)).date()
        if marks.refused_before is None or marks.refused_at is None:
            if oldest < old_before:
                self._deletion.refuse(name, table, _FIRST_DAY, now)
            return
        is_known = now - marks.refused_at >= REFUSAL_LEAD
        if is_known and name not in self._forgotten.pending():  # the archive has rows of them: its numbers of rows say nothing
            self._mark_deleted(name, table, marks, min(marks.refused_before, old_before))
        deleted_before = self._deletion.marks(name, table).deleted_before
        refused_before = max(old_before, deleted_before or _FIRST_DAY)
        if refused_before < marks.refused_before or (is_known and oldest < old_before and refused_before > marks.refused_before):
            self._deletion.refuse(name, table, refused_before, now)
        if deleted_before is not None and oldest < min(deleted_before, old_before):
            self._deletes[name, table] = old_before

    def _mark_deleted(self, name: str, table: EventTable, marks: DeletionMarks, before: date) -> None:
        """Marks the days before a day as deleted, up to the first day that the archive lacks, or has in part."""
        kept_from = marks.deleted_before or _FIRST_DAY
        if before <= kept_from:
            return
        compactions, written = len(self._archive.compactions(name)), self._archive.days(name, table)
        stored = self._days.counts(name, table, start_of(before))
        for day in sorted(day for day in stored if day >= kept_from):
            archived = sum(part.rows for part in written.get(day, ()) if self._artifacts.holds(part.file))
            if archived != stored[day]:
                log.log(
                    logging.WARNING if archived > stored[day] else logging.INFO,
                    "events: day stays in the database recommender=%s table=%s day=%s stored=%d archived=%d",
                    *(name, table, day, stored[day], archived),
                )
                before = day
                break
        if before > kept_from:
            self._deletion.mark_deleted(name, table, before, compactions, self._clock.now())
            log.info("events: old days are deleted from the database recommender=%s table=%s before=%s", name, table, before)

    def _delete(self, name: str, table: EventTable, before: date) -> None:
        began = time.monotonic()
        rows = self._deletion.delete(name, table, before, AT_ONCE)
        metrics.DELETED.labels(name, table).inc(rows)
        if rows:
            self._deletes[name, table] = before
            self._sleep(_REST * (time.monotonic() - began))
