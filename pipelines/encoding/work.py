"""Encodes a table's images or texts in parts, so that an interrupted encoding continues."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.encoding.batches import VECTOR, SkippedRows, arrays, batches, write_part
from pipelines.encoding.encoders import Encoder
from pipelines.encoding.inputs import InputReader
from shared.domain.errors import BadData, Invalid

STRETCH = 1_024
"""Rows of a part."""
_HOW = "how.json"


@dataclass(frozen=True)
class TableEncoding:
    """Encoding of a table. `how` describes all options of the vectors: an unfinished encoding with other options is rejected."""

    encoder: Encoder
    reader: InputReader
    key: str
    column: str
    out: Path
    batch: int
    how: str

    @property
    def parts(self) -> Path:
        return self.out.with_name(f".{self.out.name}.parts")

    def run(self, rows: pl.DataFrame, progress: Callable[[int], None]) -> tuple[int, int, int, SkippedRows]:
        """Encodes rows of distinct keys. Returns the number of rows, the width, the number of earlier rows, and rows without a vector."""
        done = self._begun()
        before = _keys(done, self.key)
        left, width = SkippedRows(), None if not done else _width(done[0])
        todo = rows.filter(~pl.col(self.key).is_in(before.implode())).sort(self.key)
        for number, start in enumerate(range(0, len(todo), STRETCH), len(done)):
            encoded = list(self._encoded(todo[start : start + STRETCH], left))
            if encoded:
                keys = pl.Series(self.key, [key for some, _ in encoded for key in some], dtype=pl.Int64)
                width = write_part(keys, [some for _, some in encoded], width, self.parts / f"{number:06}.parquet")
            progress(start + STRETCH)
        files = sorted(self.parts.glob("*.parquet"))
        if not files or width is None:
            raise BadData(f"no row has a vector: {'; '.join(left.reasons) or 'the table has no values'}")
        new = self.out.with_name(f".new-{self.out.name}")
        table = pl.scan_parquet(files).filter(pl.col(self.key).is_in(rows[self.key].implode()))
        table.sink_parquet(new)
        count = int(pl.scan_parquet(new).select(pl.len()).collect().item())
        new.replace(self.out)
        shutil.rmtree(self.parts)
        return count, width, count - (len(todo) - left.count), left

    def _begun(self) -> list[Path]:
        """Returns the parts of an earlier, unfinished encoding."""
        how = self.parts / _HOW
        if how.exists() and json.loads(how.read_text()) != self.how:
            raise Invalid(f"{self.parts}: unfinished encoding with another encoder or other options; finish it, or remove the folder")
        self.parts.mkdir(parents=True, exist_ok=True)
        how.write_text(json.dumps(self.how))
        for path in self.parts.glob("*.new"):
            path.unlink()
        return sorted(self.parts.glob("*.parquet"))

    def _encoded(self, rows: pl.DataFrame, left: SkippedRows) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        return batches(self.encoder, arrays(rows, self.reader, left), self.batch)


def digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _keys(files: list[Path], key: str) -> pl.Series:
    return pl.scan_parquet(files).select(key).collect()[key] if files else pl.Series(key, [], dtype=pl.Int64)


def _width(path: Path) -> int:
    return int(pl.scan_parquet(path).select(pl.col(VECTOR).first().list.len()).collect().item())
