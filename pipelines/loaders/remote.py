"""Remote files: fetches only the bytes of a row group's wanted columns, in few pieces and several at a time."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.fs

from pipelines.loaders.file_protocol import File, Ranges, is_parquet
from shared.datafiles.kinds import MAGIC, kind_of
from shared.datafiles.object_store import ObjectStore
from shared.datafiles.objects import data_objects
from shared.domain.errors import BadData, EyasError, Invalid, Unavailable
from shared.domain.object_uris import split

_GAP = 64 << 10
"""Bytes between two ranges that cost less than another request."""
_PIECE = 4 << 20
_AT_A_TIME = 4
_TRIES = 4
PAUSE = 0.1
"""Seconds before the second attempt; four times as many before each further attempt."""
T = TypeVar("T")


class Store(Protocol):
    def read(self, path: str, stamp: str, first: int, into: memoryview) -> None:
        """Fills `into` with the bytes from `first` on."""

    def stamp(self, path: str) -> str | None:
        """Returns the present stamp; None if `read` checks it."""


@dataclass(frozen=True)
class RemoteFile:
    store: Store
    path: str
    name: str
    size: int
    stamp: str

    def open(self, ranges: Ranges) -> pa.NativeFile:
        return pa.PythonFile(_Fetched(self, _joined(ranges)), mode="r")

    def buffer_size(self, ranges: Ranges) -> int:
        return sum(last - first for first, last in _joined(ranges))

    def check(self) -> None:
        now = self.store.stamp(self.path)
        if now not in (None, self.stamp):
            raise BadData(f"{self.name}: changed while it was read; start again when it is complete")

    def fetch(self, ranges: Ranges) -> list[tuple[int, memoryview]]:
        """Fetches ranges; returns each with its beginning."""
        parts = [(first, memoryview(bytearray(last - first))) for first, last in ranges]
        pieces = [(first + at, part[at : at + _PIECE]) for first, part in parts for at in range(0, len(part), _PIECE)]
        if len(pieces) < 2:
            for first, into in pieces:
                self.store.read(self.path, self.stamp, first, into)
            return parts
        with ThreadPoolExecutor(min(_AT_A_TIME, len(pieces)), thread_name_prefix="fetch") as workers:
            for _ in workers.map(lambda piece: self.store.read(self.path, self.stamp, *piece), pieces):
                pass
        return parts


def _joined(ranges: Ranges) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first - merged[-1][1] <= _GAP:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


class _Fetched(io.RawIOBase):
    """A file object: serves fetched ranges from memory, and fetches any others on demand."""

    def __init__(self, file: RemoteFile, ranges: Ranges) -> None:
        self._file, self._at = file, 0
        self._parts = file.fetch(ranges)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        return self._at

    def read(self, size: int = -1) -> memoryview:
        first = self._at
        last = self._file.size if size < 0 else min(first + size, self._file.size)
        self._at = max(first, last)
        for begin, part in self._parts:
            if begin <= first and last <= begin + len(part):
                return part[first - begin : last - begin]
        ((_, part),) = self._file.fetch([(first, last)]) if last > first else [(0, memoryview(b""))]
        return part


class BucketObjects(ObjectStore):
    """Objects, read as the platform reads them: refused if they have changed since they were listed."""

    def stamp(self, path: str) -> str | None:
        return None


def in_a_bucket(uri: str) -> Iterator[File]:
    store = BucketObjects()
    objects = [entry for entry in data_objects(uri, [split(uri)[0]], store) if kind_of(entry.key) == "parquet"]
    if not objects:
        raise BadData(f"{uri}: no Parquet files (names end in .parquet or .pq)")
    return (RemoteFile(store, entry.uri, entry.uri, entry.size, entry.tag) for entry in objects)


@dataclass(frozen=True)
class Filesystem:
    """A filesystem of fsspec."""

    fs: Any
    how: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that reading a part of a file needs."""

    def read(self, path: str, stamp: str, first: int, into: memoryview) -> None:
        def some() -> None:
            content = self.fs.cat_file(path, start=first, end=first + len(into), **self.how)
            if len(content) != len(into):
                raise OSError(f"{len(content)} of {len(into)} bytes")
            into[:] = content

        self.with_retries(path, some)

    def stamp(self, path: str) -> str | None:
        def now() -> str:
            self.fs.invalidate_cache(self.fs._parent(path))
            return str(self.fs.ukey(path))

        return self.with_retries(path, now)

    def file(self, path: str) -> RemoteFile:
        size = self.with_retries(path, lambda: self.fs.info(path)["size"])
        return RemoteFile(self, path, self.fs.unstrip_protocol(path), size, str(self.stamp(path)))

    def with_retries(self, path: str, ask: Callable[[], T]) -> T:
        why: Exception | None = None
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(PAUSE * 4 ** (attempt - 1))
            try:
                return ask()
            except FileNotFoundError:
                raise BadData(f"{path}: file not found") from None
            except PermissionError as error:
                raise BadData(f"{path}: permission denied: {error}") from error
            except EyasError:
                raise
            except Exception as error:
                why = error
        reason = " ".join(str(why).split())[:200]
        raise Unavailable(f"{path}: reading failed {_TRIES} times: {type(why).__name__}: {reason}") from why


def in_a_filesystem(location: str, filesystem: Any) -> Iterator[File]:
    store = _store(filesystem)
    path = store.fs._strip_protocol(location)
    if store.with_retries(location, lambda: store.fs.isdir(path)):
        below = store.with_retries(location, lambda: store.fs.find(path))
        paths = sorted(file for file in below if is_parquet(PurePosixPath(file).relative_to(path).as_posix()))
        if not paths:
            raise BadData(f"{location}: folder without Parquet files (names end in .parquet or .pq)")
    elif not MAGIC & set(path) or store.with_retries(location, lambda: store.fs.exists(path)):
        paths = [path]
    else:
        matches = store.with_retries(location, lambda: store.fs.glob(path, detail=True))
        paths = sorted(file for file, about in matches.items() if about["type"] == "file")
        if not paths:
            raise BadData(f"{location}: no file matches")
    return (store.file(file) for file in paths)


def _store(filesystem: Any) -> Filesystem:
    from fsspec import AbstractFileSystem
    from fsspec.implementations.arrow import ArrowFSWrapper

    if isinstance(filesystem, pa.fs.FileSystem):
        return Filesystem(ArrowFSWrapper(filesystem), {"seekable": True})
    if isinstance(filesystem, AbstractFileSystem):
        return Filesystem(filesystem)
    raise Invalid(f"filesystem: expected a filesystem of fsspec or pyarrow, not {type(filesystem).__name__}")
