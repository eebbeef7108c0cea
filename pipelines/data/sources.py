"""Where data may come from: Parquet or CSV under the operator's roots, and nowhere else.

A path is judged after its symlinks are resolved, and before anything is said about whether it exists, so a spec can
neither read nor probe what the operator did not allow. Every fault names the file, and the column where there is one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from shared.datafiles import CSV, data_files
from shared.domain.errors import BadData


@dataclass(frozen=True)
class Reach:
    """What a stage may read, and where it lays down what can't be read in place."""

    roots: tuple[str, ...]
    scratch: Path


@dataclass(frozen=True)
class Source:
    """Files of one kind and one schema, opened lazily."""

    uri: str
    files: tuple[Path, ...]
    frame: pl.LazyFrame

    @property
    def name(self) -> str:
        return self.files[0].name if len(self.files) == 1 else self.uri

    def digest(self) -> str:
        """sha256 over the files' own digests, in the order of their names."""
        whole = hashlib.sha256()
        for path in self.files:
            with path.open("rb") as stream:
                whole.update(hashlib.file_digest(stream, "sha256").digest())
        return whole.hexdigest()


def open_source(uri: str, reach: Reach, columns: Sequence[str]) -> Source:
    """Opens `uri` after checking that it is allowed, there, readable and has `columns`."""
    files = data_files(uri, reach.roots)
    for path in files:
        _check_columns(path, columns)
    scan = _scan(files)
    with readable(uri):
        if scan.head(1).collect().is_empty():
            raise BadData(f"{uri}: it has a header but no rows")
    return Source(uri, tuple(files), scan)


@contextmanager
def readable(name: str) -> Iterator[None]:
    """What polars can't read becomes one line that names the file."""
    try:
        yield
    except (PolarsError, PermissionError) as error:
        raise BadData(f"{name}: it can't be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """What polars says, without its advice on how to call polars."""
    said = str(error)
    if "truncate_ragged_lines" in said:
        return "it has rows of different lengths: each line needs as many fields as the header"
    return " ".join(said.split("\n\n", maxsplit=1)[0].split())[:200]


def _scan(files: Sequence[Path]) -> pl.LazyFrame:
    suffixes = {"csv" if path.suffix.lower() in CSV else "parquet" for path in files}
    if len(suffixes) > 1:
        raise BadData(f"{files[0].parent}: Parquet and CSV files can't be read together")
    if suffixes == {"csv"}:
        return pl.scan_csv(list(files), infer_schema_length=10_000, glob=False)
    return pl.scan_parquet(list(files), glob=False)


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    with readable(str(path)):
        names = _scan([path]).collect_schema().names()
    for column in columns:
        if column not in names:
            raise BadData(f"{path}: column '{column}' is missing; it has: {', '.join(names[:20])}")
