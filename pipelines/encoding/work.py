"""A table's images or texts through an encoder, a stretch of keys at a time: what is done is kept, and the next try goes on from there."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.encoding.encoders import Encoder
from pipelines.encoding.inputs import Unreadable
from shared.domain.errors import BadData, Invalid

VECTOR = "vector"
STRETCH = 1_024
"""Rows of a part."""
_REASONS = 10
_HOW = "how.json"


class Reader(Protocol):
    def read(self, value: str) -> NDArray[Any]:
        """Unreadable where it can't be."""


@dataclass
class Left:
    """Rows without a vector."""

    count: int = 0
    reasons: list[str] = field(default_factory=list)

    def add(self, key: int, reason: str) -> None:
        self.count += 1
        if len(self.reasons) < _REASONS:
            self.reasons.append(f"{key}: {reason}")


@dataclass(frozen=True)
class Work:
    """`how`: what vectors depend on beside the value, in words; an unfinished try of another one isn't gone on with."""

    encoder: Encoder
    reader: Reader
    key: str
    column: str
    out: Path
    batch: int
    how: str

    @property
    def parts(self) -> Path:
        return self.out.with_name(f".{self.out.name}.parts")

    def run(self, rows: pl.DataFrame, told: Callable[[int], None]) -> tuple[int, int, int, Left]:
        """`rows`: key and value, each key once. Returns rows, width, how many an earlier try had done, and who has none."""
        done = self._begun()
        before = _keys(done, self.key)
        left, width = Left(), None if not done else _width(done[0])
        todo = rows.filter(~pl.col(self.key).is_in(before.implode())).sort(self.key)
        for number, start in enumerate(range(0, len(todo), STRETCH), len(done)):
            found = list(self._encoded(todo[start : start + STRETCH], left))
            if found:
                width = self._put(found, width, self.parts / f"{number:06}.parquet")
            told(start + STRETCH)
        files = sorted(self.parts.glob("*.parquet"))
        if not files or width is None:
            raise BadData(f"no row has a vector: {'; '.join(left.reasons) or 'the table has no values'}")
        new = self.out.with_name(f".new-{self.out.name}")
        whole = pl.scan_parquet(files).filter(pl.col(self.key).is_in(rows[self.key].implode()))
        whole.sink_parquet(new)
        count = int(pl.scan_parquet(new).select(pl.len()).collect().item())
        new.replace(self.out)
        shutil.rmtree(self.parts)
        return count, width, count - (len(todo) - left.count), left

    def _begun(self) -> list[Path]:
        """The parts of an earlier try."""
        how = self.parts / _HOW
        if how.exists() and json.loads(how.read_text()) != self.how:
            raise Invalid(f"{self.parts}: an unfinished try with another encoder or other options lies there: remove it, or finish it")
        self.parts.mkdir(parents=True, exist_ok=True)
        how.write_text(json.dumps(self.how))
        for path in self.parts.glob("*.new"):
            path.unlink()
        return sorted(self.parts.glob("*.parquet"))

    def _encoded(self, rows: pl.DataFrame, left: Left) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        keys: list[int] = []
        values: list[NDArray[Any]] = []
        for key, value in rows.iter_rows():
            try:
                if value is None or value == "":
                    raise Unreadable("there is no value")
                values.append(self.reader.read(value))
                keys.append(key)
            except Unreadable as error:
                left.add(key, str(error))
            if len(keys) == self.batch:
                yield np.array(keys), self._vectors(values)
                keys, values = [], []
        if keys:
            yield np.array(keys), self._vectors(values)

    def _vectors(self, values: list[NDArray[Any]]) -> NDArray[np.float32]:
        try:
            found = self.encoder.encode(np.stack(values))
        except Exception as error:
            raise BadData(f"the encoder fails: {' '.join(str(error).split())[:300]}") from None
        flat = found.reshape(len(values), -1) if found.ndim > 2 and found.size == len(values) * found.shape[1] else found
        if flat.ndim != 2 or len(flat) != len(values):
            raise BadData(f"the encoder gives the shape {list(found.shape)} for {len(values)} rows: one vector a row is expected")
        if not np.isfinite(flat).all():
            raise BadData("the encoder gives NaN or infinity: does it take pixels so (--option pixels=...)?")
        return flat.astype(np.float32)

    def _put(self, found: list[tuple[NDArray[np.int64], NDArray[Any]]], width: int | None, path: Path) -> int:
        keys, vectors = np.concatenate([one for one, _ in found]), np.concatenate([one for _, one in found])
        if width is not None and vectors.shape[1] != width:
            raise BadData(f"the encoder gives vectors of {vectors.shape[1]} numbers, and gave {width} before")
        frame = pl.DataFrame({self.key: keys, VECTOR: pl.Series(vectors).arr.to_list()})
        new = path.with_suffix(".new")
        frame.write_parquet(new)
        new.replace(path)
        return int(vectors.shape[1])


def digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _keys(files: list[Path], key: str) -> pl.Series:
    return pl.scan_parquet(files).select(key).collect()[key] if files else pl.Series(key, [], dtype=pl.Int64)


def _width(path: Path) -> int:
    return int(pl.scan_parquet(path).select(pl.col(VECTOR).first().list.len()).collect().item())
