"""Columns of partitions (sub-folders `key=value`): their types, and their values in the rows of each file."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from shared.datafiles import kind_of
from shared.datafiles.partitions import partitions
from shared.domain.errors import BadData

FILE = "partition.file"
"""Helper column with the path of each row's file; no data column has it, because of the dot."""


@dataclass(frozen=True)
class Partitions:
    """Values of each file by column. Empty for files that lie in no partition, and for kinds that are read without them."""

    uri: str
    values: Mapping[Path, Mapping[str, str | None]]

    @classmethod
    def of(cls, files: Sequence[Path], base: Path, uri: str) -> Partitions:
        return cls(uri, partitions(files, base, uri) if kind_of(files[0].name) in ("parquet", "csv", "tsv") else {})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(next(iter(self.values.values()), {}))

    def mark(self, path: Path) -> bytes:
        """Returns the values of a file for the digest of its rows."""
        return json.dumps(self.values.get(path, {})).encode()

    def column(self, name: str, as_text: Collection[str] = ()) -> pl.Series:
        """Returns the values of a column by file. Whole numbers and dates are typed, if no two texts become equal; others are text."""
        texts = pl.Series(name, [of[name] for of in self.values.values()], pl.String)
        return texts if name in as_text or not texts.count() else _typed(texts)

    def added(self, scan: pl.LazyFrame, as_text: Collection[str]) -> pl.LazyFrame:
        """Replaces the column FILE by the columns that the files lack."""
        names = scan.collect_schema()
        columns = [self.column(name, as_text) for name in self.names if name not in names]
        return with_values(scan, list(self.values), columns)

    def check(self, scan: pl.LazyFrame) -> None:
        """Rejects a file that has a column of the partitions with other values than its folder. `scan` has the column FILE."""
        schema = scan.collect_schema()
        for name in self.names:
            if name not in schema:
                continue
            expected = by_file(list(self.values), _as(self.column(name, (name,)), schema[name]))
            differing = scan.filter(pl.col(name).ne_missing(expected)).select(FILE, pl.col(name).cast(pl.String)).head(1)
            for path, value in differing.collect(engine="streaming").rows():
                folder_value = self.values[Path(path)][name]
                raise BadData(f"{self.uri}: column '{name}' is {value} in {Path(path).name}, but {folder_value} in the name of its folder")


def by_file(files: Sequence[Path], values: pl.Series) -> pl.Expr:
    """Returns the value of each row's file."""
    paths = pl.Series([str(path) for path in files], dtype=pl.String)
    return pl.col(FILE).replace_strict(paths, values, return_dtype=values.dtype).alias(values.name)


def with_values(scan: pl.LazyFrame, files: Sequence[Path], columns: Sequence[pl.Series]) -> pl.LazyFrame:
    """Replaces the column FILE by columns that have one value for each of the files."""
    return scan.with_columns(by_file(files, column) for column in columns).drop(FILE)


def _as(texts: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Returns the values as a type of the files; null for text that is no such value."""
    if dtype == pl.Boolean:
        return texts.replace_strict(["true", "false"], [True, False], default=None, return_dtype=pl.Boolean)
    if dtype == pl.Date:
        return texts.str.to_date(strict=False)
    return texts.str.to_datetime(strict=False).cast(dtype) if dtype.is_temporal() else texts.cast(dtype, strict=False)


def _typed(texts: pl.Series) -> pl.Series:
    if texts.str.contains(r"^[+-]?[0-9]{1,19}$").all():
        typed = texts.cast(pl.Int64, strict=False)
    elif texts.str.contains(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$").all():
        typed = texts.str.to_date("%Y-%m-%d", strict=False)
    else:
        return texts
    return typed if typed.count() == texts.count() and typed.n_unique() == texts.n_unique() else texts
