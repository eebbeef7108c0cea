"""An artifact store in memory, stores that say what a test wants, and a clock that ages what lies in the store."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fsspec.implementations.memory import MemoryFileSystem

from services.control.garbage_collector import GarbageCollector
from shared.artifacts import FsspecArtifacts, FsspecTrash
from shared.contracts.stage import File, Manifest
from shared.domain.errors import NotFound
from shared.domain.retention import Retention, run_of
from shared.domain.route import Route
from shared.domain.run import RunStatus, StageDone
from shared.ports import LogName, Record, RunRecord, Version
from shared.testing.records import RUN_SPEC

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
DOCUMENT = {
    "name": "films",
    "data": {"interactions": {"uri": "a.csv"}, "items": {"uri": "b.csv", "key": "film"}},
    "schema": {"user": "person", "item": "film", "time": "at", "label": {"column": "stars", "positive": ">= 4"}},
}


class Clock:
    def __init__(self) -> None:
        self.time = datetime.now(UTC)

    def now(self) -> datetime:
        return self.time


@dataclass
class Rows:
    """Of every store that the collector reads, as much as it reads."""

    clock: Clock
    runs: dict[str, RunRecord] = field(default_factory=dict)
    versions: list[Version] = field(default_factory=list)
    marks: dict[int, datetime] = field(default_factory=dict)
    tagged: dict[str, int] = field(default_factory=dict)
    route: Route | None = None
    before: int | None = None
    gone: dict[int, datetime] = field(default_factory=dict)
    outputs: set[str] = field(default_factory=set)
    deleted_at: datetime | None = None
    forgotten: list[datetime] = field(default_factory=list)

    def run(self, id: str, state: str = "etl", stages: Sequence[str] = (), serving: int | None = None) -> None:
        now = self.clock.now()
        done = tuple(StageDone(attempt.rsplit("-", 2)[1], attempt, now, now) for attempt in stages)
        spec = replace(RUN_SPEC, document=DOCUMENT, serving=serving)
        self.runs[id] = Record(id, "films", spec, RunStatus(state=state, stages=done), now, now)

    # RunStore and RolloutStore
    def get(self, id: str) -> Any:
        if id == "films":
            return self.route
        if id not in self.runs:
            raise NotFound(id)
        return self.runs[id]

    def list(self, recommender: str | None = None, *, active: bool | None = None, limit: int = 0, before: str | None = None) -> Any:
        return [one for one in self.runs.values() if one.status.state not in ("registered", "failed", "cancelled")]

    # Registry
    def everything(self) -> Sequence[Version]:
        return list(self.versions)

    def collected(self, recommender: str) -> Mapping[int, datetime]:
        return dict(self.marks)

    def all_collected(self) -> Mapping[str, Mapping[int, datetime]]:
        return {name: dict(self.marks) for name in {one.recommender for one in self.versions}}

    def tags(self, recommender: str) -> Mapping[str, int]:
        return dict(self.tagged)

    def collect(self, recommender: str, number: int, now: datetime) -> bool:
        if number in self.tagged.values() or (self.route and number in self.route.named()):
            return False
        self.marks.setdefault(number, now)
        return True

    # RouteStore
    def previous(self, recommender: str) -> int | None:
        return self.before

    def closed(self) -> Mapping[str, datetime]:
        return {"films": self.deleted_at} if self.deleted_at else {}

    def left(self, recommender: str) -> Mapping[int, datetime]:
        return dict(self.gone)

    # Leftovers
    def reusable(self) -> frozenset[str]:
        return frozenset(self.outputs)

    def forget(self, outputs_before: datetime, answers_before: datetime) -> int:
        return 0

    def forget_log(self, log: LogName, before: datetime) -> int:
        return 0

    # ForgottenUsers
    def recommenders(self) -> Collection[str]:
        return {"films"} if self.forgotten else set()

    def newest(self, recommender: str, until: datetime | None = None) -> datetime | None:
        return max((at for at in self.forgotten if until is None or at <= until), default=None)


class NoRollouts:
    def list(self, *_: Any, **__: Any) -> Any:
        return []


class Heap:
    """A store at `url` (by default in memory) with its collector."""

    def __init__(self, retention: Retention | None = None) -> None:
        self.url = f"memory://heap-{secrets.token_hex(6)}"
        self.clock = Clock()
        self.rows = Rows(self.clock)
        self.store = FsspecArtifacts(self.url)
        self.retention = retention or Retention(versions=1, served=DAY, runs=DAY, grace=HOUR)
        self._fs = MemoryFileSystem()
        self._seen: dict[str, object] = {}

    def collector(self) -> GarbageCollector:
        rows: Any = self.rows
        none: Any = NoRollouts()
        return GarbageCollector(FsspecTrash(self.url), rows, rows, rows, none, (rows, rows), self.clock, self.retention)

    def put(self, text: str) -> File:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "content"
            path.write_text(text)
            file = self.store.put(path)
        self.stamp()
        return file

    def manifest(self, attempt: str, *files: File) -> Manifest:
        now = self.clock.now()
        stage: Any = attempt.rsplit("-", 2)[1]
        named = {f"file-{number}": file for number, file in enumerate(files)}
        return Manifest(stage=stage, run=run_of(attempt), attempt=attempt, started=now, ended=now, files=named)

    def publish(self, attempt: str, *files: File) -> None:
        self.store.publish(self.manifest(attempt, *files))
        self.stamp()

    def stamp(self) -> None:
        """What was written since the last time was written now, by the clock of the test."""
        prefix = f"/{self.url.removeprefix('memory://')}/"
        for path, file in self._fs.store.items():
            if path.startswith(prefix) and self._seen.get(path) is not file:
                self._seen[path] = file
                file.modified = self.clock.now()

    def pass_by(self, span: timedelta) -> None:
        self.stamp()
        self.clock.time += span

    def has(self, file: File) -> bool:
        return bool(self._fs.exists(f"{self.url}/blobs/{file.sha256[:2]}/{file.sha256}"))

    def names(self, folder: str) -> set[str]:
        return {path.rsplit("/", 1)[1] for path in self._fs.find(f"{self.url}/{folder}")}

    def close(self) -> None:
        prefix = f"/{self.url.removeprefix('memory://')}/"
        for path in [path for path in self._fs.store if path.startswith(prefix)]:
            del self._fs.store[path]
        self._fs.pseudo_dirs[:] = [path for path in self._fs.pseudo_dirs if not f"{path}/".startswith(prefix)]
