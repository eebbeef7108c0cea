"""Deletion of old events: the size of the database over simulated days, and requests to a platform that deletes.

python -m benchmarks.retention [--answers 10000000; 0: no sizes] [--days 60] [--kinds SQLite PostgreSQL] [--old 300000; 0: no requests]

Each simulated day adds equally many answers of ten items, and an interaction for each tenth answer; the spec keeps 30 days. Then a real
platform with old events answers 25 recommendations and stores 25 events a second, before and while it deletes them.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine, func, select, text, update

from benchmarks.harness import Outcome, Row, benchmark, databases, until
from benchmarks.rollout_world import NAME, World, recommender_spec
from services.control.compaction import Compactor
from services.control.event_retention import AT_ONCE, EventRetention
from services.eventlog.days import SqlEventDays
from services.eventlog.deletion import SqlEventDeletion
from services.eventlog.forgetting import SqlForgottenUsers
from services.eventlog.tables import event_deletions, impressions, instant, interactions
from services.store.engine import open_engine
from shared.artifacts import FsspecArtifacts
from shared.contracts.archive import TABLES, EventTable
from shared.domain.archive import DAY
from shared.domain.forgetting import UserDigest
from shared.domain.route import Route
from shared.ports import Recommender
from tests.servers.platform_process import PlatformProcess
from tests.support.compaction import InlineExecutor

_KEPT = 30
_SPEC = recommender_spec(keep={"impressions": f"{_KEPT}d", "interactions": f"{_KEPT}d"}, serve={"filter": [{"available": True}]})
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_AT_ONCE = 20_000
_PHASE = 40.0
"""Seconds of each phase of the load."""
_RATE = 50


class _World:
    """The clock and the one recommender of the simulation."""

    def __init__(self) -> None:
        self.time = _FIRST

    def now(self) -> datetime:
        return self.time

    def heads(self) -> dict[str, int]:
        return {NAME: 1}

    def get(self, name: str) -> Recommender:
        return Recommender(name, 1, _SPEC, _FIRST, _FIRST)


class _TimedDeletion(SqlEventDeletion):
    """Remembers the seconds of each transaction that deletes `AT_ONCE` rows."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.seconds: list[float] = []

    def delete(self, recommender: str, table: EventTable, before: date, limit: int) -> int:
        began = time.monotonic()
        rows = super().delete(recommender, table, before, limit)
        if rows == limit:
            self.seconds.append(time.monotonic() - began)
        return rows


@benchmark("retention")
def retention(
    answers: int = 10_000_000, days: int = 60, kinds: Sequence[str] = ("SQLite", "PostgreSQL"), old: int = 300_000
) -> Iterator[Outcome]:
    with databases(durable=False) as new_database:
        for kind in kinds if answers else ():
            engine = open_engine(new_database(kind, migrated=True))
            yield from _sizes(engine, kind, answers, days)
            engine.dispose()
    if old:
        yield from _requests(old)


def _sizes(engine: Engine, kind: str, answers: int, days: int) -> Iterator[Row]:
    world, case = _World(), f"{answers:,} answers in {days} days, of which {_KEPT} are kept"
    contender = f"eyas on {kind}"
    with tempfile.TemporaryDirectory() as folder:
        store = FsspecArtifacts(f"{folder}/artifacts")
        recommenders: Any = world
        event_days, deletion = SqlEventDays(engine), _TimedDeletion(engine)
        executor: Any = InlineExecutor(Path(folder) / "work", store)
        forgotten = SqlForgottenUsers(engine, UserDigest(b""))
        compactor = Compactor(recommenders, event_days, store, executor, world, timedelta(hours=1), forgotten)
        parts = (event_days, deletion, forgotten, store, world, timedelta(hours=1))
        deleter = EventRetention(recommenders, *parts, sleep=lambda _: None)
        sizes: dict[int, float] = {}
        for day in range(1, days + 1):
            _fill(engine, world.time, answers // days, (day - 1) * (answers // days), day // 7 + 1)
            world.time += DAY
            for _ in range(6):
                world.time += timedelta(hours=2)
                compactor.step()
                _delete(deleter)
            world.time -= timedelta(hours=12)
            sizes[day] = _size(engine)
            if day % 10 == 0:
                yield Row(case, contender, f"size after {day} days", "MB", [sizes[day]])
        newest = [sizes[day] for day in range(max(1, days - 9), days + 1)]
        yield Row(case, contender, "growth in the last 10 days", "%", [100 * (newest[-1] / newest[0] - 1)])
        yield Row(case, contender, "rows left", "", [float(_count(engine))])
        yield Row(case, contender, f"deletion of {AT_ONCE} rows, p99", "ms", [1e3 * float(np.quantile(deletion.seconds, 0.99))])
        yield Row(case, contender, f"deletion of {AT_ONCE} rows, longest", "ms", [1e3 * max(deletion.seconds)])
        yield Row(case, contender, "rows deleted per second of deletion", "1/s", [AT_ONCE * len(deletion.seconds) / sum(deletion.seconds)])


def _delete(deleter: EventRetention) -> None:
    deleter.step()
    while deleter.deletes:
        deleter.step()


def _fill(engine: Engine, start: datetime, count: int, first: int, version: int) -> None:
    """Straight into the tables, in the order of time."""
    users = np.random.default_rng(first).integers(0, 160_000, count).tolist()
    gap, midnight = 86_400_000_000 // count, instant(start)
    items = "[" + ",".join(str(31_337 + place) for place in range(10)) + "]"
    shown = _insert(engine, "impressions", "request_id recommender user version variant generation step items size at")
    done = _insert(engine, "interactions", "recommender user item positive kind at event")
    with engine.begin() as connection:
        for begin in range(0, count, _AT_ONCE):
            some = range(begin, min(begin + _AT_ONCE, count))
            connection.exec_driver_sql(
                shown, [(f"q{first + n:019d}", NAME, users[n], version, "stable", 1, -1, items, 10, midnight + n * gap) for n in some]
            )
            clicked = [n for n in some if n % 10 == 0]
            connection.exec_driver_sql(
                done, [(NAME, users[n], 31_337, True, "click", midnight + n * gap + 1, f"e{first + n:019d}") for n in clicked]
            )


def _insert(engine: Engine, table: str, columns: str) -> str:
    """Returns a statement for rows without names, which are added three times as fast."""
    names = columns.split()
    place = "%s" if engine.dialect.name == "postgresql" else "?"
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table} ({quoted}) VALUES ({', '.join([place] * len(names))})"  # noqa: S608  constants


def _size(engine: Engine) -> float:
    """Returns the megabytes of the database's files without its write-ahead log; PostgreSQL's after a vacuum, which makes no file
    smaller."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("VACUUM"))
            return float(connection.execute(select(func.pg_database_size(func.current_database()))).scalar_one()) / 1e6
        pages, size = (connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("page_count", "page_size"))
        return float(pages * size) / 1e6


def _count(engine: Engine) -> int:
    with engine.connect() as connection:
        return sum(connection.execute(select(func.count()).select_from(table)).scalar_one() for table in (impressions, interactions))


def _requests(old: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "platform/home"
        world = World(home, 1000, {})
        world.put_spec(_SPEC)
        world.serve(Route(world.version()))
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        for day in range(20):
            _fill(world.engine, today - (40 + day) * DAY, old // 20, day * (old // 20), 1)
        with PlatformProcess(home, Path(folder), settings={"EYAS_COMPACT_EVERY": "1"}) as platform:
            deletion = SqlEventDeletion(world.engine)
            until("old events are noticed", lambda: _marked(world.engine) == len(TABLES), 120, 1)
            until("the archive has them", lambda: "events: compacted" in platform.log, 300, 1)
            time.sleep(10)
            quiet = _load(platform, lambda: True)
            a_day_passes(world.engine)
            until("their days are refused", lambda: _marked(world.engine, refused=True) == len(TABLES), 180, 1)
            a_day_passes(world.engine)
            before = _count(world.engine)
            until("rows are deleted", lambda: _count(world.engine) < before - 1000, 180, 0.2)
            rows, began = _count(world.engine), time.monotonic()
            deleting = _load(platform, lambda: deletion.oldest(NAME, "impressions") != today.date())
            rate = (rows - _count(world.engine)) / (time.monotonic() - began)
            until("all are deleted", lambda: deletion.oldest(NAME, "impressions") == today.date(), 600, 1)
            again = _load(platform, lambda: True)
        world.close()
    case = f"{_RATE} requests/s, {old:,} old answers, SQLite"
    for name, phase in (("quiet", quiet), ("deleting", deleting), ("quiet again", again)):
        for path, seconds in phase.items():
            yield Row(case, name, f"{path}, median", "ms", [1e3 * float(np.median(seconds))])
            yield Row(case, name, f"{path}, p99 of {len(seconds)}", "ms", [1e3 * float(np.quantile(seconds, 0.99))])
    yield Row(case, "deleting", "rows deleted, less those added", "1/s", [rate])


def a_day_passes(engine: Engine) -> None:
    """Lets the steps before a deletion be a day older."""
    with engine.begin() as connection:
        connection.execute(update(event_deletions).values(refused_at=event_deletions.c.refused_at - 86_400_000_000))


def _marked(engine: Engine, refused: bool = False) -> int:
    with engine.connect() as connection:
        marked = select(func.count()).select_from(event_deletions).where(event_deletions.c.refused_before > (0 if refused else -1))
        return connection.execute(marked).scalar_one()


def _load(platform: PlatformProcess, goes_on: Callable[[], bool]) -> dict[str, list[float]]:
    """Returns the seconds of each request; a request that fails ends the benchmark."""
    seconds: dict[str, list[float]] = {"recommend": [], "events": []}
    ends = threading.Event()
    end = time.monotonic() + _PHASE
    while time.monotonic() < end and goes_on() and not ends.wait(2 / _RATE):
        number = len(seconds["events"])
        request_id = _ask(platform, seconds["recommend"], f"recommend/{NAME}", {"user": number % 900 + 1, "k": 10})["request_id"]
        event = {"recommender": NAME, "user": number % 900 + 1, "item": 5, "kind": "click", "request_id": request_id}
        _ask(platform, seconds["events"], "events", {"events": [{**event, "id": f"l{request_id}"}]})
    return seconds


def _ask(platform: PlatformProcess, seconds: list[float], path: str, body: dict[str, Any]) -> Any:
    began = time.monotonic()
    answer = platform.client.post(f"/v1/{path}", json=body)
    seconds.append(time.monotonic() - began)
    answer.raise_for_status()
    return answer.json()


if __name__ == "__main__":
    retention()
