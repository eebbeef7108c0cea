"""The event log on a real NATS JetStream keeps the same promises as the one in SQL, and loses nothing that it acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy import text as sql

from services.eventlog.jetstream import JetStreamEventLog, JoinedMessages, Joiner
from services.eventlog.kpis import SqlKpis
from services.eventlog.nats import STREAM, JetStream, Message
from services.eventlog.sql import SqlEventLog
from services.home import Home
from services.settings import Settings
from services.store.engine import sqlite_url
from services.wiring.state import State
from shared.contracts.events import Impression, Interaction
from shared.domain.errors import Invalid, Unavailable
from shared.ports import HitRate, IngestResult
from shared.testing.event_oracle import Oracle
from shared.testing.event_suite import ATTRIBUTION, LATER, T0, EventLogSuite, KpiSourceSuite, did, minute, shown, take
from tests.servers.nats_server import NatsServer
from tests.support.event_streams import check, send

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("EYAS_TEST_KILLS", "6"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    made = NatsServer(tmp_path_factory.mktemp("nats"))
    made.start()
    yield made
    made.kill()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[NatsServer]:
    """One that a test may kill."""
    made = NatsServer(tmp_path / "own", "eyas", "hunter2")
    yield made
    made.kill()


@pytest.fixture
def stream(server: NatsServer) -> Iterator[JetStream]:
    made = JetStream(server.url)
    yield made
    made.close()
    asyncio.run(_forget(server.url))


async def _forget(url: str) -> None:
    """The next test has a stream of its own."""
    import nats
    from nats.js.errors import NotFoundError

    client = await nats.connect(url)
    with contextlib.suppress(NotFoundError):
        await client.jetstream().delete_stream(STREAM)
    await client.close()


@pytest.fixture
def engine(sqlite_engine: Engine) -> Engine:
    return sqlite_engine


@pytest.fixture
def kpis(engine: Engine) -> SqlKpis:
    return SqlKpis(engine)


class Settled(JetStreamEventLog):
    """Each call waits until the joiner has carried all into the database, and says what the joiner said."""

    def __init__(self, stream: JetStream, joined: SqlEventLog) -> None:
        super().__init__(stream, joined)
        self._joiner = Joiner(stream, joined)
        self._lock = threading.Lock()
        self._told = JoinedMessages()

    def impressions(self, impressions: Any) -> None:
        super().impressions(impressions)
        with self._lock:
            self._settle()

    def interactions(self, interactions: Any, positive: Any, attribution: timedelta) -> IngestResult:
        assert super().interactions(interactions, positive, attribution) == IngestResult(len(interactions), None, None, None)
        with self._lock:
            self._settle()
            messages, self._told = self._told, JoinedMessages()
        return IngestResult(messages.new, messages.duplicates, messages.conflicts, messages.hits)

    def _settle(self) -> None:
        """What comes of one thread's events may be found while another one waits."""
        self._told = both(self._told, drain(self._stream, self._joiner))


def drain(stream: JetStream, joiner: Joiner) -> JoinedMessages:
    total = JoinedMessages()
    while stream.waiting():
        total = both(total, joiner.join(0.05))
    return total


def both(first: JoinedMessages, other: JoinedMessages) -> JoinedMessages:
    return JoinedMessages(*(a + b for a, b in zip(vars(first).values(), vars(other).values(), strict=True)))


@pytest.fixture
def log(stream: JetStream, engine: Engine) -> Settled:
    return Settled(stream, SqlEventLog(engine))


class TestJetStreamEventLog(EventLogSuite, KpiSourceSuite):
    def test_a_time_without_a_zone_is_refused(self, log: Settled) -> None:
        with pytest.raises(Invalid, match="zone"):
            log.impressions([shown("a", datetime(2026, 3, 1, 12))])

    def test_a_call_that_is_sent_again_is_dropped_by_the_server(self, stream: JetStream, engine: Engine) -> None:
        log = JetStreamEventLog(stream, SqlEventLog(engine))
        for at in (minute(1), minute(2)):
            take(log, did(id="a", at=at), did(11, id="b", at=at))
        assert stream.waiting() == 1
        take(log, did(id="a", at=minute(1)), did(12, id="b", at=minute(1)))
        assert drain(stream, Joiner(stream, SqlEventLog(engine))) == JoinedMessages(2, 2, 2, 1, 0)

    def test_large_calls_travel_in_messages_that_a_server_takes(self, stream: JetStream, engine: Engine, kpis: SqlKpis) -> None:
        log = Settled(stream, SqlEventLog(engine))
        wide = tuple(range(-(2**63), -(2**63) + 1000))
        log.impressions([shown(f"r{n}", items=wide, user=n) for n in range(300)])
        ids = [f"{n:0128d}" for n in range(2500)]
        found = take(log, *(did(wide[n % 9], minute(1), user=n % 300, id=id, request_id=f"r{n % 300}") for n, id in enumerate(ids)))
        assert (found.new, found.hits) == (2500, 300)

    def test_a_stream_in_any_order_is_counted_exactly(self, log: Settled, kpis: SqlKpis) -> None:
        rng = random.Random(3)
        shows = [shown(f"r{n}", minute(n / 5), user=n % 7, version=1 + n % 2, items=(10 + n % 3, 13)) for n in range(150)]
        done = [
            did(rng.randint(10, 14), minute(rng.uniform(0, 60)), user=rng.randrange(7), id=f"e{n}", kind=rng.choice(["click", "purchase"]))
            for n in range(250)
        ]
        events: list[Impression | Interaction] = [*shows, *done, *shows[:50], *done[:90]]
        rng.shuffle(events)
        send(log, events, rng)
        check(kpis, Oracle(shows, done, ATTRIBUTION))


class Broken(SqlEventLog):
    """Away, or choking on one user's events."""

    away = False
    chokes_on: int | None = None

    def interactions(self, interactions: Any, positive: Any, attribution: timedelta) -> IngestResult:
        if self.away:
            raise Unavailable("the database is away")
        if any(one.user == self.chokes_on for one in interactions):
            raise ValueError("a lump")
        return super().interactions(interactions, positive, attribution)


def count(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(sql("SELECT count(*) FROM interactions")).scalar_one())


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given back comes again at once."""
    monkeypatch.setattr("services.eventlog.jetstream._AGAIN", 0.01)


@pytest.mark.requirement("G-05")
def test_while_the_database_is_away_events_are_acknowledged_and_joined_when_it_is_back(stream: JetStream, engine: Engine) -> None:
    joined = Broken(engine)
    log, joiner = JetStreamEventLog(stream, joined), Joiner(stream, joined)
    joined.away = True
    take(log, did(id="a"))
    with pytest.raises(Unavailable, match="database is away"):
        joiner.join(0.5)
    assert (count(engine), stream.waiting()) == (0, 1)
    joined.away = False
    drain(stream, joiner)
    assert count(engine) == 1


def test_an_event_that_cannot_be_stored_holds_up_no_other_and_stays(stream: JetStream, engine: Engine, caplog: Any) -> None:
    joined = Broken(engine)
    joined.chokes_on = 2
    log, joiner = JetStreamEventLog(stream, joined), Joiner(stream, joined)
    for user in (1, 2, 3):
        take(log, did(user=user, id=f"e{user}"))
    stream.publish([Message("x", b"\xff no parcel"), Message("y", json.dumps({"format": 99}).encode())])
    joiner.join(0.5)
    assert (count(engine), stream.waiting()) == (2, 3)
    assert "not a message of Eyas" in caplog.text
    assert "a newer release wrote it" in caplog.text
    joined.chokes_on = None
    while count(engine) < 3:
        joiner.join(0.1)


def test_a_server_that_is_away_is_unavailable_and_found_again_without_its_password_in_any_message(
    own: NatsServer, engine: Engine, caplog: Any
) -> None:
    server, stream = own, JetStream(own.url)
    log = JetStreamEventLog(stream, SqlEventLog(engine))
    with pytest.raises(Unavailable, match=f"NATS at 127.0.0.1:{server.port} ") as refused:
        take(log, did(id="a"))
    server.start()
    take(log, did(id="a"))
    server.kill()
    with pytest.raises(Unavailable) as lost:
        take(log, did(id="b"))
    wrong = JetStream(server.url.replace("hunter2", "hunter3"))
    server.start()
    with pytest.raises(Unavailable) as unknown:
        take(JetStreamEventLog(wrong, SqlEventLog(engine)), did(id="c"))
    take(log, did(id="b"))
    assert drain(stream, Joiner(stream, SqlEventLog(engine))).new == 2
    assert "hunter" not in f"{refused.value} {lost.value} {unknown.value} {caplog.text}"
    for one in (stream, wrong):
        one.close()


def test_events_survive_a_restart_with_less_storage_and_too_little_storage_is_named(own: NatsServer, engine: Engine) -> None:
    own.storage = 10 << 30
    own.start()
    stream = JetStream(own.url)
    log = JetStreamEventLog(stream, SqlEventLog(engine))
    take(log, did(id="a"))
    own.kill()
    own.storage = 2 << 30
    own.start()
    take(log, did(id="b"))
    own.kill()
    own.storage = 512 << 20
    own.start()
    with pytest.raises(Unavailable, match=r"smaller than the 1024 MiB of stream EYAS_EVENTS: free disk space"):
        take(log, did(id="c"))
    own.kill()
    own.storage = 2 << 30
    own.start()
    assert drain(stream, Joiner(stream, SqlEventLog(engine))).new == 2
    stream.close()


def test_settings_choose_the_stream(own: NatsServer, tmp_path: Path) -> None:
    own.start()
    with ExitStack() as undo:
        state = State(Settings.read({"home": tmp_path / "home", "events": own.url}), Home(tmp_path / "home"), undo)
        state.events.impressions([shown("a")])
        assert take(state.events, did(id="e", at=minute(1), request_id="a")).hits is None
        assert state.joiner is not None
        state.joiner.step()
        assert state.kpis.hit_rate("films", 1, T0, LATER, ATTRIBUTION) == HitRate(1, 1)
        assert state.events.seen_items("films", [1]) == {1: {10: minute(1)}}


JOINER = """
import sys
from services.eventlog.jetstream import Joiner
from services.eventlog.nats import JetStream
from services.eventlog.sql import SqlEventLog
from services.store.engine import open_engine
joiner = Joiner(JetStream(sys.argv[1]), SqlEventLog(open_engine(sys.argv[2])), at_once=3)
while True:
    print(joiner.join(0.2).messages, flush=True)
"""
GATEWAY = """
import random, sys
from services.eventlog.jetstream import JetStreamEventLog
from services.eventlog.nats import JetStream
from services.eventlog.sql import SqlEventLog
from services.store.engine import open_engine
from shared.testing.event_suite import ATTRIBUTION, did, minute, shown
log = JetStreamEventLog(JetStream(sys.argv[1]), SqlEventLog(open_engine(sys.argv[2])))
for n in range(int(sys.argv[3]), 100_000):
    log.impressions([shown(f"r{n}", minute(n % 60), user=n % 11)])
    log.interactions([did(10, minute(n % 60 + 1), user=n % 11, id=f"e{n}", request_id=f"r{n - n % 3}", kind="click")], [True], ATTRIBUTION)
    print(n, flush=True)
"""


@pytest.mark.timeout(1200)
@pytest.mark.requirement("G-13")
def test_nothing_acknowledged_is_lost_whatever_is_killed(own: NatsServer, sqlite_file: Path, engine: Engine, kpis: SqlKpis) -> None:
    """Gateway, joiner and server are killed in turn, under load; what the gateway was told to be durable is counted in the end."""
    server = own
    server.start()
    url = sqlite_url(sqlite_file)
    rng, acknowledged = random.Random(1), -1
    for round in range(KILLS):
        joiner = subprocess.Popen(
            [sys.executable, "-c", JOINER, server.url, url], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        command = [sys.executable, "-c", GATEWAY, server.url, url, str(acknowledged + 1)]
        gateway = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert gateway.stdout is not None
        for _ in range(rng.randint(20, 80)):
            acknowledged = int(gateway.stdout.readline())
        victims = [gateway.kill, joiner.kill, server.kill]
        victims[round % 3]()
        for one in (gateway, joiner):
            one.kill()
            one.wait(30)
        # Not communicate(): it skips the lines that readline() has buffered.
        for line in gateway.stdout:
            acknowledged = int(line)
        gateway.stdout.close()
        assert gateway.returncode in (-signal.SIGKILL, 1)
        if round % 3 == 2:
            server.start()
    stream = JetStream(server.url)
    # What the killed joiner was working on comes again when its time is over: given up here by a consumer that is made anew.
    asyncio.run(_give_up(server.url))
    drain(stream, Joiner(stream, SqlEventLog(engine)))
    known = range(acknowledged + 1)
    shows = [shown(f"r{n}", minute(n % 60), user=n % 11) for n in known]
    done = [did(10, minute(n % 60 + 1), user=n % 11, id=f"e{n}", request_id=f"r{n - n % 3}", kind="click") for n in known]
    with engine.connect() as connection:
        stored = connection.execute(sql("SELECT event, count(*) FROM interactions GROUP BY event")).all()
        answers = set(connection.execute(sql("SELECT request_id FROM impressions")).scalars())
    assert {f"e{n}" for n in known} <= {name for name, _ in stored}
    assert {times for _, times in stored} == {1}
    assert {f"r{n}" for n in known} <= answers
    more = range(acknowledged + 1, acknowledged + 2)  # one more may have come in without the word that it had
    shows += [shown(f"r{n}", minute(n % 60), user=n % 11) for n in more if f"r{n}" in answers]
    done += [
        did(10, minute(n % 60 + 1), user=n % 11, id=f"e{n}", request_id=f"r{n - n % 3}", kind="click")
        for n in more
        if f"e{n}" in {name for name, _ in stored}
    ]
    assert kpis.earned("films", 1, T0, LATER, ATTRIBUTION, ()) == Oracle(shows, done, ATTRIBUTION).earned(
        "films", 1, T0, LATER, ATTRIBUTION, ()
    )
    assert kpis.hit_rate("films", 1, T0, LATER, ATTRIBUTION) != HitRate(0, 0)
    stream.close()


async def _give_up(url: str) -> None:
    import nats

    client = await nats.connect(url)
    await client.jetstream().delete_consumer(STREAM, "join")
    await client.close()
