"""Parquet files as chunks (a row group each), decoded into columns."""

from __future__ import annotations

import contextlib
import difflib
import errno
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.loaders.buffer_pool import BufferPool
from pipelines.loaders.columns import PackedColumn
from pipelines.loaders.decoding import Nulls, check_nulls, is_list, loaded_as, pack_column, plain, refusal, refused_nulls, size_of
from pipelines.loaders.file_protocol import File, Ranges
from pipelines.loaders.files import Paths, find_files
from pipelines.loaders.skipping import Corruption, SkippedData
from shared.domain.errors import BadData, EyasError, Invalid, Unavailable

_FOOTER = 64 << 10
"""Bytes at a file's end that usually contain the whole footer."""
_AT_A_TIME = 8
_LISTED = 30


class Corrupt(BadData):
    """A file's content cannot be read, although the file has not changed since it was found."""


@dataclass(frozen=True)
class OpenFile:
    file: File
    metadata: pq.FileMetaData
    end: str
    """Digest of the file's end, which has the footer."""

    @cached_property
    def schema(self) -> pa.Schema:
        return self.metadata.schema.to_arrow_schema()

    @cached_property
    def leaves(self) -> Mapping[str, range]:
        """The Parquet columns of each of the file's columns."""
        begins = np.cumsum([0, *map(_leaves, self.schema.types)]).tolist()
        return {name: range(*some) for name, *some in zip(self.schema.names, begins[:-1], begins[1:], strict=True)}

    def ranges(self, group: int, columns: Sequence[str]) -> Ranges:
        return [self._range(group, at) for name in columns for at in self.leaves[name]]

    def _range(self, group: int, column: int) -> tuple[int, int]:
        meta = self.metadata.row_group(group).column(column)
        first = meta.data_page_offset
        if meta.dictionary_page_offset:
            first = min(first, meta.dictionary_page_offset)
        return first, first + meta.total_compressed_size


@dataclass(frozen=True)
class Chunk:
    opened: OpenFile
    group: int
    rows: int
    size: int
    """Most bytes in memory."""
    widest: int
    """Bytes of the largest column."""
    fetched: int = 0
    """Further bytes in memory while the chunk is decoded."""

    @property
    def name(self) -> str:
        return f"{self.opened.file.name}: row group {self.group}"


@dataclass(frozen=True)
class Chunks:
    """All chunks of some files with the same columns."""

    chunks: Sequence[Chunk]
    columns: tuple[str, ...]
    schema: pa.Schema
    """Schema of these columns, as they are loaded."""
    nulls: Nulls = field(default_factory=dict)
    lost: tuple[SkippedData, ...] = ()
    """Files whose footer cannot be read."""

    @property
    def rows(self) -> int:
        return sum(chunk.rows for chunk in self.chunks)

    @property
    def size(self) -> int:
        return sum(chunk.size for chunk in self.chunks)

    @property
    def room(self) -> int:
        """Extra bytes of a buffer pool for the alignment of all chunks' arrays."""
        return BufferPool.room(2 * len(self.columns) * len(self.chunks))

    @property
    def digest(self) -> list[Any]:
        """Identifies all data that is read, independent of the files' location."""
        opened = {chunk.opened.file.name: chunk.opened for chunk in self.chunks}.values()
        return [
            [(opened_file.file.size, opened_file.file.stamp, opened_file.end) for opened_file in opened],
            self.columns,
            sorted(self.nulls.items()),
        ]

    def read(self, at: int) -> Iterator[tuple[str, PackedColumn]]:
        """Yields a chunk's columns in file order, one by one, because work on a column that is still in the CPU cache costs a fraction. The
        check that the file is unchanged comes at the end."""
        chunk = self.chunks[at]
        with _reading(chunk):
            source = chunk.opened.file.open(chunk.opened.ranges(chunk.group, self.columns))
        with source:
            with _reading(chunk):
                file = pq.ParquetFile(source, metadata=chunk.opened.metadata, page_checksum_verification=True)
            for name in self.columns:
                with _reading(chunk):
                    column = file.read_row_group(chunk.group, columns=[name], use_threads=False).column(name)
                if len(column) != chunk.rows:
                    raise Corrupt(f"{chunk.name} is corrupt: column '{name}' has {len(column):,} values, not {chunk.rows:,}")
                values = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
                yield name, pack_column(values, f"{chunk.name}: column '{name}'", self.nulls.get(name))
        chunk.opened.file.check()


@contextlib.contextmanager
def _reading(chunk: Chunk) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, pa.ArrowException, MemoryError) as error:
        chunk.opened.file.check()
        raise _why(chunk.name, error) from error


def _why(name: str, error: Exception) -> EyasError:
    reason = " ".join(str(error).split())[:200]
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno not in (None, errno.EIO)):
        return Unavailable(f"{name} cannot be read now: {reason}")
    return Corrupt(f"{name} is corrupt: {reason}")


def open_chunks(
    paths: Paths, columns: Sequence[str] | None = None, *, nulls: Nulls | None = None, filesystem: Any = None, corrupt: Corruption = "stop"
) -> Chunks:
    """Opens the files. `columns` None means all, in the first file's order. `nulls` holds a column's value for missing values. `corrupt`
    says what happens if a file's footer cannot be read."""
    if isinstance(columns, str) or (columns is not None and (not columns or len(set(columns)) < len(columns))):
        raise Invalid("columns: must be a list of distinct names")
    if corrupt not in get_args(Corruption):
        raise Invalid(f"corrupt: '{corrupt}' must be stop or skip")
    opened, lost = _opened(find_files(paths, filesystem), corrupt)
    opened = [opened_file for opened_file in opened if opened_file.metadata.num_rows] or opened[:1]
    if not opened:
        raise BadData(f"{lost[0].why} (all other files are unreadable too)")
    first = opened[0]
    wanted = tuple(columns if columns is not None else first.schema.names)
    _check_kinds(first, wanted)
    check_nulls(nulls or {}, {name: first.schema.field(name).type for name in wanted})
    for opened_file in opened[1:]:
        _check_alike(opened_file, first, wanted, all_columns=columns is None)
    chunks: list[Chunk] = []
    for opened_file in opened:
        try:
            chunks += [_chunk(opened_file, group, wanted, nulls or {}) for group in range(opened_file.metadata.num_row_groups)]
        except Corrupt as error:
            if corrupt == "stop":
                raise
            lost.append(SkippedData(opened_file.file.name, None, str(error)))
    schema = pa.schema([(name, plain(first.schema.field(name).type)) for name in wanted])
    return Chunks(chunks, wanted, schema, nulls or {}, tuple(lost))


def _opened(files: Sequence[File], corrupt: Corruption) -> tuple[list[OpenFile], list[SkippedData]]:
    with ThreadPoolExecutor(min(_AT_A_TIME, len(files)), thread_name_prefix="opening") as workers:
        opening = [workers.submit(_open, file) for file in files]
    opened, lost = [], []
    for file, future in zip(files, opening, strict=True):
        try:
            opened.append(future.result())
        except Corrupt as error:
            if corrupt == "stop":
                raise
            lost.append(SkippedData(file.name, None, str(error)))
    return opened, lost


def _open(file: File) -> OpenFile:
    try:
        with file.open([(max(0, file.size - _FOOTER), file.size)]) as source:
            source.seek(max(0, file.size - _FOOTER))
            end = hashlib.sha256(source.read()).hexdigest()
            opened = OpenFile(file, pq.ParquetFile(source).metadata, end)
            _ = opened.leaves
            return opened
    except (OSError, ValueError, pa.ArrowException, MemoryError) as error:
        file.check()
        raise _no_parquet(file, error) from error


def _no_parquet(file: File, error: Exception) -> EyasError:
    if isinstance(error, OSError) and error.errno is not None:
        return BadData(f"{file.name}: cannot be read: {error.strerror}")
    if not file.size:
        return Corrupt(f"{file.name}: the file is empty")
    with file.open([(0, min(4, file.size))]) as source:
        begin = source.read(4)
    if begin == b"PARE":
        return BadData(f"{file.name}: footer is encrypted; only unencrypted files can be loaded")
    if begin != b"PAR1":
        return BadData(f"{file.name}: not a Parquet file; write its rows as Parquet first")
    return Corrupt(f"{file.name}: footer is missing or damaged ({' '.join(str(error).split())[:120]}); write the file again")


def _chunk(opened: OpenFile, group: int, columns: Sequence[str], nulls: Nulls) -> Chunk:
    meta, sizes, name = opened.metadata.row_group(group), [], f"{opened.file.name}: row group {group}"
    for column in columns:
        kind, leaf = opened.schema.field(column).type, meta.column(opened.leaves[column][0])
        lists = is_list(plain(kind))
        if leaf.num_values < meta.num_rows or (not lists and leaf.num_values != meta.num_rows):
            raise Corrupt(f"{name}: footer is damaged: column '{column}' cannot have {leaf.num_values:,} values in {meta.num_rows:,} rows")
        missing = leaf.statistics.null_count if leaf.is_stats_set and leaf.statistics.has_null_count else 0
        if missing and column not in nulls and not lists and not pa.types.is_floating(loaded_as(kind)):
            raise refused_nulls(f"{name}: column '{column}'", missing)
        sizes.append(size_of(kind, meta.num_rows, leaf.num_values))
    ranges = opened.ranges(group, columns)
    if any(not 0 <= first <= last <= opened.file.size for first, last in ranges):
        raise Corrupt(f"{name}: footer is damaged: the position lies outside the file")
    return Chunk(opened, group, meta.num_rows, sum(sizes), max(sizes), opened.file.buffer_size(ranges))


def _leaves(kind: pa.DataType) -> int:
    """Returns how many Parquet columns a column has."""
    return sum(_leaves(kind.field(at).type) for at in range(kind.num_fields)) if kind.num_fields else 1


def _check_kinds(opened: OpenFile, wanted: Sequence[str]) -> None:
    name = opened.file.name
    _check_names(opened, wanted)
    loadable = [field.name for field in opened.schema if loaded_as(field.type) is not None]
    for column in wanted:
        kind = opened.schema.field(column).type
        if loaded_as(kind) is None:
            others = [other for other in wanted if other in loadable]
            leave = f", or leave the column out: columns={others}" if others and len(others) <= _LISTED else ""
            raise Invalid(f"{name}: column '{column}' {refusal(kind)}{leave}")


def _check_names(opened: OpenFile, wanted: Sequence[str]) -> None:
    names = opened.schema.names
    for column in wanted:
        if names.count(column) > 1:
            raise Invalid(f"{opened.file.name}: several columns are named '{column}'; rename them")
        if column not in names:
            near = [other for other in names if other.lower() == column.lower()] or difflib.get_close_matches(column, names, 1)
            meant = f" (did you mean '{near[0]}'?)" if near else ""
            listed = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
            raise Invalid(f"{opened.file.name}: column '{column}' is missing{meant}; columns: {listed}")


def _check_alike(opened: OpenFile, first: OpenFile, wanted: Sequence[str], all_columns: bool) -> None:
    _check_names(opened, wanted)
    more = [column for column in opened.schema.names if column not in wanted] if all_columns else []
    if more:
        raise Invalid(f"{opened.file.name}: column '{more[0]}' is missing in {first.file.name}; name the columns to load: columns=[...]")
    for column in wanted:
        kind, there = opened.schema.field(column).type, first.schema.field(column).type
        if loaded_as(kind) is None or plain(kind) != plain(there):
            raise Invalid(f"{opened.file.name}: column '{column}' is {kind}, but {there} in {first.file.name}; write one type")
