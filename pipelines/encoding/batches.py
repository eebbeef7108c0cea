"""Encodes rows in batches and writes vectors: one for each row, finite, of equal length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.encoding.encoders import Encoder
from pipelines.encoding.files import UnreadableValue
from pipelines.encoding.inputs import InputReader
from shared.domain.errors import BadData

VECTOR = "vector"
_REASONS = 10
K = TypeVar("K")


@dataclass
class SkippedRows:
    """Count of rows without a vector, with the first reasons."""

    count: int = 0
    reasons: list[str] = field(default_factory=list)

    def add(self, key: int, reason: str) -> None:
        self.count += 1
        if len(self.reasons) < _REASONS:
            self.reasons.append(f"{key}: {reason}")


def value_of(value: str | None) -> str:
    if not value:
        raise UnreadableValue("no value")
    return value


def arrays(rows: pl.DataFrame, reader: InputReader, left: SkippedRows) -> Iterator[tuple[int, NDArray[Any]]]:
    """`rows` has key and value. Unreadable rows go to `left`."""
    for key, value in rows.iter_rows():
        try:
            yield key, reader.array(reader.content(value_of(value)))
        except UnreadableValue as error:
            left.add(key, str(error))


def batches(encoder: Encoder, rows: Iterable[tuple[K, NDArray[Any]]], most: int) -> Iterator[tuple[list[K], NDArray[np.float32]]]:
    keys: list[K] = []
    values: list[NDArray[Any]] = []
    for key, value in rows:
        keys.append(key)
        values.append(value)
        if len(keys) == most:
            yield keys, _vectors(encoder, values)
            keys, values = [], []
    if keys:
        yield keys, _vectors(encoder, values)


def write_part(keys: pl.Series, chunks: Sequence[NDArray[np.float32]], width: int | None, path: Path) -> int:
    """Writes a file atomically; returns the width of the vectors."""
    vectors = np.concatenate(chunks)
    if width is not None and vectors.shape[1] != width:
        raise BadData(f"encoder returns vectors of length {vectors.shape[1]}, but {width} before")
    frame = pl.DataFrame({keys.name: keys, VECTOR: pl.Series(vectors).arr.to_list()})
    new = path.with_suffix(".new")
    frame.write_parquet(new)
    new.replace(path)
    return int(vectors.shape[1])


def _vectors(encoder: Encoder, values: list[NDArray[Any]]) -> NDArray[np.float32]:
    try:
        output = encoder.encode(np.stack(values))
    except Exception as error:
        raise BadData(f"encoder failed: {' '.join(str(error).split())[:300]}") from None
    flat = output.reshape(len(values), -1) if output.ndim > 2 and output.size == len(values) * output.shape[1] else output
    if flat.ndim != 2 or len(flat) != len(values):
        raise BadData(f"encoder returns the shape {list(output.shape)} for {len(values)} rows; expected one vector per row")
    if not np.isfinite(flat).all():
        raise BadData("encoder returns NaN or infinity; check pixels (unit, signed, bytes, imagenet)")
    return flat.astype(np.float32)
