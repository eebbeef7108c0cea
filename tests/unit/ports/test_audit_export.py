"""Each entry of the audit log reaches the collector or the file at least once, in order, whatever fails."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine, delete, event, insert, select, update

from services.audit_sinks import AuditCollector, AuditFile
from services.control import audit_export
from services.control.audit_export import OUTCOME_WAIT, AuditExporter
from services.store.audit import SqlAudit
from services.store.expiring_rows import SqlExpiringRows
from services.store.tables import audit
from shared.domain.errors import Unavailable
from shared.ports import Audited
from shared.telemetry import metrics

pytestmark = pytest.mark.requirement("U-12")

NOW = datetime(2026, 3, 1, tzinfo=UTC)
WALL = SimpleNamespace(now=lambda: datetime.now(UTC))


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time


def entry(number: int, at: datetime = NOW) -> Audited:
    return Audited(at, "ada", "t1", "POST /v1/runs/{id}:cancel", f"/v1/runs/r{number}:cancel")


class Collector:
    """A real HTTP server that fails half of the time: before or after it has stored the lines."""

    def __init__(self, seed: int) -> None:
        self.lines: list[dict[str, Any]] = []
        self.failures = 0
        self.tokens: set[str | None] = set()
        chance = random.Random(seed)
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.tokens.add(self.headers["Authorization"])
                fault = chance.choice((None, None, None, None, "cut", "cut after", "500", "redirect"))
                collector.failures += fault is not None
                if fault == "cut":
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if fault in (None, "cut after"):
                    collector.lines += map(json.loads, body.splitlines())
                if fault == "cut after":
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response({"500": 500, "redirect": 307}.get(fault or "", 204))
                if fault == "redirect":
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/audit"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Died(Exception):
    pass


class DyingOutbox:
    """Sometimes the process dies after the collector has acknowledged, and before that is stored."""

    def __init__(self, outbox: SqlAudit, chance: random.Random) -> None:
        self.unexported, self.backlog = outbox.unexported, outbox.backlog
        self._outbox = outbox
        self._chance = chance

    def mark_exported(self, entries: Any) -> None:
        if self._chance.random() < 0.2:
            raise Died
        self._outbox.mark_exported(entries)


def write(log: SqlAudit, count: int, seed: int) -> None:
    """Writes entries; some never get an outcome, because their process died, and some get it late."""
    chance = random.Random(seed)
    for number in range(count):
        seq = log.begin(entry(number % 7, WALL.now()))
        outcome = chance.random()
        if outcome < 0.1:
            continue
        if outcome < 0.2:
            time.sleep(0.08)
        log.end(seq, 200, f"m{number % 3}", "")


@pytest.mark.parametrize("seed", [1, 2])
def test_every_entry_arrives_in_order_at_a_collector_that_fails_half_of_the_time(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Four writers whose commits take random times; two exporters take turns, and die between acknowledgement and its storage."""
    monkeypatch.setattr(audit_export, "OUTCOME_WAIT", timedelta(seconds=0.05))
    monkeypatch.setattr(audit_export, "_SHORTEST", 0.001)
    monkeypatch.setattr(audit_export, "_LONGEST", 0.002)
    monkeypatch.setattr(audit_export, "_BATCH", 8)
    chance = random.Random(seed)
    event.listen(engine, "commit", lambda connection: time.sleep(0.06 if chance.random() < 0.05 else 0))
    log = SqlAudit(engine)
    writers = [threading.Thread(target=write, args=(log, 40, number)) for number in range(4)]
    for writer in writers:
        writer.start()
    deaths = 0
    with Collector(seed) as collector:
        send = AuditCollector(collector.url, "secret")
        while any(writer.is_alive() for writer in writers) or log.backlog()[0]:
            exporter = AuditExporter(DyingOutbox(log, chance), send, WALL, "installation")
            try:
                for _ in range(chance.randint(1, 6)):
                    exporter.step()
                    time.sleep(0.003)
            except Died:
                deaths += 1
        send.close()
    with engine.connect() as connection:
        statuses = {row.seq: row.status for row in connection.execute(select(audit.c.seq, audit.c.status))}
    first: dict[int, int] = {}
    for place, line in enumerate(collector.lines):
        first.setdefault(line["seq"], place)
    assert len(statuses) == 160 and set(first) == set(statuses), "an entry is missing"
    assert list(first) == sorted(first), "an entry came after one with a larger number"
    outcomes = {(line["seq"], line["status"]) for line in collector.lines}
    assert {(seq, status) for seq, status in statuses.items() if status is not None} <= outcomes, "an outcome is missing"
    assert len({line["id"] for line in collector.lines}) == len(statuses)
    assert collector.tokens == {"Bearer secret"}
    assert collector.failures > 10 and deaths > 0 and len(collector.lines) > 160, "too little went wrong"


@pytest.fixture
def lines() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def exporter(engine: Engine, lines: list[dict[str, Any]], clock: Clock) -> AuditExporter:
    def send(text: bytes) -> None:
        lines.extend(map(json.loads, text.splitlines()))

    return AuditExporter(SqlAudit(engine), send, clock, "home")


def test_a_line_has_all_fields(engine: Engine, exporter: AuditExporter, lines: list[dict[str, Any]]) -> None:
    log = SqlAudit(engine)
    seq = log.begin(entry(1))
    log.end(seq, 202, "films", "too slow: ☂\n")
    exporter.step()
    (line,) = lines
    assert line == {
        "id": f"home-{seq}-{round(NOW.timestamp()) * 10**6}",
        "at": "2026-03-01T00:00:00+00:00",
        "actor": "ada",
        "token": "t1",
        "action": "POST /v1/runs/{id}:cancel",
        "target": "/v1/runs/r1:cancel",
        "recommender": "films",
        "status": 202,
        "detail": "too slow: ☂\n",
        "seq": seq,
    }
    exporter.step()
    assert len(lines) == 1


def test_an_entry_waits_for_its_outcome_and_comes_again_with_a_late_one(
    engine: Engine, exporter: AuditExporter, lines: list[dict[str, Any]], clock: Clock
) -> None:
    log = SqlAudit(engine)
    running, ended = log.begin(entry(1)), log.begin(entry(2))
    log.end(ended, 200, None, "")
    exporter.step()
    exporter.measure()
    assert lines == [], "the second would overtake the first"
    assert (metrics.AUDIT_WAITING._value.get(), metrics.AUDIT_AGE._value.get()) == (2, 0)
    clock.time += OUTCOME_WAIT
    exporter.step()
    exporter.measure()
    assert [(line["seq"], line["status"]) for line in lines] == [(running, None), (ended, 200)]
    assert metrics.AUDIT_WAITING._value.get() == 0
    log.end(running, 500, None, "")
    exporter.step()
    exporter.step()
    assert [(line["seq"], line["status"]) for line in lines[2:]] == [(running, 500)]


def test_a_collector_that_takes_only_small_batches_gets_them(engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_export, "_BATCH", 8)
    log, tries = SqlAudit(engine), []
    for number in range(9):
        log.end(log.begin(entry(number)), 200, None, "")

    def send(text: bytes) -> None:
        tries.append(text.count(b"\n"))
        if text.count(b"\n") > 2:
            raise Unavailable("the collector answers with status 413")

    exporter = AuditExporter(log, send, clock, "home")
    for _ in range(20):
        exporter.step()
        clock.time += timedelta(seconds=1)
    assert tries[:4] == [8, 4, 2, 4]
    assert sum(size for size in tries if size <= 2) == 9 and log.backlog() == (0, None)


def test_tries_are_at_most_a_minute_apart(engine: Engine, clock: Clock) -> None:
    log, tries = SqlAudit(engine), []
    log.end(log.begin(entry(1)), 200, None, "")

    def send(text: bytes) -> None:
        tries.append(clock.time)
        raise Unavailable("away")

    exporter = AuditExporter(log, send, clock, "home")
    for _ in range(600):
        exporter.step()
        exporter.measure()
        clock.time += timedelta(seconds=1)
    pauses = [(after - before).total_seconds() for before, after in itertools.pairwise(tries)]
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, 60] and set(pauses[7:]) == {60}
    assert metrics.AUDIT_AGE._value.get() == 599


def test_entries_stay_until_they_are_exported(engine: Engine, exporter: AuditExporter) -> None:
    log = SqlAudit(engine)
    for number in range(5):
        log.end(log.begin(entry(number)), 200, None, "")
    keeps, forgets = SqlExpiringRows(engine, keeps_unexported=True), SqlExpiringRows(engine)
    assert keeps.forget_log("audit", NOW + timedelta(days=1)) == 0
    exporter.step()
    log.end(log.begin(entry(9)), 200, None, "")
    assert keeps.forget_log("audit", NOW + timedelta(days=1)) == 5
    assert forgets.forget_log("audit", NOW + timedelta(days=1)) == 1, "without an export nothing waits"


def test_a_restored_backup_exports_again_what_was_exported_after_it(
    engine: Engine, exporter: AuditExporter, lines: list[dict[str, Any]]
) -> None:
    log = SqlAudit(engine)
    log.end(log.begin(entry(1)), 200, None, "")
    exporter.step()
    with engine.begin() as connection:
        connection.execute(update(audit).values(exported=0))  # as the backup has it
    exporter.step()
    assert len(lines) == 2 and lines[0] == lines[1], "a collector drops the second by its id"


def test_a_number_that_is_used_again_after_a_restore_has_another_id(
    engine: Engine, exporter: AuditExporter, lines: list[dict[str, Any]]
) -> None:
    for minutes in (0, 1):
        with engine.begin() as connection:
            connection.execute(delete(audit))
            values = {name: value for name, value in entry(1, NOW + timedelta(minutes=minutes)).__dict__.items() if name != "seq"}
            connection.execute(insert(audit).values(values | {"seq": 1, "status": 200}))
        exporter.step()
    assert len({line["id"] for line in lines}) == 2


def test_lines_are_appended_to_a_file_and_a_torn_one_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    send = AuditFile(path)
    send(b'{"seq": 1}\n')
    with path.open("ab") as torn:
        torn.write(b'{"seq": 2, "act')  # the process died
    send(b'{"seq": 2}\n{"seq": 3}\n')
    assert path.read_bytes().splitlines() == [b'{"seq": 1}', b'{"seq": 2, "act', b'{"seq": 2}', b'{"seq": 3}']
    path.rename(tmp_path / "audit.jsonl.1")
    send(b'{"seq": 4}\n')
    assert path.read_bytes() == b'{"seq": 4}\n'


def test_only_the_owner_reads_the_file_and_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.jsonl"
    send = AuditFile(path)
    send(b'{"seq": 1}\n')
    assert path.stat().st_mode & 0o777 == 0o600

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match="No space left"):
            send(b'{"seq": 2}\n')
    assert path.read_bytes() == b'{"seq": 1}\n'


@pytest.mark.parametrize("place", ["missing/audit.jsonl", "."])
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    with pytest.raises(Unavailable, match=str(tmp_path)):
        AuditFile(tmp_path / place)(b"{}\n")


def test_a_collector_that_does_not_answer_is_unavailable() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        send = AuditCollector(f"http://127.0.0.1:{closed.getsockname()[1]}", None)
        with pytest.raises(Unavailable, match="does not answer: ConnectError"):
            send(b"{}\n")
        send.close()


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A proxy of the environment must not see the audit log."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert os.environ["HTTP_PROXY"]
    yield
