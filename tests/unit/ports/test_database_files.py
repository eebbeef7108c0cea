"""Files of a SQLite database that are moved away, deleted or replaced while it is open, and a disk that is full."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from services.store import database_files
from services.store.database_files import AWAY, FULL
from services.store.disk import Disk
from services.store.engine import missing_file, open_engine, sqlite_url
from services.store.migrate import upgrade
from shared.domain.errors import Unavailable

SUFFIXES = ("", "-wal", "-shm")


@pytest.fixture
def path(tmp_path: Path, migrated_sqlite: Path) -> Path:
    target = tmp_path / "state" / "eyas.db"
    target.parent.mkdir()
    shutil.copyfile(migrated_sqlite, target)
    return target


@pytest.fixture
def engine(path: Path) -> Iterator[Engine]:
    engine = open_engine(sqlite_url(path))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE acknowledged (n INTEGER)"))
    yield engine
    engine.dispose()


def move(path: Path, to: Path, *suffixes: str) -> None:
    to.mkdir(exist_ok=True)
    for suffix in suffixes or SUFFIXES:
        (path.parent / (path.name + suffix)).rename(to / (path.name + suffix))


def write(engine: Engine, n: int) -> None:
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO acknowledged VALUES (:n)"), {"n": n})


def read(engine: Engine) -> list[int]:
    with engine.execution_options(read_only=True).connect() as connection:
        return list(connection.execute(text("SELECT n FROM acknowledged ORDER BY n")).scalars())


@contextmanager
def refused(path: Path) -> Iterator[None]:
    """Unavailable; clients read no path."""
    with pytest.raises(Unavailable, match="its files are missing or replaced") as caught:
        yield
    assert str(path) in str(caught.value)
    assert caught.value.answer == AWAY


def test_processes_that_open_a_new_database_at_once_wait_for_each_other(tmp_path: Path) -> None:
    """SQLite returns "locked" at once, without its timeout, if another connection writes while the database is not in WAL yet."""
    other = sqlite3.connect(tmp_path / "eyas.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE t (a)")
    ended = threading.Event()

    def opened() -> None:
        with open_engine(sqlite_url(tmp_path / "eyas.db")).connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        ended.set()

    thread = threading.Thread(target=opened)
    thread.start()
    assert not ended.wait(0.3)
    other.execute("COMMIT")
    other.close()
    thread.join()
    assert ended.is_set()


@pytest.mark.parametrize("suffixes", [SUFFIXES, ("",), ("-wal",), ("-shm",)], ids=["all", "database", "wal", "shm"])
def test_nothing_begins_while_a_file_is_away_and_all_goes_on_when_it_is_back(
    engine: Engine, path: Path, tmp_path: Path, suffixes: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    write(engine, 1)
    move(path, tmp_path / "away", *suffixes)
    for n in (2, 3):
        with refused(path):
            write(engine, n)
        with refused(path):
            read(engine)
    move(tmp_path / "away" / path.name, path.parent, *suffixes)
    write(engine, 4)
    assert read(engine) == [1, 4]
    lines = [one.getMessage() for one in caplog.records if one.name == database_files.__name__]
    assert len(lines) == 2, lines
    assert lines[0].startswith("database: not ready: files moved away or deleted; move the same files back, or stop the platform")
    assert f" paths={path}{suffixes[0]}" in lines[0]
    assert lines[1] == f"database: ready again: its files are back path={path}"


def test_another_file_in_its_place_is_refused_until_a_restart(
    engine: Engine, path: Path, tmp_path: Path, migrated_sqlite: Path, caplog: pytest.LogCaptureFixture
) -> None:
    move(path, tmp_path / "away")
    shutil.copyfile(migrated_sqlite, path)
    for _ in range(3):
        with refused(path):
            write(engine, 1)
    (line,) = [record.getMessage() for record in caplog.records if "files replaced" in record.getMessage()]
    assert "database: not ready: files replaced; move the former files back, or stop the platform" in line
    assert line.endswith(f" paths={path}")
    engine.dispose()
    other = open_engine(sqlite_url(path))
    with other.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM leases")).scalar() == 0
    other.dispose()


def test_what_a_slow_thread_saw_is_not_reported_after_it_is_over(
    engine: Engine, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Between its look and its report, the files come back and another thread has seen that."""
    files = database_files.files_of(engine)
    assert files is not None
    report = files._report

    def report_late(opened: list[database_files.Identity]) -> None:
        monkeypatch.setattr(files, "_report", report)
        with refused(path):
            files.check()
        move(tmp_path / "away" / path.name, path.parent)
        files.check()
        report(opened)

    monkeypatch.setattr(files, "_report", report_late)
    move(path, tmp_path / "away")
    with refused(path):
        files.check()
    lines = [record.getMessage() for record in caplog.records if record.name == database_files.__name__]
    assert [line.partition(":")[2].partition(":")[0] for line in lines] == [" not ready", " ready again"]


def test_files_that_are_moved_within_a_transaction_acknowledge_nothing(engine: Engine, path: Path, tmp_path: Path) -> None:
    """What was committed into the moved files is there when they are back, so whoever tries again must know what it has done."""
    with refused(path), engine.begin() as connection:
        connection.execute(text("INSERT INTO acknowledged VALUES (1)"))
        move(path, tmp_path / "away")
    move(tmp_path / "away" / path.name, path.parent)
    assert read(engine) == [1]


def test_files_that_are_moved_between_a_commit_and_its_acknowledgement_acknowledge_nothing(
    engine: Engine, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = database_files.files_of(engine)
    assert files is not None
    check, looks = files.check, []

    def moved_before_the_second() -> None:
        looks.append(1)
        if len(looks) == 2:  # the first is before the transaction, the second after its commit
            move(path, tmp_path / "away")
        check()

    with monkeypatch.context() as patched:
        patched.setattr(files, "check", moved_before_the_second)
        with refused(path):
            write(engine, 1)
    move(tmp_path / "away" / path.name, path.parent)
    assert read(engine) == [1]


def test_hundreds_of_moves_lose_nothing_that_was_acknowledged(engine: Engine, path: Path, tmp_path: Path) -> None:
    """A writer that tries again after each refusal, and files that come and go at any moment."""
    acknowledged: list[int] = []
    refusals = []
    ended = threading.Event()

    def work() -> None:
        n = 0
        while not ended.is_set():
            n += 1
            try:
                write(engine, n)
                acknowledged.append(n)
            except Unavailable:
                refusals.append(n)

    writer = threading.Thread(target=work)
    writer.start()
    for _ in range(300):
        move(path, tmp_path / "away")
        move(tmp_path / "away" / path.name, path.parent)
    ended.set()
    writer.join()
    stored = read(engine)
    assert set(acknowledged) <= set(stored)
    assert len(stored) == len(set(stored))
    assert acknowledged
    assert refusals


def test_no_connection_makes_a_database_where_there_was_one(engine: Engine, path: Path, tmp_path: Path) -> None:
    move(path, tmp_path / "away")
    held = []
    for _ in range(12):  # more than the pool holds ready
        with refused(path):
            held.append(engine.connect())
            held[-1].execute(text("SELECT 1"))
    assert list(path.parent.iterdir()) == []
    for connection in held:
        connection.close()
    move(tmp_path / "away" / path.name, path.parent)
    write(engine, 1)


def test_a_deleted_log_is_written_into_the_database_by_a_clean_stop(engine: Engine, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for n in range(20):
        write(engine, n)
    for suffix in ("-wal", "-shm"):
        (path.parent / (path.name + suffix)).unlink()
    with refused(path):
        write(engine, 20)
    assert "if only -wal or -shm is missing, stop and start it: their content is written into the database first" in caplog.text
    engine.dispose()
    again = open_engine(sqlite_url(path))
    assert read(again) == list(range(20))
    again.dispose()


def test_an_engine_that_was_closed_may_be_used_again_on_another_file(engine: Engine, path: Path, migrated_sqlite: Path) -> None:
    engine.dispose()
    path.unlink()
    shutil.copyfile(migrated_sqlite, path)
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM leases")).scalar() == 0


def test_a_full_disk_is_one_line_and_the_first_write_that_fits_ends_it(
    engine: Engine, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A limit on the file's pages stands for the disk."""
    disk = Disk(engine)
    disk.check()
    monkeypatch.setattr(database_files, "_CALM", 0.0)
    for _ in range(3):
        with pytest.raises(Unavailable, match="full") as caught, engine.begin() as connection:
            connection.execute(text("PRAGMA max_page_count = 1"))
            connection.execute(text("CREATE TABLE more AS SELECT randomblob(100000) AS x"))
        assert caught.value.answer == FULL
    lines = [one.getMessage() for one in caplog.records if one.name == database_files.__name__]
    assert len(lines) == 1, lines
    assert lines[0] == f"database: not ready: writes fail; free some disk space path={path} reason=database or disk is full"
    files = database_files.files_of(engine)
    assert files is not None
    assert files.full
    read(engine)
    assert files.full, "what only reads says nothing of it"
    with engine.begin() as connection:
        connection.execute(text("PRAGMA max_page_count = 1000000"))
    assert files.full, "nor does a transaction that has written nothing"
    disk.check()
    assert not files.full
    assert [one.getMessage() for one in caplog.records if one.name == database_files.__name__][1:] == [
        f"database: ready again: writes succeed path={path}"
    ]


def test_a_missing_database_is_told_from_one_that_is_there(path: Path, tmp_path: Path) -> None:
    assert missing_file(sqlite_url(path)) is None
    assert missing_file(sqlite_url(tmp_path / "none.db")) == tmp_path / "none.db"
    (tmp_path / "empty.db").touch()
    assert missing_file(sqlite_url(tmp_path / "empty.db")) == tmp_path / "empty.db"
    assert missing_file("postgresql://db/eyas") is None
    fresh = open_engine(sqlite_url(tmp_path / "fresh ?#%.db"))
    upgrade(fresh)
    fresh.dispose()
    assert missing_file(sqlite_url(tmp_path / "fresh ?#%.db")) is None
