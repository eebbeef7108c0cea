"""Ledger of a search's trials: each trial is one line, synced before the next trial begins, so that a killed search can continue.

A folder holds one search, described in `search.json`; a different search and a second process are rejected."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from shared.artifacts.writing import write_here
from shared.contracts.strict import read
from shared.contracts.tuning import TRIALS, TriedRow
from shared.domain.errors import BadData, Invalid

SEARCH, LOCK = "search.json", ".lock"
Fence = Mapping[str, Any]
"""Description of a search: values by their words for messages."""


class TrialLedger:
    """Append-only file of trials; `rows` are the stored trials in order."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / TRIALS
        self.rows = _read_rows(self._path)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, row: TriedRow) -> None:
        line = row.model_dump_json().encode() + b"\n"
        if os.write(self._file, line) != len(line):
            raise BadData(f"{self._path}: a line is incomplete, probably because the disk is full: free space, then run the command again")
        os.fsync(self._file)
        self.rows.append(row)

    def __enter__(self) -> TrialLedger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._file)


@contextmanager
def opened(folder: Path, fence: Fence) -> Iterator[TrialLedger]:
    """Opens a ledger for one process and one search."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise Invalid(f"--out {folder}: cannot write to the folder: {error.strerror}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Invalid(f"--out {folder}: another search is running there: wait for its end, or choose another folder") from None
        _fence(folder, fence)
        with TrialLedger(folder) as ledger:
            yield ledger
    finally:
        os.close(lock)


def _fence(folder: Path, fence: Fence) -> None:
    """Checks that the folder holds this search. A different search without trials is replaced."""
    path, trials = folder / SEARCH, folder / TRIALS
    current = json.loads(json.dumps(fence))
    if not path.exists():
        if trials.exists():
            raise BadData(f"--out {folder}: it has {TRIALS} without {SEARCH}, so its search is unknown: choose another folder")
        write_here(path, json.dumps(current, indent=1) + "\n")
        return
    try:
        theirs = json.loads(path.read_text())
    except (ValueError, RecursionError):
        theirs = None
    if not isinstance(theirs, dict):
        raise BadData(f"{path}: the file is damaged: choose another folder")
    other = [name for name in current if theirs.get(name) != current[name]]
    if other and theirs.keys() == current.keys() and (not trials.exists() or not trials.stat().st_size):
        write_here(path, json.dumps(current, indent=1) + "\n")
    elif other:
        raise Invalid(f"--out {folder}: it has a search with other {' and '.join(other)}: choose another folder")


def _read_rows(path: Path) -> list[TriedRow]:
    """Reads the trials and truncates an incomplete last line."""
    if not path.exists():
        return []
    content = path.read_bytes()
    complete = content.rfind(b"\n") + 1
    if complete < len(content):
        os.truncate(path, complete)
    rows = []
    for number, line in enumerate(content[:complete].splitlines()):
        try:
            row = read(TriedRow, json.loads(line), f"line {number + 1}")
        except (ValueError, Invalid):
            row = None
        if row is None or row.number != number:
            raise BadData(f"{path}: line {number + 1} is damaged: remove this line and all later lines to continue the search")
        rows.append(row)
    return rows
