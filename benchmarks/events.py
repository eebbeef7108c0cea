"""Events: how many a second are acknowledged and joined, embedded and behind NATS JetStream; and a stream of a million answers against
a batch count of the same events.

    python -m benchmarks.events [--parts rate http exact days] [--seconds 20] [--answers 1000000]

The rate is that of `EventIntake` with its event log, without HTTP: batches of checked events, half impressions of a front end, half
clicks that name them, from four threads. Joined means: attributed in the database. The part `http` sends the same to a whole
platform; `days` compacts.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from rich.console import Console
from sqlalchemy import Engine, text

from benchmarks.events_days import days_of_events
from benchmarks.events_http import over_http
from benchmarks.events_stream import ATTRIBUTION, T0, World
from benchmarks.report import Row, publish
from services.eventlog.jetstream import JetStreamEventLog
from services.eventlog.kpis import SqlKpis
from services.eventlog.nats import JetStream
from services.eventlog.sql import SqlEventLog
from services.gateway.event_intake import EventIntake
from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
from shared.contracts.events import Event, Impression, Interaction, Shown
from shared.contracts.spec import RecommenderSpec
from shared.ports import EventLog
from shared.testing.event_oracle import Oracle
from tests.servers.nats_server import NatsServer

_PARTS = ["rate", "http", "days", "exact"]
_SENDERS, _BATCH, _AT_ONCE = 4, 500, 1000
_SPEC = RecommenderSpec.model_validate(
    {
        "name": "films",
        "data": {"interactions": {"uri": "a.csv"}, "items": {"uri": "b.csv", "key": "movieId"}},
        "schema": {"user": "userId", "item": "movieId", "time": "t", "label": {"column": "rating", "positive": ">= 4"}},
    }
)
_JOINER = """
import sys
from services.eventlog.jetstream import Joiner
from services.eventlog.nats import JetStream
from services.eventlog.sql import SqlEventLog
from services.store.engine import open_engine
joiner = Joiner(JetStream(sys.argv[1]), SqlEventLog(open_engine(sys.argv[2])))
while True:
    joiner.step()
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", default=_PARTS, choices=_PARTS)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--answers", type=int, default=1_000_000)
    asked = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder:
        if "rate" in asked.parts:
            rows += _embedded(Path(folder) / "sql", asked.seconds) + _streamed(Path(folder) / "nats", asked.seconds)
        if "http" in asked.parts:
            rows += over_http(Path(folder) / "http", asked.seconds, False) + over_http(Path(folder) / "streamed", asked.seconds, True)
        if "days" in asked.parts:
            with _database(Path(folder) / "days") as (_, engine):
                rows += days_of_events(Path(folder) / "days", engine, _SPEC, asked.answers)
        if "exact" in asked.parts:
            rows += _exact(Path(folder) / "exact", World(asked.answers))
    publish("events" if len(asked.parts) == len(_PARTS) else f"events-{asked.parts[0]}", rows)
    return 0 if all(max(row.values) == 0 for row in rows if "differently" in row.metric) else 1


@contextmanager
def _database(folder: Path) -> Iterator[tuple[str, Engine]]:
    folder.mkdir(parents=True)
    url = sqlite_url(folder / "eyas.db")
    engine = open_engine(url)
    upgrade(engine)
    yield url, engine
    engine.dispose()


def _embedded(folder: Path, seconds: float) -> list[Row]:
    with _database(folder) as (_, engine):
        before = time.process_time()
        sent, took = _send(SqlEventLog(engine), seconds)
        spent = time.process_time() - before
        _check(engine, sent)
    rows = [Row("embedded", "eyas: SQLite", metric, "1/s", [sent / took]) for metric in ("events acknowledged", "events joined")]
    return [*rows, Row("embedded", "eyas: SQLite", "CPU, all in all", "us/event", [spent / sent * 1e6])]


def _streamed(folder: Path, seconds: float) -> list[Row]:
    with _database(folder) as (url, engine):
        server = NatsServer(folder / "nats")
        server.start()
        joiner = subprocess.Popen([sys.executable, "-c", _JOINER, server.url, url])  # noqa: S603
        stream = JetStream(server.url)
        try:
            began, before = time.monotonic(), time.process_time()
            sent, took = _send(JetStreamEventLog(stream, SqlEventLog(engine)), seconds)
            while stream.waiting():
                time.sleep(0.05)
            joined, published = time.monotonic() - began, time.process_time() - before
            carried, served = _cpu(joiner.pid), _cpu(server.pid)
            _check(engine, sent)
        finally:
            joiner.terminate()
            joiner.wait()
            stream.close()
            server.kill()
    where = ("behind a stream", "eyas: NATS JetStream, SQLite")
    rates = ("events acknowledged", sent / took), ("events joined", sent / joined)
    spent = ("gateway", published), ("control plane", carried), ("nats-server", served)
    return [
        *(Row(*where, metric, "1/s", [value]) for metric, value in rates),
        *(Row(*where, f"CPU, {who}", "us/event", [value / sent * 1e6]) for who, value in spent),
    ]


def _send(events: EventLog, seconds: float) -> tuple[int, float]:
    """How many were acknowledged, and in how long."""
    recommenders: Any = SimpleNamespace(get=lambda name: SimpleNamespace(spec=_SPEC))
    feedback, numbers = EventIntake(recommenders, events, SimpleNamespace(now=lambda: datetime.now(UTC))), itertools.count()
    ending = threading.Event()

    def work(_: int) -> int:
        sent = 0
        while not ending.is_set():
            batch = _batch(next(numbers))
            feedback.record(batch)
            sent += len(batch)
        return sent

    began = time.monotonic()
    with ThreadPoolExecutor(_SENDERS) as pool:
        working = [pool.submit(work, n) for n in range(_SENDERS)]
        time.sleep(seconds)
        ending.set()
        total = sum(one.result() for one in working)
    return total, time.monotonic() - began


def _batch(number: int) -> list[Event]:
    found: list[Event] = []
    now = datetime.now(UTC)
    for n in range(number * _BATCH // 2, (number + 1) * _BATCH // 2):
        user, items = n * 7919 % 100_000, tuple((n + 31 * place) % 60_000 for place in range(10))
        found.append(Shown(kind="impression", recommender="films", user=user, items=items, request_id=f"p{n}", version=1, at=now))
        click = Interaction(id=f"e{n}", recommender="films", user=user, item=items[n % 10], kind="click", request_id=f"p{n}", at=now)
        found.append(click)
    return found


def _check(engine: Engine, sent: int) -> None:
    """Every event is there, and every answer was hit."""
    earned = SqlKpis(engine).earned("films", 1, T0, datetime.now(UTC) + timedelta(hours=1), ATTRIBUTION, ())
    if not earned.answers == earned.hits == sent // 2:
        raise SystemExit(f"{sent} events were acknowledged, and {earned.answers} answers with {earned.hits} hits are there")


def _exact(folder: Path, world: World) -> list[Row]:
    with _database(folder) as (_, engine):
        log, began = SqlEventLog(engine), time.monotonic()
        stream = world.stream()
        while some := list(itertools.islice(stream, _AT_ONCE)):
            log.impressions([one for one in some if isinstance(one, Impression)])
            done = [one for one in some if isinstance(one, Interaction)]
            log.interactions(done, [True] * len(done), ATTRIBUTION)
        loading, memory = time.monotonic() - began, _memory()
        with engine.connect() as connection:
            size = int(connection.execute(text("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")).scalar_one())
        began = time.monotonic()
        oracle = Oracle(map(world.impression, range(world.answers)), map(world.reaction, range(len(world.reacts))), ATTRIBUTION)
        counting = time.monotonic() - began
        asked, different, looking = _compare(SqlKpis(engine), oracle, world)
    case = f"{world.answers:,} answers, {len(world.reacts):,} reactions, {len(world):,} events sent"
    return [
        Row(case, "eyas: SQLite", "questions answered differently", f"of {asked}", [different]),
        Row(case, "eyas: SQLite", "time to take all in", "s", [loading]),
        Row(case, "eyas: SQLite", "events taken in and joined", "1/s", [len(world) / loading]),
        Row(case, "eyas: SQLite", "peak memory while taking in", "MiB", [memory]),
        Row(case, "eyas: SQLite", "database", "MiB", [size / 2**20]),
        Row(case, "eyas: SQLite", "one question over one version", "s", looking),
        Row(case, "batch count", "time", "s", [counting]),
        Row(case, "batch count", "peak memory", "MiB", [_memory()]),
    ]


def _compare(kpis: SqlKpis, oracle: Oracle, world: World) -> tuple[int, int, list[float]]:
    """Each version, over all of the time and over each quarter of it, by three attribution windows."""
    whole = timedelta(seconds=world.answers * 0.05)
    spans = [(T0, T0 + whole), *((T0 + whole * n / 4, T0 + whole * (n + 1) / 4) for n in range(4))]
    asked = different = 0
    looking: list[float] = []
    for version, (since, until), attribution in itertools.product((1, 2), spans, (timedelta(minutes=5), ATTRIBUTION, timedelta(hours=12))):
        began = time.monotonic()
        found = kpis.earned("films", version, since, until, attribution, {"purchase"})
        if (since, until) == spans[0]:
            looking.append(time.monotonic() - began)
        expected = oracle.earned("films", version, since, until, attribution, {"purchase"})
        rate = kpis.hit_rate("films", version, since, until, attribution)
        asked += 1
        if found != expected or (rate.answers, rate.hits) != (expected.answers, expected.hits):
            different += 1
            Console(stderr=True).print(f"version {version}, {since} to {until}, {attribution}: {found} is not {expected}")
    return asked, different, looking


def _cpu(pid: int) -> float:
    """Seconds so far; a start of Python among them."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
