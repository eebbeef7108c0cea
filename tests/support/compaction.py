"""Compaction as tests drive it: an executor that runs the stage here and now, a clock, and what etl would read."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
from sqlalchemy import Engine

from pipelines.data.interactions import plain_events, read_events
from pipelines.stages.etl import run
from pipelines.stages.runner import Context
from services.control.archive import EventArchive
from services.control.compaction import Compactor
from services.control.snapshots import Snapshots
from services.eventlog.days import SqlEventDays
from services.eventlog.deletion import SqlEventDeletion
from services.eventlog.sql import SqlEventLog
from services.eventlog.tables import metadata
from services.store.engine import open_engine, sqlite_url
from shared.artifacts import FsspecArtifacts
from shared.contracts.archive import KEYS, TABLES, EventTable
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Failure, Files, Manifest, StageSpec
from shared.domain.entity_ids import IdHash
from shared.domain.errors import Invalid
from shared.domain.run import Job
from shared.ports import ArtifactStore, Recommender
from tests.support.forgotten import DIGEST, forgotten_users

NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)
EVERY = timedelta(hours=1)
SPEC = RecommenderSpec.model_validate(
    {
        "name": "films",
        "data": {"interactions": {"uri": "a.csv", "also": "events"}, "items": {"uri": "b.csv", "key": "film"}},
        "schema": {"user": "person", "item": "film", "time": "at", "label": {"column": "stars", "positive": ">= 4"}},
        "keep": {"impressions": "30d", "interactions": "35d"},
    }
)


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time


class Recommenders:
    """Of the store, what a compactor asks."""

    def heads(self) -> Mapping[str, int]:
        return {SPEC.name: 1}

    def get(self, name: str) -> Recommender:
        assert name == SPEC.name
        return Recommender(SPEC.name, 1, SPEC, NOW, NOW)


class InlineExecutor:
    """A stage has ended when it was started. `lost`: how many of the next ones end without a trace."""

    def __init__(self, folder: Path, store: FsspecArtifacts) -> None:
        self._folder = folder
        self._store = store
        self.started: list[StageSpec] = []
        self.jobs: dict[str, Job] = {}
        self.lost = 0

    def start(self, spec: StageSpec) -> None:
        assert spec.attempt not in self.jobs, "a name is used once"
        self.started.append(spec)
        self.jobs[spec.attempt] = Job("running")
        if self.lost:
            self.lost -= 1
            self.jobs[spec.attempt] = Job("lost")
            return
        self.publish(spec, spec.attempt)
        self.jobs[spec.attempt] = Job("succeeded")

    def publish(self, spec: StageSpec, attempt: str) -> None:
        scratch = self._folder / f"{attempt}.{len(self.started)}"
        scratch.mkdir(parents=True)
        failure, files, facts = None, {}, {}
        try:
            outcome = run(Context(spec, scratch, self._store, logging.getLogger("test")))
            files, facts = {name: self._store.put(path) for name, path in outcome.files.items()}, outcome.facts
        except Invalid as error:
            failure = Failure(kind="data", message=str(error))
        self._store.publish(
            Manifest(stage="etl", run=spec.run, attempt=attempt, started=NOW, ended=NOW, files=files, facts=facts, failure=failure)
        )

    def observe(self, attempt: str) -> Job | None:
        return self.jobs.get(attempt)

    def stop(self, attempt: str) -> None:
        raise AssertionError("nobody stops a compaction")

    def log(self, attempt: str, offset: int = 0) -> tuple[str, int]:
        return "", offset


def _empty_database(folder: Path) -> Engine:
    folder.mkdir(parents=True, exist_ok=True)
    engine = open_engine(sqlite_url(folder / "eyas.db"))
    metadata.create_all(engine)
    return engine


class Place:
    """A log of events with its archive."""

    def __init__(self, folder: Path, engine: Engine | None = None) -> None:
        self.folder = folder
        self.engine = engine or _empty_database(folder)
        self.log = SqlEventLog(self.engine, DIGEST)
        self.forgotten = forgotten_users(self.engine)
        self.days = SqlEventDays(self.engine)
        self.deletion = SqlEventDeletion(self.engine)
        self.store = FsspecArtifacts(str(folder / "artifacts"))
        self.executor: Any = InlineExecutor(folder / "work", self.store)
        self.clock = Clock()
        self._reads = 0

    def compactor(self, store: ArtifactStore | None = None, executor: Any = None) -> Compactor:
        return Compactor(
            Recommenders(),  # type: ignore[arg-type]
            self.days,
            store or self.store,
            executor or self.executor,
            self.clock,
            EVERY,
            self.forgotten,
        )

    def settle(self, compactor: Compactor | None = None) -> None:
        """Until nothing is due: looks from one turn to the next."""
        compactor = compactor or self.compactor()
        self.clock.time += EVERY
        for _ in range(20):
            compactor.step()

    def read(self, since: datetime | None = None, until: datetime = NOW) -> pl.DataFrame:
        """What etl gets, in its order."""
        return self._frame(self.snapshots().take("films", since, until), since)

    def snapshots(self) -> Snapshots:
        return Snapshots(self.log, self.days, self.deletion, self.store, IdHash(b"test"), self.forgotten)

    def plain(self, since: datetime | None = None, until: datetime = NOW) -> pl.DataFrame:
        """The same out of the log alone."""
        path = self.folder / "plain.csv"
        self.log.export("films", since, until, path)
        return self._frame({"events.csv": self.store.put(path)})

    def _frame(self, files: Files, since: datetime | None = None) -> pl.DataFrame:
        self._reads += 1
        scratch = self.folder / f"read-{self._reads}"
        fetched = {name: self.store.fetch(file, scratch / name) for name, file in files.items()}
        groups: dict[str, list[Path]] = {}
        for name in sorted(fetched):
            groups.setdefault(name.split("/")[0], []).append(fetched[name])
        return plain_events(read_events(list(groups.values()), SPEC, since=since)).collect()

    def written(self, table: EventTable) -> dict[date, Counter[Any]]:
        """The keys of what is archived, by day, each as often as it is there."""
        found: dict[date, Counter[Any]] = {}
        for day, parts in EventArchive(self.store).days("films", table).items():
            for part in parts:
                path = self.store.fetch(part.file, self.folder / "part.parquet")
                keys = pl.read_parquet(path)[KEYS[table]].to_list()
                assert len(keys) == part.rows > 0
                found.setdefault(day, Counter()).update(keys)
        return found

    def in_folders(self, table: EventTable) -> pl.DataFrame:
        """As a person reads it: all days of a folder at once."""
        return pl.read_parquet(self.folder / "artifacts/events/films" / table / "**/*.parquet", hive_partitioning=True)

    def check(self, until: date) -> None:
        """All days before `until` are written, each row once, and the folder shows just that."""
        for table in TABLES:
            written = self.written(table)
            stored = self.days.counts("films", table, datetime(until.year, until.month, until.day, tzinfo=UTC))
            assert {day: sum(keys.values()) for day, keys in written.items()} == dict(stored)
            assert all(set(keys.values()) == {1} for keys in written.values())
            if stored:
                shown = self.in_folders(table)
                assert Counter(shown[KEYS[table]].to_list()) == sum(written.values(), Counter())
                assert shown["date"].to_list() == shown["at"].dt.date().to_list()
