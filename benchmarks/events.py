"""Events: how many a second are acknowledged and joined, embedded and behind NATS JetStream; and a stream of a million answers against
a batch count of the same events.

    python -m benchmarks.events [--parts rate http exact days] [--seconds 20] [--answers 1000000]

The rate is that of `EventIntake` with its event log, without HTTP: batches of checked events, half impressions of a front end, half
clicks that name them, from four threads. Joined means: attributed in the database. The part `http` sends the same to a whole platform as
NDJSON of 500 lines a request; the sender is the benchmark's process. `days` compacts.
"""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

import httpx
import psutil
from sqlalchemy import Engine, text

from benchmarks.events_days import days_of_events
from benchmarks.events_stream import ATTRIBUTION, T0, World
from benchmarks.harness import Fields, Missed, Outcome, Row, benchmark, cpu_seconds, databases, say, scratch, timed, until
from benchmarks.rollout_world import recommender_spec
from services.eventlog.jetstream import JetStreamEventLog
from services.eventlog.kpis import SqlKpis
from services.eventlog.nats import JetStream
from services.eventlog.sql import SqlEventLog
from services.gateway.event_intake import EventIntake
from services.store.engine import open_engine, sqlite_url
from shared.contracts.events import Event, Impression, Interaction, Shown
from shared.domain.entity_ids import IdHash, IdKinds
from shared.ports import EventLog
from shared.testing.event_oracle import Oracle
from tests.servers.nats_server import NatsServer
from tests.servers.platform_process import PlatformProcess
from tests.support.platform_world import spec, write_world

T = TypeVar("T")
Part = Literal["rate", "http", "days", "exact"]
_PARTS: tuple[Part, ...] = ("rate", "http", "days", "exact")
_SENDERS, _BATCH, _PIECE = 4, 500, 1000
_SPEC = recommender_spec()
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


@benchmark("events")
def events(parts: Sequence[Part] = _PARTS, seconds: float = 20, answers: int = 1_000_000) -> Iterator[Outcome]:
    if len(parts) < len(_PARTS):
        yield Fields(bench=f"events-{parts[0]}")
    for part in parts:
        with scratch() as folder:
            if part == "rate":
                yield from _embedded(seconds)
                yield from _streamed(folder, seconds)
            elif part == "http":
                yield from _over_http(folder / "plain", seconds, stream=False)
                yield from _over_http(folder / "streamed", seconds, stream=True)
            else:
                with _database() as (_, engine):
                    made = days_of_events(folder, engine, _SPEC, answers) if part == "days" else _exact(engine, World(answers))
                    for row in made:
                        yield row
                        if "differently" in row.metric and max(row.values):
                            yield Missed(f"{row.case}: no {row.metric}")


@contextmanager
def _database() -> Iterator[tuple[str, Engine]]:
    with databases() as new_database:
        url = new_database("sqlite", migrated=True)
        engine = open_engine(url)
        yield url, engine
        engine.dispose()


@dataclass(frozen=True)
class Sent:
    events: int
    seconds: float
    cpu: float
    """Of this process."""
    latencies: Sequence[float]
    """Of each batch."""


def send(make: Callable[[int], T], record: Callable[[T], object], seconds: float) -> Sent:
    """Makes and records numbered batches in threads, for so many seconds."""
    numbers, over = itertools.count(), threading.Event()

    def work(_: int) -> list[float]:
        latencies = []
        while not over.is_set():
            batch = make(next(numbers))
            latencies.append(timed(lambda batch=batch: record(batch))[0])  # type: ignore[misc]
        return latencies

    began, before = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(_SENDERS) as pool:
        running = [pool.submit(work, number) for number in range(_SENDERS)]
        time.sleep(seconds)
        over.set()
        latencies = [latency for thread in running for latency in thread.result()]
    return Sent(_BATCH * len(latencies), time.monotonic() - began, time.process_time() - before, latencies)


def _embedded(seconds: float) -> Iterator[Row]:
    with _database() as (_, engine):
        sent = _send_batches(SqlEventLog(engine), seconds)
        _check(engine, sent.events)
    for metric in ("events acknowledged", "events joined"):
        yield Row("embedded", "eyas: SQLite", metric, "1/s", [sent.events / sent.seconds])
    yield Row("embedded", "eyas: SQLite", "CPU, all in all", "us/event", [sent.cpu / sent.events * 1e6])


def _streamed(folder: Path, seconds: float) -> Iterator[Row]:
    with _database() as (url, engine):
        server = NatsServer(folder / "nats")
        server.start()
        joiner = subprocess.Popen([sys.executable, "-c", _JOINER, server.url, url])  # noqa: S603
        stream = JetStream(server.url)
        try:
            began, before = time.monotonic(), time.process_time()
            sent = _send_batches(JetStreamEventLog(stream, SqlEventLog(engine)), seconds)
            until("the stream is joined", lambda: not stream.waiting(), 3600, 0.05)
            joined, published = time.monotonic() - began, time.process_time() - before
            carried, served = (cpu_seconds([psutil.Process(pid)]) for pid in (joiner.pid, server.pid))
            _check(engine, sent.events)
        finally:
            joiner.terminate()
            joiner.wait()
            stream.close()
            server.kill()
    case = ("behind a stream", "eyas: NATS JetStream, SQLite")
    yield Row(*case, "events acknowledged", "1/s", [sent.events / sent.seconds])
    yield Row(*case, "events joined", "1/s", [sent.events / joined])
    for process, cpu in (("gateway", published), ("control plane", carried), ("nats-server", served)):
        yield Row(*case, f"CPU, {process}", "us/event", [cpu / sent.events * 1e6])


def _send_batches(log: EventLog, seconds: float) -> Sent:
    recommenders: Any = SimpleNamespace(get=lambda name: SimpleNamespace(spec=_SPEC, ids=IdKinds("integer", "integer")))
    clock = SimpleNamespace(now=lambda: datetime.now(UTC))
    intake = EventIntake(recommenders, log, clock, IdHash(b"bench"), lambda _: ())
    return send(_batch, intake.record, seconds)


def _numbers(batch: int) -> Iterator[tuple[int, int, list[int]]]:
    """Numbers of the answers of a batch, their users and items."""
    for number in range(batch * _BATCH // 2, (batch + 1) * _BATCH // 2):
        yield number, number * 7919 % 100_000, [(number + 31 * place) % 60_000 for place in range(10)]


def _batch(batch: int) -> list[Event]:
    made: list[Event] = []
    now = datetime.now(UTC)
    for n, user, items in _numbers(batch):
        made.append(Shown(kind="impression", recommender="films", user=user, items=tuple(items), request_id=f"p{n}", version=1, at=now))
        made.append(Interaction(id=f"e{n}", recommender="films", user=user, item=items[n % 10], kind="click", request_id=f"p{n}", at=now))
    return made


def _lines(batch: int) -> str:
    made, at = [], datetime.now(UTC).isoformat()
    for n, user, items in _numbers(batch):
        head = f'"recommender":"movies","user":{user},"request_id":"p{n}","at":"{at}"'
        made.append(f'{{"kind":"impression",{head},"version":1,"items":{items}}}')
        made.append(f'{{"kind":"click","id":"e{n}",{head},"item":{items[n % 10]}}}')
    return "\n".join(made)


def _check(engine: Engine, sent: int) -> None:
    """Every event is there, and every answer was hit."""
    earned = SqlKpis(engine).earned("films", 1, T0, datetime.now(UTC) + timedelta(hours=1), ATTRIBUTION, ())
    if not earned.answers == earned.hits == sent // 2:
        raise SystemExit(f"{sent} events were acknowledged, and {earned.answers} answers with {earned.hits} hits are there")


def _over_http(folder: Path, seconds: float, stream: bool) -> Iterator[Row]:
    """`eyas up` with a real tritonserver and a version that serves; its gateway, its joiner and its monitor are one process."""
    data, home, settings, pids = folder / "data", folder / "home", dict[str, str](), dict[str, int]()
    write_world(data)
    with ExitStack() as undo:
        if stream:
            nats = NatsServer(folder / "nats")
            nats.start()
            undo.callback(nats.kill)
            settings, pids = {"EYAS_EVENTS": nats.url}, {"nats-server": nats.pid}
        platform = undo.enter_context(PlatformProcess(home, data, settings=settings))
        run = platform.post("/v1/recommenders", spec(data) | {"model": {"family": "popularity"}, "gates": [{"parity": 1e-6}]})["run"]
        platform.wait_for_rollout(platform.wait_for_run(run, "registered")["rollout"], "promoted")
        assert platform.process is not None
        processes = {name: psutil.Process(pid) for name, pid in {"platform": platform.process.pid, **pids}.items()}
        client = undo.enter_context(httpx.Client(base_url=platform.client.base_url, headers=platform.client.headers, timeout=120))

        def post(lines: str) -> None:
            headers = {"Content-Type": "application/x-ndjson"}
            counts = client.post("/v1/events", content=lines, headers=headers).raise_for_status().json()
            if (counts["accepted"], counts["refused"]) != (_BATCH, 0):
                raise SystemExit(f"of {_BATCH} lines the platform took {counts}")

        began, before = time.monotonic(), {name: cpu_seconds([process]) for name, process in processes.items()}
        sent = send(_lines, post, seconds)
        engine = open_engine(sqlite_url(home / "eyas.db"))
        undo.callback(engine.dispose)
        now, hour = datetime.now(UTC), timedelta(hours=1)

        def joined() -> bool:
            earned = SqlKpis(engine).earned("movies", 1, now - hour, now + hour, timedelta(minutes=30), ())
            return earned.answers == earned.hits == sent.events // 2

        until("every event is there, and every answer was hit", joined, 600, 0.05)
        took, spent = time.monotonic() - began, {name: cpu_seconds([process]) - before[name] for name, process in processes.items()}
    case = ("NDJSON over HTTP, a whole platform", "eyas: NATS JetStream, SQLite" if stream else "eyas: SQLite")
    yield Row(*case, "events acknowledged", "1/s", [sent.events / sent.seconds])
    yield Row(*case, "events joined", "1/s", [sent.events / (took if stream else sent.seconds)])
    yield Row(*case, "time of a request", "ms", [1000 * latency for latency in sent.latencies])
    for name, cpu in {**spent, "sender": sent.cpu}.items():
        yield Row(*case, f"CPU, {name}", "us/event", [cpu / sent.events * 1e6])


def _exact(engine: Engine, world: World) -> Iterator[Row]:
    log, began = SqlEventLog(engine), time.monotonic()
    stream = world.stream()
    while some := list(itertools.islice(stream, _PIECE)):
        log.impressions([event for event in some if isinstance(event, Impression)])
        done = [event for event in some if isinstance(event, Interaction)]
        log.interactions(done, [True] * len(done), ATTRIBUTION)
    loading, memory = time.monotonic() - began, _memory()
    with engine.connect() as connection:
        size = int(connection.execute(text("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")).scalar_one())
    counting, oracle = timed(
        lambda: Oracle(map(world.impression, range(world.answers)), map(world.reaction, range(len(world.reacts))), ATTRIBUTION)
    )
    questions, different, seconds = _compare(SqlKpis(engine), oracle, world)
    case = f"{world.answers:,} answers, {len(world.reacts):,} reactions, {len(world):,} events sent"
    yield Row(case, "eyas: SQLite", "questions answered differently", f"of {questions}", [different])
    yield Row(case, "eyas: SQLite", "time to take all in", "s", [loading])
    yield Row(case, "eyas: SQLite", "events taken in and joined", "1/s", [len(world) / loading])
    yield Row(case, "eyas: SQLite", "peak memory while taking in", "MiB", [memory])
    yield Row(case, "eyas: SQLite", "database", "MiB", [size / 2**20])
    yield Row(case, "eyas: SQLite", "one question over one version", "s", seconds)
    yield Row(case, "batch count", "time", "s", [counting])
    yield Row(case, "batch count", "peak memory", "MiB", [_memory()])


def _compare(kpis: SqlKpis, oracle: Oracle, world: World) -> tuple[int, int, list[float]]:
    """Each version, over all of the time and over each quarter of it, by three attribution windows."""
    whole = timedelta(seconds=world.answers * 0.05)
    spans = [(T0, T0 + whole), *((T0 + whole * n / 4, T0 + whole * (n + 1) / 4) for n in range(4))]
    questions = list(itertools.product((1, 2), spans, (timedelta(minutes=5), ATTRIBUTION, timedelta(hours=12))))
    different, looking = 0, []
    for version, (since, end), attribution in questions:
        began = time.monotonic()
        earned = kpis.earned("films", version, since, end, attribution, {"purchase"})
        if (since, end) == spans[0]:
            looking.append(time.monotonic() - began)
        expected = oracle.earned("films", version, since, end, attribution, {"purchase"})
        rate = kpis.hit_rate("films", version, since, end, attribution)
        if earned != expected or (rate.answers, rate.hits) != (expected.answers, expected.hits):
            different += 1
            say(f"version {version}, {since} to {end}, {attribution}: {earned} is not {expected}")
    return len(questions), different, looking


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    os.environ.pop("EYAS_EVENTS", None)
    events()
