"""What compaction saves a run: events of ten days read out of the database as CSV, and as the Parquet files of their days."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
from sqlalchemy import Engine, insert

from benchmarks.harness import Row, timed, until
from pipelines.data.interactions import plain_events, read_events
from services.control.archive import EventArchive
from services.control.compaction import Compactor
from services.control.snapshots import Snapshots
from services.eventlog.days import SqlEventDays
from services.eventlog.deletion import SqlEventDeletion
from services.eventlog.forgetting import SqlForgottenUsers
from services.eventlog.sql import SqlEventLog
from services.eventlog.tables import impressions, interactions
from services.executors.local import LocalExecutor
from services.store.installation import id_hash
from shared.artifacts import FsspecArtifacts
from shared.contracts.archive import TABLES
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files
from shared.domain.forgetting import UserDigest
from shared.ports import Recommender

_DAYS, _LONG = 10, 3600.0
_NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)
_FIRST = datetime(2026, 3, 10, tzinfo=UTC)
_AT_ONCE = 20_000


class _World:
    """The clock and the one recommender."""

    def __init__(self, spec: RecommenderSpec) -> None:
        self._spec = spec

    def now(self) -> datetime:
        return _NOW

    def heads(self) -> dict[str, int]:
        return {self._spec.name: 1}

    def get(self, name: str) -> Recommender:
        return Recommender(name, 1, self._spec, _NOW, _NOW)


def days_of_events(folder: Path, engine: Engine, spec: RecommenderSpec, count: int) -> Iterator[Row]:
    _fill(engine, spec.name, count)
    store, world = FsspecArtifacts(str(folder / "artifacts")), _World(spec)
    log, days = SqlEventLog(engine), SqlEventDays(engine)
    forgotten = SqlForgottenUsers(engine, UserDigest(b""))
    snapshots, scratch = Snapshots(log, days, SqlEventDeletion(engine), store, id_hash(engine), forgotten), folder / "scratch"
    exporting, files = timed(lambda: snapshots.take(spec.name, None, _NOW))
    reading, before = timed(lambda: _read(store, files, scratch / "csv", spec))
    executor = LocalExecutor(folder / "work", {"etl": "pipelines.stages.etl"})
    recommenders: Any = world
    compactor = Compactor(recommenders, days, store, executor, world, timedelta(hours=1), forgotten)

    def is_compacted() -> bool:
        compactor.step()
        return bool(EventArchive(store).compactions(spec.name))

    compacting, _ = timed(lambda: until("a compaction", is_compacted, _LONG, 0.1))
    executor.close()
    taking, parts = timed(lambda: snapshots.take(spec.name, None, _NOW))
    scanning, after = timed(lambda: _read(store, parts, scratch / "parquet", spec))
    sizes = {table: sum(part.file.size for day in EventArchive(store).days(spec.name, table).values() for part in day) for table in TABLES}
    case, mebibyte = f"{count:,} interactions and as many impressions of {_DAYS} days", 2**20
    yield Row(case, "eyas: CSV, as before", "snapshot for a run", "s", [exporting])
    yield Row(case, "eyas: CSV, as before", "read by etl", "s", [reading])
    yield Row(case, "eyas: CSV, as before", "interactions", "MiB", [sum(file.size for file in files.values()) / mebibyte])
    yield Row(case, "eyas: Parquet by day", "snapshot for a run", "s", [taking])
    yield Row(case, "eyas: Parquet by day", "read by etl", "s", [scanning])
    for table in ("interactions", "impressions"):
        yield Row(case, "eyas: Parquet by day", table, "MiB", [sizes[table] / mebibyte])
    yield Row(case, "eyas: Parquet by day", "to compact all of it, once", "s", [compacting])
    yield Row(case, "eyas: Parquet by day", "rows that etl reads differently", "", [0 if after.equals(before) else 1])


def _fill(engine: Engine, name: str, count: int) -> None:
    """Straight into the tables: how fast events are taken in is another part's question."""
    start, gap = int(_FIRST.timestamp()) * 1_000_000, _DAYS * 86_400_000_000 // count
    for first in range(0, count, _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, count))
        shown = [
            {
                "request_id": f"q{n:016d}",
                "user": n * 7919 % 100_000,
                "version": 1,
                "items": str([(n + 31 * place) % 60_000 for place in range(10)]),
            }
            | {"recommender": name, "variant": "stable", "generation": 1, "step": -1, "at": start + n * gap, "size": 10}
            for n in numbers
        ]
        done = [
            {"recommender": name, "user": n * 7919 % 100_000, "item": (n + 31) % 60_000, "positive": True, "kind": "click"}
            | {"event": f"e{n}", "request_id": f"q{n:016d}", "at": start + n * gap + 1}
            for n in numbers
        ]
        with engine.begin() as connection:
            connection.execute(insert(impressions), shown)
            connection.execute(insert(interactions), done)


def _read(store: FsspecArtifacts, files: Files, folder: Path, spec: RecommenderSpec) -> pl.DataFrame:
    groups: dict[str, list[Path]] = {}
    for name in sorted(files):
        groups.setdefault(name.split("/")[0], []).append(store.fetch(files[name], folder / name))
    return plain_events(read_events(list(groups.values()), spec)).collect()
