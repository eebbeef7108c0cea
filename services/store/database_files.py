"""Files of a SQLite database: checks that they are at their paths, and that the disk has room for writes.

A process continues to read and write its open files after they are moved or deleted. So device and inode of each path are compared with
those of the opened files: before each transaction, and after each commit before the commit returns. This guarantees:

- No transaction begins while a file is missing or replaced.
- A commit that returns was in the files at the database's paths at a moment after the commit. If the files are moved later, the commit
  moves with them.
- A commit that fails because files were moved may be stored nevertheless, like a commit whose connection was lost: before a retry, read
  first, or use an id.

More is not possible: deleting a file deletes its content, a copy misses commits between copying and deleting (as does a move to another
file system), and a file that is overwritten in place keeps its inode.
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
"""Text for clients; the log has the path and the reason."""
FULL = "the disk of the database is full"
_SUFFIXES = ("", "-wal", "-shm")
_CALM = 2.0
"""Seconds without a failed write before a successful write ends the fault: on a full disk some writes still succeed."""

Identity = tuple[int, int]


class DatabaseFiles:
    """Files of one engine. A separate connection keeps the WAL open, so that SQLite never creates a new WAL while the engine is used."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._paths = [f"{self.path}{suffix}" for suffix in _SUFFIXES]
        self._opened: list[Identity] | None = None
        self._anchor: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._fault = ""
        self._full_at: float | None = None

    def open(self, prepare: Callable[[sqlite3.Connection], None]) -> None:
        """Opens the files once, at the first connection; creates a missing database."""
        with self._lock:
            if self._opened is None:
                anchor = sqlite3.connect(self.path, check_same_thread=False)
                try:
                    prepare(anchor)
                    anchor.execute("PRAGMA user_version").fetchall()  # the first read creates -wal and -shm
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
        """URI that opens the existing file and never creates a file."""
        return f"{self.path.as_uri()}?mode=rw"

    @property
    def full(self) -> bool:
        """Whether writes failed recently because the disk was full."""
        return self._full_at is not None

    def check(self) -> None:
        """Raises Unavailable unless the opened files are at their paths."""
        if self._opened is None:
            return
        missing, replaced = self._compare(self._opened)
        if missing or replaced or self._fault:
            self._report(self._opened)
        if missing or replaced:
            raise Unavailable(f"database {self.path}: its files are missing or replaced", answer=AWAY)

    def _compare(self, opened: list[Identity]) -> tuple[list[str], list[str]]:
        """Returns the paths without a file, and the paths with another file."""
        missing, replaced = [], []
        for path, identity in zip(self._paths, opened, strict=True):
            try:
                if _identity(path) != identity:
                    replaced.append(path)
            except OSError:
                missing.append(path)
        return missing, replaced

    def _report(self, opened: list[Identity]) -> None:
        """Logs each change once, with the first missing file, because files are moved one by one.

        Compares again under the lock: the caller's result may be outdated, and another thread may have reported the recovery.
        """
        with self._lock:
            missing, replaced = self._compare(opened)
            fault = "replaced" if replaced else "missing" if missing else ""
            before, self._fault = self._fault, fault
            if fault == "missing" != before:
                log.error(
                    "database: not ready: files moved away or deleted; move the same files back, or stop the platform, restore a backup"
                    " (or move the rest away to begin empty), and start it; if only -wal or -shm is missing, stop and start it: their"
                    " content is written into the database first paths=%s",
                    ", ".join(missing),
                )
            elif fault == "replaced" != before:
                log.error(
                    "database: not ready: files replaced; move the former files back, or stop the platform, leave a database without"
                    " -wal and -shm of another one, and start it paths=%s",
                    ", ".join(replaced),
                )
            elif before and not fault:
                log.warning("database: ready again: its files are back path=%s", self.path)

    def no_room(self, reason: str) -> Unavailable:
        with self._lock:
            before, self._full_at = self._full_at, time.monotonic()
        if before is None:
            log.error("database: not ready: writes fail; free some disk space path=%s reason=%s", self.path, reason)
        return Unavailable(f"database {self.path}: {reason}", answer=FULL)

    def check_room(self) -> None:
        """Raises Unavailable until a write succeeds more than `_CALM` seconds after the last failed write."""
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
    """Returns a connection class whose commit returns only while the files are at their paths."""

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
    state = os.stat(path)  # noqa: PTH116  runs at each transaction, and Path.stat is slower
    return state.st_dev, state.st_ino


def files_of(engine: Any) -> DatabaseFiles | None:
    """Returns the files of the engine's database; None if the database is not a file."""
    files: DatabaseFiles | None = engine.get_execution_options().get("database_files")
    return files
