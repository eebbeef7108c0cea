"""Cache of vectors by mark: a digest of a row's content, the encoder and its options. Known marks are not encoded again.

Marks do not depend on keys: the vectors of an earlier run are valid for another table, and equal rows share a vector."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.encoding.batches import VECTOR, SkippedRows, batches, value_of, write_part
from pipelines.encoding.files import UnreadableValue
from pipelines.encoding.inputs import InputReader
from pipelines.encoding.spec_encoder import SpecEncoder, check_width
from shared.domain.errors import BadData

MARK = "mark"
SCHEMA = pl.Schema({MARK: pl.Binary(), VECTOR: pl.List(pl.Float32())})
_STRETCH = 1_024


@dataclass(frozen=True)
class Marked:
    """A mark for each row; null for rows without a vector."""

    marks: pl.Series
    encoded: int
    left: SkippedRows


@dataclass
class VectorCache:
    """Vectors of an earlier run and new vectors, in files of `folder`."""

    folder: Path
    files: list[Path] = field(default_factory=list)
    known_marks: set[bytes] = field(default_factory=set)
    used: set[bytes] = field(default_factory=set)

    def take(self, path: Path) -> None:
        """Adds the file of an earlier run."""
        self.files.append(path)
        self.known_marks |= set(pl.scan_parquet(path).select(MARK).collect()[MARK])

    def make(self, rows: pl.DataFrame, spec_encoder: SpecEncoder, batch: int, width: int, progress: Callable[[int], None]) -> Marked:
        """Encodes rows (key and value). Raises `BadData` if no row has a vector or the width is wrong."""
        marks: list[bytes | None] = []
        left, before = SkippedRows(), len(self.known_marks)
        salt = hashlib.sha256(f"{spec_encoder.digest} {spec_encoder.reader.how}".encode()).digest()
        self.folder.mkdir(parents=True, exist_ok=True)
        for start in range(0, len(rows), _STRETCH):
            some = _counted(rows[start : start + _STRETCH], start, progress)
            encoded = list(batches(spec_encoder.encoder, self._new(some, spec_encoder.reader, salt, marks, left), batch))
            if encoded:
                path = self.folder / f"{len(self.files):06}.parquet"
                new = [mark for them, _ in encoded for mark in them]
                check_width(encoded[0][1].shape[1], width)
                write_part(pl.Series(MARK, new, dtype=pl.Binary), [them for _, them in encoded], width, path)
                self.files.append(path)
        if left.count == len(rows):
            raise BadData(f"no row has a vector: {'; '.join(left.reasons) or 'the table has no rows'}")
        self.used |= {mark for mark in marks if mark is not None}
        return Marked(pl.Series(MARK, marks, dtype=pl.Binary), len(self.known_marks) - before, left)

    def of(self, marks: pl.Series) -> pl.Series:
        """Returns a vector for each mark."""
        wanted = pl.DataFrame({MARK: marks})
        vectors = self._scan().join(wanted.lazy().unique(), on=MARK, how="semi").collect(engine="streaming")
        return wanted.join(vectors, on=MARK, how="left", maintain_order="left")[VECTOR]

    def publish(self, path: Path) -> Path:
        """Writes the used vectors, ordered by mark."""
        used = pl.LazyFrame({MARK: sorted(self.used)}, schema={MARK: pl.Binary})
        self._scan().join(used, on=MARK, how="semi").sort(MARK).sink_parquet(path)
        return path

    def _scan(self) -> pl.LazyFrame:
        return pl.scan_parquet(self.files) if self.files else pl.LazyFrame(schema=SCHEMA)

    def _new(
        self, rows: Iterable[tuple[int, str | None]], reader: InputReader, salt: bytes, marks: list[bytes | None], left: SkippedRows
    ) -> Iterator[tuple[bytes, NDArray[Any]]]:
        """Yields rows with unknown marks; appends a mark for every row."""
        for key, value in rows:
            array: NDArray[Any] | None = None
            try:
                content = reader.content(value_of(value))
                mark = hashlib.sha256(salt + content).digest()
                if mark not in self.known_marks:
                    array = reader.array(content)
            except UnreadableValue as error:
                left.add(key, str(error))
                marks.append(None)
                continue
            marks.append(mark)
            if array is not None:
                self.known_marks.add(mark)
                yield mark, np.asarray(array)


def _counted(rows: pl.DataFrame, before: int, progress: Callable[[int], None]) -> Iterator[tuple[int, str | None]]:
    for number, row in enumerate(rows.iter_rows(), before):
        progress(number)
        yield row


def is_marked(path: Path) -> bool:
    """Returns whether a file has the format of `publish`."""
    return pl.read_parquet_schema(path) == dict(SCHEMA)
