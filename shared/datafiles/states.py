"""State of a file or object as text: it changes with the content."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from shared.datafiles.object_store import DataObject


def object_state(data_object: DataObject) -> str:
    written = data_object.written.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return f"{data_object.size} bytes of {written}Z, tag {data_object.tag}"


def state(path: Path) -> str:
    stat = path.stat()
    return f"{stat.st_size} bytes of {_moment(stat.st_mtime_ns)}, changed {_moment(stat.st_ctime_ns)}"


def _moment(nanoseconds: int) -> str:
    """All digits, because they distinguish states of a file."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"
