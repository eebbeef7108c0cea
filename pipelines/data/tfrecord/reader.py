"""Reads TFRecord as frames, chunk by chunk: by the layout file, or by the features that the Examples have.

Hand-written because tf.io.parse_example tells neither an absent feature from an empty list nor which record is faulty. It parses an
Example per row six times as fast (0.7 s of CPU per 100,000 rows of 8 columns; this module 4.0 s, with batched rows 0.3 s), but takes
678 MiB instead of 191.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from polars.exceptions import PolarsError

from pipelines.data.spill import CHUNK, spill_chunks
from pipelines.data.tfrecord.columns import Feature, Ints, column_values, group_places, lists, sums
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
    """Yields frames; without a layout all columns are lists, and `longest` collects the maximum lengths, to find single values."""
    layout = read_layout(path)
    wires: dict[str, Wire] = {} if layout is None else dict(layout.features())
    examples = -(-CHUNK // ((layout and layout.batch) or 1))
    numbered = enumerate(records(path), 1)
    try:
        while (chunk := _Chunk(path, layout, wires)).take(itertools.islice(numbered, examples)):
            yield chunk.frame(longest)
    except PolarsError as error:
        raise BadData(f"{path}: values do not fit the layout: {' '.join(str(error).split())[:200]}") from error


class _Chunk:
    """Some Examples of a file. `wires`: the features to read; without a layout, further features are added to it."""

    def __init__(self, path: Path, layout: TfRecordLayout | None, wires: dict[str, Wire]) -> None:
        self._path, self._layout, self._wires = path, layout, wires
        self._features = {name: Feature(name, wire) for name, wire in wires.items()}
        self._first = 0
        """Number of the first Example."""

    def take(self, numbered: Iterator[tuple[int, bytes]]) -> bool:
        """Reads the Examples; returns False if there are none."""
        parse, number = example_class().FromString, -1
        for number, data in numbered:
            self._first = self._first or number
            try:
                messages = parse(data).features.feature
            except DecodeError:
                raise BadData(f"{self._path}: record {number} is not a tf.train.Example") from None
            self._add(number, messages)
        for feature in self._features.values():
            feature.pad(number - self._first + 1)
        return number > 0

    def _add(self, number: int, messages: Any) -> None:
        for name, message in messages.items():
            wire: Wire | None = message.WhichOneof("kind")
            feature = self._features.get(name)
            if feature is None:
                if self._layout is not None or wire is None:
                    continue
                self._wires[name] = wire
                feature = self._features[name] = Feature(name, wire)
            if wire is None:
                if self._layout is None:
                    continue
            elif wire != feature.wire:
                expected = f"{feature.wire} in earlier records" if self._layout is None else f"the layout says {feature.wire}"
                raise self._fault(number, name, f"is {wire}, but {expected}")
            values = getattr(message, feature.wire).value
            feature.pad(number - self._first)
            feature.values.extend(values)
            feature.sizes.append(len(values))

    def frame(self, longest: dict[str, int]) -> pl.DataFrame:
        if self._layout is not None:
            columns = self._columns(self._layout)
            return pl.DataFrame([columns[column.name].alias(column.name) for column in self._layout.columns])
        for name, feature in self._features.items():
            longest[name] = max(longest.get(name, -1), *feature.sizes)
        return pl.DataFrame([lists(_text(feature.flat()), np.array(feature.sizes)) for feature in self._features.values()])

    def _columns(self, layout: TfRecordLayout) -> dict[str, pl.Series]:
        rows = np.ones(len(self._sizes(layout.features()[0][0])), np.int64) if layout.batch is None else None
        columns = {}
        for name, members in layout.groups().items():
            flat, sizes = self._present(name)
            rows = sizes // len(members) if rows is None else rows
            self._expect(sizes == rows * len(members), name, sizes, f"values for {len(members)} columns")
            for member, places in zip(members, group_places(rows, len(members)), strict=True):
                columns[member.name] = column_values(flat.gather(places), member)
        for column in layout.alone():
            if layout.batch is None:
                columns[column.name] = self._values(column)
                continue
            columns[column.name], sizes = self._batches(column)
            rows = sizes if rows is None else rows
            self._expect(sizes == rows, column.short, sizes, "rows, but other features of the record have another number")
        return columns

    def _values(self, column: TfColumn) -> pl.Series:
        """Returns a column with a row per Example."""
        if not column.nulls:
            self._present(column.short)
        sizes = self._sizes(column.short)
        if not column.lists:
            self._expect(np.abs(sizes) == 1, column.short, sizes, "values; expected 1")
        values = lists(column_values(self._features[column.short].flat(), column), sizes)
        return values if column.lists else values.list.first()

    def _batches(self, column: TfColumn) -> tuple[pl.Series, Ints]:
        """Returns a column with several rows per Example, and their numbers."""
        flat, sizes = self._present(column.short)
        values = column_values(flat, column)
        if column.lists:
            lengths, rows = self._present(f"{column.short}#")
            total = sums(np.maximum(lengths.to_numpy(), 0), rows)
            self._expect(total == sizes, column.short, sizes, "values, but the lengths have another sum")
            return lists(values, lengths.to_numpy()), rows
        if column.nulls:
            valid, rows = self._present(f"{column.short}?")
            self._expect(rows == sizes, f"{column.short}?", rows, "rows, but another number of values")
            return pl.select(pl.when(valid != 0).then(values)).to_series(), rows
        return values, sizes

    def _sizes(self, name: str) -> Ints:
        return np.array(self._features[name].sizes, np.int64)

    def _present(self, name: str) -> tuple[pl.Series, Ints]:
        """Returns the values of a feature that each Example must have, and their numbers."""
        sizes = self._sizes(name)
        if (sizes < 0).any():
            raise self._fault(self._first + int(np.argmax(sizes < 0)), name, "missing")
        return self._features[name].flat(), sizes

    def _expect(self, is_right: NDArray[np.bool_], name: str, sizes: Ints, problem: str) -> None:
        if not is_right.all():
            at = int(np.argmin(is_right))
            raise self._fault(self._first + at, name, f"{sizes[at]} {problem}")

    def _fault(self, number: int, feature: str, problem: str) -> BadData:
        return BadData(f"{self._path}: record {number}, feature '{feature}': {problem}")


def _text(flat: pl.Series) -> pl.Series:
    """Converts bytes to text if possible."""
    if flat.dtype != pl.Binary:
        return flat
    try:
        return flat.cast(pl.String)
    except PolarsError:
        return flat
