"""Input files of commands: read and checked as a whole, then sent in requests of an allowed size."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from services.cli.exit_codes import Exit
from services.cli.faults import ReportedError

T = TypeVar("T")

_SPEC = 1 << 20
AT_ONCE = 5_000
"""Largest number of items or feature rows in a request."""
BYTES = 900_000
"""Largest request in bytes; the platform accepts at most 1 MiB."""


def read_text(file: Path) -> str:
    """Reads a spec; raises `ReportedError` for files above 1 MiB."""
    with _reading(file):
        if file.is_file() and file.stat().st_size > _SPEC:
            raise ReportedError(f"{file} is larger than 1 MiB: is it a spec?", Exit.WRONG)
        return file.read_text(encoding="utf-8")


def json_lines(file: Path, made: Callable[[str, Any, str], T]) -> list[T]:
    """Calls `made` with place, value and text of each line that is not blank."""

    def convert(place: str, line: str) -> T:
        return made(place, _value(place, line), line)

    with _reading(file), file.open(encoding="utf-8") as lines:
        return [convert(f"{file}:{number}", line.strip()) for number, line in enumerate(lines, 1) if line.strip()]


def batches(entries: Sequence[T], most: int) -> Iterator[list[T]]:
    """Splits entries by number and bytes. Yields at least one batch, so that a wrong name is reported for an empty file too."""
    batch: list[T] = []
    size = 0
    for entry in entries:
        length = len((entry if isinstance(entry, str) else json.dumps(entry)).encode()) + 2
        if batch and (len(batch) == most or size + length > BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += length
    yield batch


def send_batches(entries: Sequence[Any], send: Callable[[list[Any]], Any], noun: str, file: Path) -> Counter[str]:
    """Sends the entries in batches; returns the sum of each number of the answers. If the platform rejects a batch, the error names the
    first entry of that batch, because the platform counts from it."""
    totals = Counter[str]()
    for batch in batches(entries, AT_ONCE):
        try:
            totals.update(send(batch))
        except ReportedError as error:
            place = f"counted from {noun} {totals['accepted'] + 1} of {file}; earlier {noun}s are written"
            raise ReportedError(f"{error} ({place})", error.code) from None
    return totals


def _value(place: str, line: str) -> Any:
    if len(line.encode()) > BYTES:
        raise ReportedError(f"{place}: the line is longer than {BYTES} bytes", Exit.WRONG)
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ReportedError(f"{place}: not JSON: {error}", Exit.WRONG) from None


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ReportedError(f"{file}: {error.strerror or error}", Exit.WRONG) from None
    except UnicodeDecodeError:
        raise ReportedError(f"{file} is not UTF-8 text", Exit.WRONG) from None
