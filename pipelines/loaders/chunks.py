"""Parquet files as chunks, a row group each, decoded into columns."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipelines.loaders.arena import Arena
from pipelines.loaders.columns import Flat, Held, held, most
from shared.domain.errors import BadData, Invalid

_KINDS = "biuf"


@dataclass(frozen=True)
class Chunk:
    path: Path
    group: int
    rows: int
    size: int
    """Bytes in memory, at most."""


@dataclass(frozen=True)
class Chunks:
    """All of some files, which have the same columns."""

    chunks: Sequence[Chunk]
    columns: tuple[str, ...]
    schema: pa.Schema
    """Of these columns."""

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.chunks)

    @property
    def size(self) -> int:
        return sum(one.size for one in self.chunks)

    @property
    def room(self) -> int:
        """Bytes that an arena of all of them has for where arrays begin."""
        return Arena.room(2 * len(self.columns) * len(self.chunks))

    def read(self, at: int, threads: threading.local) -> Iterator[tuple[str, Held]]:
        """Its rows as they lie, column by column: what is done with one while it is near costs a fraction."""
        chunk = self.chunks[at]
        file = _file(chunk.path, threads)
        for name in self.columns:
            try:
                column = file.read_row_group(chunk.group, columns=[name], use_threads=False).column(name)
            except (OSError, pa.ArrowException) as error:
                raise BadData(f"{chunk.path}: row group {chunk.group} can't be read: {error}") from error
            whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            yield name, _held(whole, f"{chunk.path}: column '{name}'")


def open_chunks(paths: Iterable[Path], columns: Sequence[str] | None = None) -> Chunks:
    found: list[Chunk] = []
    schema: pa.Schema | None = None
    for path in paths:
        with pq.ParquetFile(path) as file:
            here = file.schema_arrow
            wanted = tuple(columns) if columns is not None else tuple(here.names)
            _check(here, wanted, path)
            if schema is not None and here.types != schema.types:
                raise Invalid(f"{path}: its columns are of other types than those of {found[0].path}")
            schema = here
            wide = [here.field(name).type for name in wanted]
            begins = np.cumsum([0, *map(_leaves, here.types)]).tolist()
            leaves = dict(zip(here.names, begins[:-1], strict=True))
            for group in range(file.num_row_groups):
                meta = file.metadata.row_group(group)
                counts = [meta.column(leaves[name]).num_values for name in wanted]
                size = sum(_size(kind, meta.num_rows, n) for n, kind in zip(counts, wide, strict=True))
                found.append(Chunk(path, group, meta.num_rows, size))
    return Chunks(found, wanted, pa.schema([schema.field(name) for name in wanted] if schema is not None else []))


def _leaves(kind: pa.DataType) -> int:
    """How many columns a Parquet file makes of it."""
    return sum(_leaves(kind.field(at).type) for at in range(kind.num_fields)) if kind.num_fields else 1


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _inner(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if _is_list(kind) else kind


def _check(schema: pa.Schema, wanted: Sequence[str], path: Path) -> None:
    for name in wanted:
        if name not in schema.names:
            raise Invalid(f"{path}: it has no column '{name}', but {', '.join(schema.names)}")
        inner = _inner(schema.field(name).type)
        if not (pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_boolean(inner)):
            raise Invalid(
                f"{path}: column '{name}' is {schema.field(name).type}: only numbers and lists of numbers can be loaded: make codes of it"
            )


def _file(path: Path, threads: threading.local) -> pq.ParquetFile:
    files: dict[Path, pq.ParquetFile] = threads.__dict__.setdefault("files", {})
    if path not in files:
        files[path] = pq.ParquetFile(path)
    return files[path]


def _size(kind: pa.DataType, rows: int, values: int) -> int:
    itemsize = max(8, _inner(kind).bit_width) // 8
    return most(rows, values, itemsize) if _is_list(kind) else rows * itemsize


def _held(column: pa.Array, name: str) -> Held:
    kind = column.type
    if not _is_list(kind):
        return Flat(_array(column, name))
    if column.null_count:
        raise BadData(f"{name} has {column.null_count} nulls: lists may be empty, not missing")
    if pa.types.is_fixed_size_list(kind):
        return Flat(_array(column.flatten(), name).reshape(len(column), kind.list_size))
    return held(_array(column.values, name), column.offsets.to_numpy())


def _array(column: pa.Array, name: str) -> NDArray[Any]:
    if column.null_count and not pa.types.is_floating(column.type):
        raise BadData(f"{name} has {column.null_count} nulls: a whole number can't be missing")
    found: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found
