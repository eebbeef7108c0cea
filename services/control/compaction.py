"""Compacts closed days of events into Parquet: dumps the missing rows, lets an etl stage write them, and adds the files to the archive.

A compaction writes each day without the rows of earlier parts of that day: late events become a new part, and no part ever changes. Tries
of one compaction may overlap, fail or be lost; the first try that is added to the archive counts.

If users were forgotten, the next compaction writes the parts that have rows of them again, without these rows; then the old parts are
erased.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Literal

from services.control.archive import ArchivePart, EventArchive, rows_of
from services.control.snapshots import forgotten_file
from shared.contracts.archive import TABLES, EventTable
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import FORGOTTEN_FACT, Files, StageSpec
from shared.domain.archive import closed_before, due
from shared.domain.errors import EyasError
from shared.domain.forgetting import moment
from shared.ports import ArtifactStore, Clock, EventDays, Executor, ForgottenUsers, RecommenderStore

log = logging.getLogger(__name__)

AT_ONCE = 30
"""Days per table in one compaction."""
_SOON = timedelta(0)
_LOOK_EVERY = timedelta(hours=1)


@dataclass
class _CompactionState:
    """State of one recommender. `failed`: compaction and number of the newest failed try; the next try waits for the next turn."""

    at: datetime
    settled: int | None = None
    """Number of compactions whose files are shown, and whose replaced files are erased; None after a start."""
    retry_at: datetime | None = None
    """Time before which forgotten users do not start another try."""
    failed: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class _DueCompaction:
    table: EventTable
    days: Mapping[date, Sequence[ArchivePart]] = field(default_factory=dict)


class Compactor:
    def __init__(
        self,
        recommenders: RecommenderStore,
        days: EventDays,
        artifacts: ArtifactStore,
        executor: Executor,
        clock: Clock,
        every: timedelta | None,
        forgotten: ForgottenUsers,
    ) -> None:
        """`every`: None if days are not compacted; users are forgotten even so."""
        self._recommenders = recommenders
        self._days = days
        self._artifacts = artifacts
        self._executor = executor
        self._clock = clock
        self._every = every or _LOOK_EVERY
        self._compacts = every is not None
        self._forgotten = forgotten
        self._archive = EventArchive(artifacts)
        self._turns: dict[str, _CompactionState] = {}

    def step(self) -> None:
        """Starts and follows compactions; call every few seconds. Looks for due days every `every`, and at each call while a try is
        running."""
        pending = set(self._forgotten.pending())
        for name in self._recommenders.heads():
            now = self._clock.now()
            turn = self._turns.setdefault(name, _CompactionState(now))
            if turn.at <= now or (name in pending and (turn.retry_at is None or turn.retry_at <= now)):
                turn.at = turn.retry_at = now + self._every  # applies if the look fails
                try:
                    failed = turn.failed
                    turn.at = now + self._look(self._recommenders.get(name).spec, turn)
                    turn.retry_at = turn.at if turn.failed != failed else None
                except EyasError as error:
                    log.error("events: compaction failed recommender=%s error=%s", name, error)

    def _look(self, spec: RecommenderSpec, turn: _CompactionState) -> timedelta:
        """Returns the time until the next look."""
        number = len(self._archive.compactions(spec.name))
        if turn.settled != number:
            # A compaction starts after all before it are settled, so only the newest may be unfinished after a start.
            self._settle(spec.name, turn.settled if turn.settled is not None else max(0, number - 1))
            turn.settled = number
        for n in itertools.count(1):
            attempt = f"compact-{spec.name}-{number}-etl-{n}"
            job = self._executor.observe(attempt)  # before the manifest: an ended job has published by now
            done = self._artifacts.manifest(attempt)
            if done is not None and done.failure is None:
                if self._archive.add(spec.name, number, done):
                    rows = sum(done.facts["rows"].values())
                    log.info("events: compacted recommender=%s rows=%d files=%d", spec.name, rows, len(done.files))
                return _SOON
            if done is None and job is None:
                return _SOON if self._start(spec, number, attempt) else self._every
            if done is None and job is not None and job.phase in ("waiting", "running"):
                return _SOON
            if (job is None or job.phase != "lost") and turn.failed < (number, n):
                turn.failed = (number, n)
                why = done.failure.message if done is not None and done.failure is not None else job.reason if job is not None else ""
                log.warning("events: compaction failed recommender=%s reason=%s", spec.name, why)
                return self._every
        raise AssertionError

    def _settle(self, name: str, since: int) -> None:
        """Shows the files, and finishes what compactions from `since` on have begun to forget; can be repeated."""
        self._archive.show(name)
        for manifest in self._archive.compactions(name)[since:]:
            if FORGOTTEN_FACT in manifest.facts:
                self._archive.erase_replaced(name, manifest)
                times = {digest: moment(at) for digest, at in manifest.facts[FORGOTTEN_FACT].items()}
                self._forgotten.mark_archived(name, times)

    def _start(self, spec: RecommenderSpec, number: int, attempt: str) -> bool:
        """Starts a try, if anything is due. Alternates, so that frequent forgettings do not delay days, nor days forgettings."""
        works = [self._forget, self._compact]
        compactions = self._archive.compactions(spec.name)
        if compactions and FORGOTTEN_FACT in compactions[-1].facts:
            works.reverse()
        return any(work(spec, number, attempt) for work in works)

    def _forget(self, spec: RecommenderSpec, number: int, attempt: str) -> bool:
        """Starts to remove forgotten users from the archive. An archive without parts is written again too: an earlier try of the same
        compaction may still publish parts with them."""
        users = [user for user in self._forgotten.all(spec.name) if not user.archived]
        if not users:
            return False
        inputs = {
            "forgotten": forgotten_file(self._artifacts, self._forgotten.digest, users),
            "parts": {str(part.name): part.file for part in self._archive.parts(spec.name).current},
        }
        self._executor.start(self._stage(spec, number, attempt, "forget", inputs))
        return True

    def _compact(self, spec: RecommenderSpec, number: int, attempt: str) -> bool:
        closed = closed_before(self._clock.now(), spec.rollout.analysis.attribution)
        wanted = [self._due(spec.name, table, closed) for table in TABLES] if self._compacts else []
        if not any(due_days.days for due_days in wanted):
            return False
        inputs: dict[str, Files] = {
            "days": {name: file for due_days in wanted for name, file in self._dumped(spec.name, due_days).items()},
            "parts": {str(part.name): part.file for due_days in wanted for parts in due_days.days.values() for part in parts},
        }
        self._executor.start(self._stage(spec, number, attempt, "compact", inputs))
        return True

    def _stage(
        self, spec: RecommenderSpec, number: int, attempt: str, mode: Literal["compact", "forget"], inputs: dict[str, Files]
    ) -> StageSpec:
        run = f"compact-{spec.name}-{number}"
        return StageSpec(stage="etl", run=run, attempt=attempt, recommender=spec, inputs=inputs, mode=mode, artifacts=self._artifacts.url)

    def _due(self, recommender: str, table: EventTable, closed: datetime) -> _DueCompaction:
        written = self._archive.days(recommender, table)
        days = due(self._days.counts(recommender, table, closed), rows_of(written))
        return _DueCompaction(table, {day: written.get(day, ()) for day in days[:AT_ONCE]})

    def _dumped(self, recommender: str, wanted: _DueCompaction) -> Files:
        files: Files = {}
        with tempfile.TemporaryDirectory(prefix="eyas-days-") as folder:
            for day in wanted.days:
                path = Path(folder) / f"{day}.ndjson"
                self._days.dump(recommender, wanted.table, day, path)
                files[f"{wanted.table}/{path.name}"] = self._artifacts.put(path)
                path.unlink()
        return files
