"""The files of a SQLite database: whether they are in their place, and whether there is room for writes.

A process goes on reading and writing files that were moved or deleted, because it has them open. So their paths are compared with the
device and the inode that were opened: before each transaction, and after each commit before its caller learns of it. That promises:

- Nothing begins while a file is missing or another one stands in its place.
- A commit that its caller learns of was in the files that had the database's names at a moment after the commit. Files that are renamed
  later carry it along, so it is there when they are back.
- A commit that is refused because the files were moved meanwhile may be stored all the same, as one whose connection was lost: whoever
  tries again reads first, or brings an id.

Nobody can promise more: a deleted file takes what it holds along, a copy misses what is committed between copying and deleting (so does a
move to another file system, which is both), and a file that is overwritten in place has the same inode.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shared.domain.errors import Unavailable

log = logging.getLogger(__name__)

AWAY = "the database doesn't answer"
"""What clients read; where it is and why it is away stands in the log."""
FULL = "the disk of the database is full"
_SUFFIXES = ("", "-wal", "-shm")
_CALM = 2.0
"""Seconds without a fault after which a write that succeeds says that there is room again: on a full disk some writes still succeed."""
_MISSING = (
    "database: not ready: moved away or deleted: %s. Move the same files back, and it goes on by itself. Or stop the platform, restore a"
    " backup (or move what is left away to begin empty), and start it. If only -wal or -shm is gone, stop and start it: what they hold is"
    " written into the database first"
)
_REPLACED = (
    "database: not ready: another file stands in the place of %s. Move the former files back. Or stop the platform, leave a database and no"
    " -wal or -shm of another one in their place, and start it"
)

Identity = tuple[int, int]


class DatabaseFiles:
    """Of one engine. Its own connection holds the log open, so that SQLite never makes a new one while the engine is used."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._paths = [f"{self.path}{suffix}" for suffix in _SUFFIXES]
        self._opened: list[Identity] | None = None
        self._anchor: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._fault = ""
        self._full_at: float | None = None

    def open(self, prepare: Callable[[sqlite3.Connection], None]) -> None:
        """At the first connection; makes the database where there is none."""
        with self._lock:
            if self._opened is None:
                anchor = sqlite3.connect(self.path, check_same_thread=False)
                try:
                    prepare(anchor)
                    anchor.execute("PRAGMA user_version").fetchall()  # the first read makes -wal and -shm
                    self._opened = [_identity(path) for path in self._paths]
                except BaseException:
                    anchor.close()
                    raise
                self._anchor = anchor

    def close(self) -> None:
        with self._lock:
            anchor, self._anchor, self._opened = self._anchor, None, None
        if anchor is not None:
            anchor.close()

    @property
    def uri(self) -> str:
        """Opens the file that is there, and makes none."""
        return f"{self.path.as_uri()}?mode=rw"

    @property
    def full(self) -> bool:
        """Whether the last writes found no room."""
        return self._full_at is not None

    def check(self) -> None:
        """Raises Unavailable unless the files that were opened are in their place."""
        if self._opened is None:
            return
        missing, replaced = self._compare(self._opened)
        if missing or replaced or self._fault:
            self._report(self._opened)
        if missing or replaced:
            raise Unavailable(f"database {self.path}: its files are not in their place", answer=AWAY)

    def _compare(self, opened: list[Identity]) -> tuple[list[str], list[str]]:
        """The paths where no file is, and those where another file is."""
        missing, replaced = [], []
        for path, identity in zip(self._paths, opened, strict=True):
            try:
                if _identity(path) != identity:
                    replaced.append(path)
            except OSError:
                missing.append(path)
        return missing, replaced

    def _report(self, opened: list[Identity]) -> None:
        """Logs each change once, with the first file that was missing: files are moved one by one.

        Compares again under the lock: what the caller saw may be over, and reported as over by another thread.
        """
        with self._lock:
            missing, replaced = self._compare(opened)
            fault = _REPLACED if replaced else _MISSING if missing else ""
            before, self._fault = self._fault, fault
            if fault and fault != before:
                log.error(fault, ", ".join(replaced or missing))
            elif before and not fault:
                log.warning("database: ready again: its files are back path=%s", self.path)

    def no_room(self, reason: str) -> Unavailable:
        with self._lock:
            before, self._full_at = self._full_at, time.monotonic()
        if before is None:
            log.error(
                "database: not ready: no write succeeds path=%s reason=%s. Free some space, and it goes on by itself", self.path, reason
            )
        return Unavailable(f"database {self.path}: {reason}", answer=FULL)

    def check_room(self) -> None:
        """Raises Unavailable until a write has succeeded `_CALM` seconds or more after the last write that failed."""
        if self.full:
            raise Unavailable(f"database {self.path}: writes failed a moment ago", answer=FULL)

    def written(self) -> None:
        full_at = self._full_at
        if full_at is not None and time.monotonic() - full_at > _CALM:
            with self._lock:
                before, self._full_at = self._full_at, None
            if before is not None:
                log.warning("database: ready again: writes succeed path=%s", self.path)


def guarded_connection(files: DatabaseFiles) -> type[sqlite3.Connection]:
    """Connections whose commit returns only while the files are in their place."""

    class Guarded(sqlite3.Connection):
        _changes = 0

        def commit(self) -> None:
            super().commit()
            changes, self._changes = self._changes, self.total_changes
            files.check()
            if files.full and changes != self._changes:
                files.written()

        def rollback(self) -> None:
            super().rollback()
            self._changes = self.total_changes

    return Guarded


def _identity(path: str) -> Identity:
    state = os.stat(path)  # noqa: PTH116  at each transaction: Path.stat takes longer
    return state.st_dev, state.st_ino


def files_of(engine: Any) -> DatabaseFiles | None:
    """None where the database is no file."""
    files: DatabaseFiles | None = engine.get_execution_options().get("database_files")
    return files
