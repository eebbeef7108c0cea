"""Chunks as they lie in memory, on local disk: Arrow files that are mapped, so that a second epoch decodes nothing.

A chunk is kept under the name of what it is made of: the file's path, size and time, the row group and the columns. Files are written
beside and renamed; one that can't be read is made anew. Beyond the limit the data that was used longest ago goes first; what finds no
room is read from Parquet every time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines.loaders.columns import Flat, Held, Lists, Long, Short

_VERSION = 1
_LENGTHS = "~lengths"
"""Ends the name of the column that says how many values the short lists of another one have."""


@dataclass(frozen=True)
class Cache:
    folder: Path
    limit: int
    """Bytes, of all data together."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, paths: Sequence[Path], columns: Sequence[str]) -> Kept:
        said = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
        name = hashlib.sha256(json.dumps([_VERSION, said, list(columns)]).encode()).hexdigest()[:32]
        return Kept(self, self.folder / name)

    def room(self, own: Path, size: int) -> bool:
        """Whether so many bytes more may be kept; what others have goes for it."""
        with self._lock:
            used = {one: _size(one) for one in self.folder.iterdir() if one.is_dir()} if self.folder.exists() else {}
            for oldest in sorted((one for one in used if one != own), key=lambda one: one.stat().st_mtime_ns):
                if sum(used.values()) + size <= self.limit:
                    break
                shutil.rmtree(oldest, ignore_errors=True)
                used.pop(oldest)
            return sum(used.values()) + size <= self.limit


@dataclass(frozen=True)
class Kept:
    """Of one selection of files and columns."""

    cache: Cache
    folder: Path

    def get(self, chunk: int) -> Mapping[str, Held] | None:
        path = self._path(chunk)
        try:
            with pa.memory_map(str(path)) as source:
                table = pa.ipc.open_file(source).read_all()
        except (OSError, pa.ArrowException):
            return None
        names = [name for name in table.column_names if not name.endswith(_LENGTHS)]
        return {name: _held(table, name) for name in names}

    def put(self, chunk: int, rows: Mapping[str, Held]) -> bool:
        """False where there is no room."""
        if not self.cache.room(self.folder, sum(one.size for one in rows.values())):
            return False
        self.folder.mkdir(parents=True, exist_ok=True)
        os.utime(self.folder)
        columns = dict(pair for name, one in rows.items() for pair in _arrow(name, one))
        path = self._path(chunk)
        new = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            table = pa.table(columns)
            with pa.OSFile(str(new), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            new.replace(path)
        except OSError:  # a full disk: the loader goes on without
            return False
        finally:
            with contextlib.suppress(OSError):
                new.unlink()
        return True

    def _path(self, chunk: int) -> Path:
        return self.folder / f"{chunk}.arrow"


def _size(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.iterdir())


def _arrow(name: str, one: Held) -> list[tuple[str, pa.Array]]:
    if isinstance(one, Short):
        width = one.array.shape[1]
        rows = pa.FixedSizeListArray.from_arrays(pa.array(one.array.ravel()), width)
        return [(name, rows), (name + _LENGTHS, pa.array(one.lengths))]
    if isinstance(one, Long):
        return [(name, pa.LargeListArray.from_arrays(pa.array(one.lists.offsets), pa.array(one.lists.values)))]
    if one.array.ndim == 2:
        return [(name, pa.FixedSizeListArray.from_arrays(pa.array(one.array.ravel()), one.array.shape[1]))]
    return [(name, pa.array(one.array))]


def _held(table: pa.Table, name: str) -> Held:
    column = table.column(name).chunk(0) if table.num_rows else table.column(name).combine_chunks()
    if pa.types.is_large_list(column.type):
        return Long(Lists(column.values.to_numpy(), column.offsets.to_numpy()))
    if not pa.types.is_fixed_size_list(column.type):
        return Flat(column.to_numpy(zero_copy_only=column.type != pa.bool_()))
    rows = column.flatten().to_numpy().reshape(-1, column.type.list_size)
    if name + _LENGTHS not in table.column_names:
        return Flat(rows)
    return Short(rows, table.column(name + _LENGTHS).combine_chunks().to_numpy().astype(np.uint8, copy=False))
