"""Atomic writes on any file system: written under a temporary name and then moved, except where a store's own writes are atomic."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from shared.artifacts.objects import BucketFiles
from shared.contracts.stage import File

_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified")


def described(path: Path) -> File:
    """Returns a local file's digest and size."""
    with path.open("rb") as stream:
        return File(sha256=hashlib.file_digest(stream, "sha256").hexdigest(), size=stream.tell())


def put_whole(fs: Any, path: Path, target: str) -> None:
    if isinstance(fs, BucketFiles):  # writes of object stores are atomic
        fs.put_file(str(path), target)
        return
    with _atomic(fs, target) as part:
        fs.put_file(str(path), part)


def write_whole(fs: Any, content: bytes, target: str) -> None:
    if isinstance(fs, BucketFiles):
        fs.pipe_file(target, content)
        return
    with _atomic(fs, target) as part:
        fs.pipe_file(part, content)


@contextmanager
def _atomic(fs: Any, target: str) -> Iterator[str]:
    """Yields a temporary file that becomes the target; a failed write leaves no file behind."""
    part = beside(fs, target)
    try:
        yield part
        fs.mv(part, target)
    except OSError:
        with suppress(OSError):
            fs.rm_file(part)
        raise


def write_here(path: Path, text: str) -> None:
    """Writes text atomically to the local disk; a failed write leaves no file behind."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def written_at(fs: Any, path: str, info: dict[str, Any]) -> datetime:
    """Returns the time at which a file was written; `info` is what the file system says of it."""
    value = next((info[name] for name in _TIMES if info.get(name) is not None), None)
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    if value is None:
        value = fs.modified(path)
    at: datetime = datetime.fromisoformat(value) if isinstance(value, str) else value
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def beside(fs: Any, target: str) -> str:
    """Returns the temporary name for `target`; creates the folder."""
    if isinstance(fs, LocalFileSystem):
        Path(target).parent.mkdir(parents=True, exist_ok=True)
    return f"{target}.{secrets.token_hex(4)}.part"


def copied(fs: Any, source: str, to: Path, sha256: str) -> bool:
    """Copies to a local path if the content has this digest; else leaves no file and returns False."""
    part = to.with_name(f".{to.name}.{secrets.token_hex(4)}")
    try:
        fs.get_file(source, str(part))
        matches = described(part).sha256 == sha256
        if matches:
            part.replace(to)
        return matches
    finally:
        part.unlink(missing_ok=True)
