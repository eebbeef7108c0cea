"""Copies rows that can't be scanned in place to Parquet in the stage's scratch, chunk by chunk.

Memory is bounded by a chunk. Types may show only as rows arrive (SQLite has no types, TFRecord no schema), so each part has the types of
its own rows, and all parts are read with types that fit all of them.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from shared.domain.errors import BadData

CHUNK = 65_536
"""Rows of a part."""
_FLOATS = (pl.Float32, pl.Float64)


@dataclass(frozen=True)
class SpilledRows:
    files: tuple[Path, ...]
    frame: pl.LazyFrame

    def digest(self) -> str:
        """Returns a digest of the rows."""
        digest = hashlib.sha256()
        for path in self.files:
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        return digest.hexdigest()


def spill_chunks(chunks: Iterable[pl.DataFrame], folder: Path, name: str) -> SpilledRows:
    """Writes the chunks; replaces files of an earlier process of this attempt."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files: list[Path] = []
    schemas: list[pl.Schema] = []
    for number, chunk in enumerate(chunks):
        path = folder / f"part-{number:06}.parquet"
        chunk.write_parquet(path, compression="lz4")
        files.append(path)
        schemas.append(chunk.schema)
    if not files:
        raise BadData(f"{name}: no rows")
    widest = _widest(schemas, name)
    parts = [
        pl.scan_parquet(path).select(_as(column, schema.get(column), dtype) for column, dtype in widest.items())
        for path, schema in zip(files, schemas, strict=True)
    ]
    return SpilledRows(tuple(files), pl.concat(parts) if len(parts) > 1 else parts[0])


def _as(column: str, dtype: pl.DataType | None, wanted: pl.DataType) -> pl.Expr:
    if dtype is None:
        return pl.lit(None, wanted).alias(column)
    return pl.col(column) if dtype == wanted else pl.col(column).cast(wanted)


def _widest(schemas: Sequence[pl.Schema], name: str) -> dict[str, pl.DataType]:
    types: dict[str, pl.DataType] = {}
    for schema in schemas:
        for column, dtype in schema.items():
            types[column] = _wider(types[column], dtype, column, name) if column in types else dtype
    return types


def _wider(dtype: pl.DataType, other: pl.DataType, column: str, name: str) -> pl.DataType:
    if other in (dtype, pl.Null):
        return dtype
    if dtype == pl.Null:
        return other
    if isinstance(dtype, pl.List) and isinstance(other, pl.List):
        return pl.List(_wider(inner_of(dtype), inner_of(other), column, name))
    if dtype.is_numeric() and other.is_numeric():
        return pl.Float64() if dtype in _FLOATS or other in _FLOATS else pl.Int64()
    raise BadData(f"{name}: column '{column}' mixes types ({dtype} and {other})")


def inner_of(dtype: pl.DataType) -> pl.DataType:
    """Returns a list's inner type; other types unchanged."""
    if not isinstance(dtype, pl.List):
        return dtype
    return dtype.inner if isinstance(dtype.inner, pl.DataType) else dtype.inner()
