"""A platform whose database is moved away, replaced or deleted while it runs, or whose disk is full: what it answers, what it writes into
its log, and that it loses nothing that it has acknowledged."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.api.problems import TYPES
from tests.security.platform import NAME, TOKEN
from tests.servers.platform_process import until

AWAY = "the database doesn't answer"
FULL = "the disk of the database is full"
SUFFIXES = ("", "-wal", "-shm")
SIZE = "16m"
_READ = "import json, sqlite3, sys; print(json.dumps(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall()))"


class Running:
    """A platform of its own, and a client of it."""

    def __init__(self, folder: Path, around: Sequence[str] = ()) -> None:
        self.home = folder / "platform"
        self.home.mkdir()
        self.database = self.home / "home" / "eyas.db"
        self._log = folder / "log"
        self._around = around
        self.client = httpx.Client(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=20)
        self.start()

    def start(self) -> None:
        command = [*self._around, sys.executable, "-m", "tests.security.platform", "--home", str(self.home)]
        (self.home / "url").unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self.seen = Path(f"/proc/{self.process.pid}/root{self.home}") if self._around else self.home
        """The home as the platform sees it."""
        try:
            until("the platform answers", self._answers, 150)
        except BaseException:
            self.end()
            raise

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"the platform ended:\n{self.log}"
        try:
            self.client.base_url = (self.seen / "url").read_text()
            return self.recommend() is not None and self.ready() == (200, None)
        except (OSError, httpx.TransportError):
            return False

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)

    def end(self) -> None:
        self.stop()
        self.client.close()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def lines(self, words: str) -> list[str]:
        return [line for line in self.log.splitlines() if words in line]

    def ready(self) -> tuple[int, list[str] | None]:
        answer = self.client.get("/readyz")
        return answer.status_code, answer.json().get("waiting")

    def is_ready(self) -> bool:
        return self.ready() == (200, None)

    def waits_for(self, what: str) -> bool:
        return self.ready() == (503, [what])

    def recommend(self) -> str | None:
        """The id of an answer."""
        answer = self.client.post(f"/v1/recommend/{NAME}", json={"user": 1, "k": 3})
        return str(answer.json()["request_id"]) if answer.is_success else None

    def send(self, *ids: str) -> httpx.Response:
        events = [{"recommender": NAME, "id": id, "user": 1, "item": 10, "value": 5} for id in ids]
        return self.client.post("/v1/events", json={"events": events})

    def rows(self, query: str) -> list[Any]:
        """Of the database, by a process that sees what the platform sees."""
        into = ["nsenter", "-t", str(self.process.pid), "-m", *(["-U", "--preserve-credentials"] if os.geteuid() else [])]
        command = [*(into if self._around else []), sys.executable, "-c", _READ, str(self.database), query]
        return list(json.loads(subprocess.check_output(command)))

    def events(self) -> list[str]:
        return [row[0] for row in self.rows("SELECT event FROM interactions WHERE event IS NOT NULL")]

    def answers(self) -> set[str]:
        return {row[0] for row in self.rows("SELECT request_id FROM impressions")}

    def move(self, to: Path, *suffixes: str) -> None:
        to.mkdir(exist_ok=True)
        for suffix in suffixes or SUFFIXES:
            self.database.with_name(f"eyas.db{suffix}").rename(to / f"eyas.db{suffix}")

    def move_back(self, away: Path, *suffixes: str) -> None:
        for suffix in suffixes or SUFFIXES:
            (away / f"eyas.db{suffix}").rename(self.database.with_name(f"eyas.db{suffix}"))


class Sender:
    """Sends one event after the other, and each again until it is acknowledged."""

    def __init__(self, platform: Running) -> None:
        self._platform = platform
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.acknowledged: list[str] = []
        self.refused: Counter[tuple[int, str]] = Counter()

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        for n in itertools.count():
            while not self._ended.is_set():
                answer = self._platform.send(f"e{n}")
                if answer.status_code == 202:
                    self.acknowledged.append(f"e{n}")
                    break
                self.refused[answer.status_code, answer.json()["detail"]] += 1
            if self._ended.is_set():
                return

    def go_on(self) -> None:
        count = len(self.acknowledged)
        until("events are acknowledged", lambda: len(self.acknowledged) > count + 20)

    def is_refused(self, times: int) -> None:
        count = sum(self.refused.values())
        until("events are refused", lambda: sum(self.refused.values()) >= count + times)


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    yield running
    running.end()


@pytest.mark.requirement("C-05", "C-09")
def test_a_database_that_is_moved_away_and_back_loses_nothing_that_was_acknowledged(platform: Running, tmp_path: Path) -> None:
    answered = []
    with Sender(platform) as sender:
        for _ in range(3):
            sender.go_on()
            platform.move(tmp_path / "away")
            until("the platform isn't ready", lambda: platform.waits_for(AWAY), 5)
            sender.is_refused(1)  # The sender has then counted every event that was acknowledged before the move.
            acknowledged, answered_before = len(sender.acknowledged), len(answered)
            sender.is_refused(5)
            answered += [platform.recommend() for _ in range(5)]
            assert len(sender.acknowledged) == acknowledged, "nothing is acknowledged meanwhile"
            assert all(answered[answered_before:]), "recommendations go out by the last routes"
            assert not platform.database.exists()
            platform.move_back(tmp_path / "away")
            until("the platform is ready", platform.is_ready)
            sender.go_on()
    assert set(sender.refused) == {(503, AWAY)}
    stored = platform.events()
    assert set(sender.acknowledged) <= set(stored)
    assert len(stored) == len(set(stored))
    until("the impressions that waited are written", lambda: set(answered) <= platform.answers())
    assert len(platform.lines("database: not ready: files moved away or deleted")) == len(platform.lines("database: ready again")) == 3
    (line, *_) = platform.lines("database: not ready: files moved away or deleted")
    assert "move the same files back, or stop the platform, restore a backup" in line
    assert "Traceback" not in platform.log


@pytest.mark.requirement("C-05")
def test_without_its_log_a_database_takes_nothing_and_a_clean_stop_saves_what_it_holds(platform: Running) -> None:
    with Sender(platform) as sender:
        sender.go_on()
        for suffix in SUFFIXES[1:]:
            platform.database.with_name(f"eyas.db{suffix}").unlink()
        until("the platform isn't ready", lambda: platform.waits_for(AWAY), 5)
    assert (
        "stop and start it: their content is written into the database first"
        in platform.lines("database: not ready: files moved away or deleted")[0]
    )
    platform.stop()
    with closing(sqlite3.connect(platform.database)) as connection:
        stored = {row[0] for row in connection.execute("SELECT event FROM interactions")}
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert set(sender.acknowledged) <= stored
    platform.start()
    assert platform.send("one more").status_code == 202


@pytest.mark.requirement("C-05")
def test_another_database_in_its_place_is_taken_by_the_next_start_only(platform: Running, tmp_path: Path) -> None:
    assert platform.send("e1").status_code == 202
    backup = tmp_path / "backup.db"
    with closing(sqlite3.connect(platform.database)) as connection:
        connection.execute("VACUUM INTO ?", (str(backup),))
    assert platform.send("e2").status_code == 202
    platform.move(tmp_path / "away")
    shutil.copyfile(backup, platform.database)
    until("the platform isn't ready", lambda: platform.waits_for(AWAY), 5)
    answer = platform.send("e3")
    assert (answer.status_code, answer.json()["type"], answer.json()["detail"]) == (503, f"{TYPES}unavailable", AWAY)
    (line,) = platform.lines("database: not ready: files replaced")
    assert "stop the platform, leave a database without -wal and -shm of another one, and start it" in line
    platform.stop()
    platform.start()
    assert platform.events() == ["e1"]
    assert platform.send("e3").status_code == 202


@pytest.mark.requirement("C-05")
def test_a_home_that_lost_its_database_does_not_begin_empty(platform: Running, tmp_path: Path) -> None:
    platform.stop()
    platform.database.rename(tmp_path / "away.db")
    artifacts = platform.home / "home" / "artifacts"
    for command in (["up", "--home", str(platform.home / "home"), "--port", "0", "--metrics-port", "0"], ["migrate"]):
        ended = subprocess.run(
            [sys.executable, "-m", "services.cli.main", *command],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "EYAS_HOME": str(platform.home / "home")},
        )
        assert ended.returncode != 0
        assert "Traceback" not in ended.stderr
        (line,) = [one for one in ended.stderr.splitlines() if "is missing or empty" in one]
        assert f"move the database's files back or restore a backup; to start empty, move {artifacts} away" in line
        assert not platform.database.exists()
    (tmp_path / "away.db").rename(platform.database)
    platform.start()
    assert platform.is_ready()


@contextmanager
def small_disk(folder: Path, at: str = "") -> Iterator[Running]:
    """A platform whose folder, or a folder in it, is a file system of its own, of some MiB.

    It needs a mount namespace: an administrator has one, and others where the kernel grants it."""
    unshare = ["unshare", "-m", *(["--user", "--map-root-user"] if os.geteuid() else [])]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        if os.environ.get("CI") == "true":
            pytest.fail("no mount namespace can be made here: run this as root")
        pytest.skip("no mount namespace can be made here: run this as root")
    target = folder / "platform" / at
    mount = f'mkdir -p -m 700 {target} && mount -t tmpfs -o size={SIZE},mode=700 tmpfs {target} && exec "$@"'
    running = Running(folder, [*unshare, "sh", "-c", mount, "sh"])
    try:
        yield running
    finally:
        running.end()


def fill(path: Path) -> None:
    """Down to the last byte."""
    with path.open("wb", buffering=0) as stream:
        for size in (1 << 16, 1):
            try:
                while True:
                    stream.write(b"x" * size)
            except OSError:
                continue


@pytest.mark.requirement("C-05", "C-09")
def test_a_full_disk_is_said_and_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    with small_disk(tmp_path) as platform, Sender(platform) as sender:
        answered = []
        for _ in range(2):
            sender.go_on()
            fill(platform.seen / "fill")
            until("the platform isn't ready", lambda: platform.waits_for(FULL))
            sender.is_refused(5)
            run = platform.client.post(f"/v1/recommenders/{NAME}/runs", json={"reason": "a test"})
            assert (run.status_code, run.json()["detail"]) == (503, FULL)
            assert platform.client.get(f"/v1/recommenders/{NAME}").status_code == 200, "what only reads is answered"
            answered += [platform.recommend() for _ in range(5)]
            (platform.seen / "fill").unlink()
            until("the platform is ready", platform.is_ready)
            sender.go_on()
        assert set(sender.refused) == {(503, FULL)}
        assert all(answered)
        acknowledged = set(sender.acknowledged)  # before the stored events are read: the sender goes on
        stored = platform.events()
        assert acknowledged <= set(stored)
        assert len(stored) == len(set(stored))
        until("the impressions that waited are written", lambda: set(answered) <= platform.answers())
        assert len(platform.lines("database: not ready: writes fail")) == len(platform.lines("database: ready again: writes succeed")) == 2
        assert "Traceback" not in platform.log


@pytest.mark.requirement("C-05")
def test_a_stage_that_finds_no_room_for_its_output_goes_on_when_there_is_some(tmp_path: Path) -> None:
    """The disk of the artifacts alone is full: the platform is ready, and the run waits."""
    with small_disk(tmp_path, "home/artifacts") as platform:
        fill(platform.seen / "home/artifacts/fill")
        run = platform.client.post(f"/v1/recommenders/{NAME}/runs", json={"reason": "a test", "fresh": True}).json()["id"]

        def state() -> str:
            return str(platform.client.get(f"/v1/runs/{run}").json()["state"])

        until(
            "a stage finds no room",
            lambda: any(f"run={run}" in line for line in platform.lines("error=[Errno 28] No space left on device")),
        )
        assert state() not in ("failed", "cancelled")
        assert platform.is_ready()
        assert platform.send("e1").status_code == 202
        (platform.seen / "home/artifacts/fill").unlink()
        until("the run ends well", lambda: state() in ("registered", "rejected"), 120)
        assert "Traceback" not in platform.log
