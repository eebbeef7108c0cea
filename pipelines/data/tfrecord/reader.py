"""Reads TFRecord as frames, chunk by chunk: by the layout file, or by the features found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from google.protobuf.message import DecodeError
from polars.exceptions import PolarsError

from pipelines.data.spill import CHUNK, spill_chunks
from pipelines.data.tfrecord.columns import FILLER, FLAT, ColumnBuffer, lists
from pipelines.data.tfrecord.example import example_class
from pipelines.data.tfrecord.framing import records
from pipelines.data.tfrecord.layout import TfColumn, TfRecordLayout, Wire, beside, read_layout
from shared.domain.errors import BadData


def scan_tfrecord(files: Sequence[Path], scratch: Path, name: str) -> pl.LazyFrame:
    """Decodes the files once into the scratch, and scans the result."""
    longest: dict[str, int] = {}
    bare = [path for path in files if not beside(path).exists()]
    if bare and len(bare) < len(files):
        raise BadData(f"{name}: layout of {bare[0].name} is missing, while other files have one")
    frame = spill_chunks((chunk for path in files for chunk in _chunks(path, longest)), scratch, name).frame
    if not bare:
        return frame
    single = [column for column, most in longest.items() if most <= 1]
    return frame.with_columns(pl.col(column).list.first() for column in single)


def _chunks(path: Path, longest: dict[str, int]) -> Iterator[pl.DataFrame]:
    layout = read_layout(path)
    try:
        yield from _by_layout(path, layout) if layout is not None else _as_found(path, longest)
    except PolarsError as error:
        raise BadData(f"{path}: values do not fit the layout: {' '.join(str(error).split())[:200]}") from error


def _features(path: Path) -> Iterator[tuple[int, Any]]:
    parse = example_class().FromString
    for number, data in enumerate(records(path), 1):
        try:
            yield number, parse(data).features.feature
        except DecodeError:
            raise BadData(f"{path}: record {number} is not a tf.train.Example") from None


def _by_layout(path: Path, layout: TfRecordLayout) -> Iterator[pl.DataFrame]:
    reading = _Reading(path, layout)
    for number, features in _features(path):
        reading.take(number, features)
        if reading.rows >= CHUNK:
            yield reading.frame()
            reading = _Reading(path, layout)
    if reading.rows:
        yield reading.frame()


class _Reading:
    def __init__(self, path: Path, layout: TfRecordLayout) -> None:
        self.rows = 0
        self._path = path
        self._layout = layout
        self._groups, self._alone = layout.groups(), layout.alone()
        self._gathered = {column.name: ColumnBuffer() for column in layout.columns}

    def frame(self) -> pl.DataFrame:
        return pl.DataFrame([self._gathered[column.name].series(column) for column in self._layout.columns])

    def take(self, number: int, features: Any) -> None:
        rows = 1 if self._layout.batch is None else None
        for name, columns in self._groups.items():
            values = self._values(number, features, name, columns[0].wire)
            rows = len(values) // len(columns) if rows is None else rows
            if len(values) != rows * len(columns):
                raise self._fault(number, name, f"{len(values)} values for {len(columns)} columns")
            for place, column in enumerate(columns):
                self._gathered[column.name].values.extend(values[place * rows : (place + 1) * rows])
        for column in self._alone:
            rows = self._add_row(number, features, column) if self._layout.batch is None else self._add_rows(number, features, column, rows)
        self.rows += rows or 0

    def _add_row(self, number: int, features: Any, column: TfColumn) -> int:
        gathered = self._gathered[column.name]
        if column.short not in features:
            if not column.nulls:
                raise self._fault(number, column.short, "missing")
            gathered.lengths.append(-1)
            gathered.valid.append(False)
            if not column.lists:
                gathered.values.append(FILLER[column.wire])
            return 1
        values = self._values(number, features, column.short, column.wire)
        if not column.lists and len(values) != 1:
            raise self._fault(number, column.short, f"{len(values)} values; expected 1")
        gathered.values.extend(values)
        gathered.lengths.append(len(values))
        gathered.valid.append(True)
        return 1

    def _add_rows(self, number: int, features: Any, column: TfColumn, rows: int | None) -> int:
        gathered = self._gathered[column.name]
        values = self._values(number, features, column.short, column.wire)
        count = len(values)
        if column.lists:
            lengths = self._values(number, features, f"{column.short}#", "int64_list")
            if sum(max(length, 0) for length in lengths) != count:
                raise self._fault(number, column.short, f"{count} values, but the lengths have another sum")
            gathered.lengths.extend(lengths)
            count = len(lengths)
        elif column.nulls:
            gathered.valid.extend(bool(flag) for flag in self._values(number, features, f"{column.short}?", "int64_list"))
            if len(gathered.valid) != len(gathered.values) + count:
                raise self._fault(number, f"{column.short}?", "number of rows differs from the number of values")
        gathered.values.extend(values)
        if rows is not None and count != rows:
            raise self._fault(number, column.short, f"{count} rows, but other features of the record have {rows}")
        return count

    def _values(self, number: int, features: Any, name: str, wire: Wire) -> Any:
        feature = features.get(name)
        if feature is None:
            raise self._fault(number, name, "missing")
        kind = feature.WhichOneof("kind")
        if kind not in (wire, None):
            raise self._fault(number, name, f"is {kind}, but the layout says {wire}")
        return getattr(feature, wire).value

    def _fault(self, number: int, feature: str, problem: str) -> BadData:
        return BadData(f"{self._path}: record {number}, feature '{feature}': {problem}")


def _as_found(path: Path, longest: dict[str, int]) -> Iterator[pl.DataFrame]:
    """Yields every feature as a column of lists. `longest` collects the maximum list lengths of all files, to find single values."""
    columns: dict[str, tuple[Wire, ColumnBuffer]] = {}
    rows = 0
    for number, features in _features(path):
        for name in features:
            feature = features[name]
            wire = feature.WhichOneof("kind")
            if wire is None:
                continue
            if name not in columns:
                columns[name] = (wire, ColumnBuffer(lengths=[-1] * rows))
            first_wire, gathered = columns[name]
            if first_wire != wire:
                raise BadData(f"{path}: record {number}, feature '{name}': is {wire}, but {first_wire} in earlier records")
            values = getattr(feature, wire).value
            gathered.values.extend(values)
            gathered.lengths.append(len(values))
            if len(values) > longest.get(name, -1):
                longest[name] = len(values)
        rows += 1
        for _, gathered in columns.values():
            if len(gathered.lengths) < rows:
                gathered.lengths.append(-1)
        if rows >= CHUNK:
            yield _listed(columns)
            columns, rows = {name: (wire, ColumnBuffer()) for name, (wire, _) in columns.items()}, 0
    if rows:
        yield _listed(columns)


def _listed(columns: dict[str, tuple[Wire, ColumnBuffer]]) -> pl.DataFrame:
    return pl.DataFrame(
        [lists(_text(pl.Series(name, gathered.values, FLAT[wire])), gathered.lengths) for name, (wire, gathered) in columns.items()]
    )


def _text(flat: pl.Series) -> pl.Series:
    """Converts bytes to text if possible."""
    if flat.dtype != pl.Binary:
        return flat
    try:
        return flat.cast(pl.String)
    except PolarsError:
        return flat
