"""Cache of decoded chunks on local disk, so that later epochs decode nothing: an Arrow file per chunk.

A chunk's name follows from its file (size, time and a digest of its end), the row group and the columns. Files are written under another
name and renamed, and hold a checksum of each column; a damaged file is written again. Above the limit the least recently used data is
removed first; chunks without room are read from Parquet every time. Columns are read one by one into reused memory: for rows that are all
taken once, in any order, this costs half as much as memory mapping.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.loaders.columns import LINE, Array, FlatColumn, ListColumn, LongListBatch, PackedColumn, ShortListBatch

_VERSION = 2
_LENGTHS = "~lengths"
"""Suffix of the column with the lengths of another column's short lists."""
_SUM, _DTYPE = b"eyas.sum", b"eyas.dtype"
_ABANDONED = 3600.0
"""Seconds after which an unfinished file is abandoned."""

Scratch = Callable[[int], Array]
"""Returns a buffer of the given number of bytes, valid as long as the rows are needed."""


@dataclass(frozen=True)
class Cache:
    folder: Path
    limit: int = 16 * 2**30
    """Bytes of all data together."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles without the lock: another process has its own."""
        return Cache, (self.folder, self.limit)

    def of(self, digest: Sequence[Any]) -> SelectionCache:
        """Returns the cache of a selection; `digest` identifies its chunks."""
        name = hashlib.sha256(json.dumps([_VERSION, *digest]).encode()).hexdigest()[:32]
        with contextlib.suppress(OSError):
            os.utime(self.folder / name)
            for left in (self.folder / name).glob(".*"):
                if time.time() - left.stat().st_mtime > _ABANDONED:
                    left.unlink()
        return SelectionCache(self, self.folder / name)

    def take(self, new: Path, path: Path) -> bool:
        """Moves a finished file into the cache and evicts other selections' data; returns False if there is still no room."""
        with self._lock:
            size = new.stat().st_size
            used = {folder: _size(folder) for folder in self.folder.iterdir() if folder.is_dir()}
            for oldest in sorted((folder for folder in used if folder != path.parent), key=_used):
                if sum(used.values()) <= self.limit:
                    break
                shutil.rmtree(oldest, ignore_errors=True)
                used.pop(oldest)
            if sum(used.values()) > self.limit or size > self.limit:
                return False
            new.replace(path)
            return True


@dataclass(frozen=True)
class SelectionCache:
    """Cache of a selection of files and columns."""

    cache: Cache
    folder: Path
    _verified: dict[int, FileLayout] = field(default_factory=dict)
    _full: threading.Event = field(default_factory=threading.Event)

    def get(self, chunk: int, scratch: Scratch) -> Iterator[tuple[str, PackedColumn]]:
        """Yields the columns that are cached and intact; checksums are verified on first use."""
        path = self._path(chunk)
        with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
            verified = self._verified.get(chunk)
            size = os.fstat(file.fileno()).st_size
            layout = verified if verified is not None and verified.size == size else _read_layout(path, size)
            if layout is None:
                return
            for name, column in layout.columns.items():
                packed = column.read(file.fileno(), scratch)
                if layout is not verified and _sum(packed) != column.sum:
                    return
                yield name, packed
            self._verified[chunk] = layout

    def put(self, chunk: int, rows: Mapping[str, PackedColumn]) -> bool:
        """Writes a chunk; returns False if there is no room."""
        self._verified.pop(chunk, None)
        if self._full.is_set():
            return False
        path = self._path(chunk)
        new = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            table = _table(rows)
            with pa.OSFile(str(new), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            if not self.cache.take(new, path):
                self._full.set()
        except OSError:  # full disk: the loader continues without a cache
            self._full.set()
        finally:
            with contextlib.suppress(OSError):
                new.unlink()
        return not self._full.is_set()

    def _path(self, chunk: int) -> Path:
        return self.folder / f"{chunk}.arrow"


@dataclass(frozen=True)
class CachedColumn:
    """Places of a column's arrays in a file."""

    kind: type[PackedColumn]
    arrays: tuple[tuple[int, Any, tuple[int, ...]], ...]
    """Offset, dtype and shape of each array."""
    dtype: Any
    """Type of the values."""
    sum: int

    def read(self, file: int, scratch: Scratch) -> PackedColumn:
        """Reads the column; raises OSError if the file is too short."""
        sizes = [-(-_bytes(dtype, shape) // LINE) * LINE for _, dtype, shape in self.arrays]
        room, begin, arrays = scratch(sum(sizes)), 0, []
        for (at, dtype, shape), size in zip(self.arrays, sizes, strict=True):
            part = room[begin : begin + _bytes(dtype, shape)]
            if len(part) and os.preadv(file, [part.data], at) != len(part):
                raise OSError("file ends too early")
            arrays.append(part.view(dtype).reshape(shape))
            begin += size
        return _made(self.kind, arrays, self.dtype)


@dataclass(frozen=True)
class FileLayout:
    size: int
    """Bytes of the file."""
    columns: Mapping[str, CachedColumn]


def _used(folder: Path) -> int:
    with contextlib.suppress(OSError):
        return folder.stat().st_mtime_ns
    return 0


def _size(folder: Path) -> int:
    total = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                total += entry.stat().st_size
    return total


def _read_layout(path: Path, size: int) -> FileLayout | None:
    """Returns the layout of a file, or None if the file is damaged."""
    try:
        with pa.memory_map(str(path)) as mapped:
            begin = mapped.read_buffer().address
            mapped.seek(0)
            table = pa.ipc.open_file(mapped).read_all()
            names = [name for name in table.column_names if not name.endswith(_LENGTHS)]
            return FileLayout(size, {name: _where(table, name, begin) for name in names})
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError):
        return None


def _where(table: pa.Table, name: str, begin: int) -> CachedColumn:
    packed = _packed_column(table, name)
    arrays = [(array.ctypes.data - begin, array.dtype, array.shape) for array in _arrays(packed)]
    places = tuple((at if _bytes(dtype, shape) else 0, dtype, shape) for at, dtype, shape in arrays)
    return CachedColumn(type(packed), places, _dtype(packed), int(table.schema.field(name).metadata[_SUM]))


def _bytes(dtype: Any, shape: tuple[int, ...]) -> int:
    return int(np.prod(shape)) * int(dtype.itemsize)


def _arrays(packed: PackedColumn) -> tuple[Array, ...]:
    if isinstance(packed, FlatColumn):
        return (packed.array,)
    return (packed.array, packed.lengths) if isinstance(packed, ShortListBatch) else (packed.lists.values, packed.lists.offsets)


def _made(kind: type[PackedColumn], arrays: list[Array], dtype: Any) -> PackedColumn:
    if kind is FlatColumn:
        return FlatColumn(arrays[0])
    return ShortListBatch(arrays[0], arrays[1], dtype) if kind is ShortListBatch else LongListBatch(ListColumn(arrays[0], arrays[1]))


def _dtype(packed: PackedColumn) -> Any:
    return packed.dtype if isinstance(packed, ShortListBatch) else _arrays(packed)[0].dtype


def _sum(packed: PackedColumn) -> int:
    """Returns the sum of all bytes as words, which detects a damaged file."""
    total = 0
    for array in _arrays(packed):
        raw = np.ascontiguousarray(array).view(np.uint8).ravel()
        word_bytes = len(raw) - len(raw) % 8
        total += int(raw[:word_bytes].view(np.uint64).sum(dtype=np.uint64)) + int(raw[word_bytes:].sum(dtype=np.uint64))
    return total % 2**64


def _table(rows: Mapping[str, PackedColumn]) -> pa.Table:
    fields, columns = [], []
    for name, packed in rows.items():
        metadata = {_DTYPE: _dtype(packed).str, _SUM: str(_sum(packed))}
        for column, array in _arrow(name, packed):
            fields.append(pa.field(column, array.type, metadata=metadata))
            columns.append(array)
    return pa.table(columns, schema=pa.schema(fields))


def _arrow(name: str, packed: PackedColumn) -> list[tuple[str, pa.Array]]:
    if isinstance(packed, ShortListBatch):
        width = packed.array.shape[1]
        rows = pa.FixedSizeListArray.from_arrays(_array(packed.array.ravel()), width)
        return [(name, rows), (name + _LENGTHS, pa.array(packed.lengths))]
    if isinstance(packed, LongListBatch):
        return [(name, pa.LargeListArray.from_arrays(pa.array(packed.lists.offsets), _array(packed.lists.values)))]
    if packed.array.ndim == 2:
        return [(name, pa.FixedSizeListArray.from_arrays(_array(packed.array.ravel()), packed.array.shape[1]))]
    return [(name, _array(packed.array))]


def _array(array: Array) -> pa.Array:
    """Returns booleans as bytes, because Arrow would pack them into bits."""
    return pa.array(array.view(np.uint8) if array.dtype == np.bool_ else array)


def _packed_column(table: pa.Table, name: str) -> PackedColumn:
    column = table.column(name).chunk(0)
    dtype = np.dtype(table.schema.field(name).metadata[_DTYPE].decode())
    if pa.types.is_large_list(column.type):
        return LongListBatch(ListColumn(column.values.to_numpy().view(dtype), column.offsets.to_numpy()))
    if not pa.types.is_fixed_size_list(column.type):
        return FlatColumn(column.to_numpy().view(dtype))
    rows = column.flatten().to_numpy().reshape(-1, column.type.list_size)
    if name + _LENGTHS not in table.column_names:
        return FlatColumn(rows.view(dtype))
    return ShortListBatch(rows if dtype != np.bool_ else rows.view(dtype), table.column(name + _LENGTHS).chunk(0).to_numpy(), dtype)
