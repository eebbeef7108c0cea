"""Delta and Iceberg tables at one version, read so that only the rows of that version are returned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import polars as pl

from shared.contracts.sources import Place
from shared.datafiles.lake_tables import LakeTable, lake_table
from shared.datafiles.object_store import ObjectStore
from shared.datafiles.table_logs import Format
from shared.domain.errors import BadData, EyasError, Invalid

_PACKAGES: dict[Format, str] = {"Delta": "deltalake", "Iceberg": "pyiceberg"}


@dataclass(frozen=True)
class TableVersion:
    format: Format
    number: int
    written: datetime

    def __str__(self) -> str:
        return f"{self.format} {'version' if self.format == 'Delta' else 'snapshot'} {self.number}"


@dataclass(frozen=True)
class TableRows:
    """Rows of a version. `files`: those that define its rows, or their copies."""

    files: tuple[Path, ...]
    frame: pl.LazyFrame
    version: TableVersion


def open_table(place: Place, roots: tuple[str, ...], scratch: Path) -> TableRows | None:
    """Opens the Delta or Iceberg table that the place names; returns None for other data. Each file is checked against the data roots
    before it is opened."""
    assert place.uri is not None
    table = lake_table(place.uri, roots, ObjectStore(), place.version, scratch / "files")
    if table is None:
        return None
    package = _PACKAGES[table.format]
    if find_spec(package) is None:
        raise Invalid(f"{place.uri}: reading {table.format} tables needs the package {package}; install eyas[lake]")
    with _one_line(table):
        if table.format == "Delta":
            from pipelines.data.delta import delta_rows

            files, frame, number = delta_rows(table, scratch)
        else:
            from pipelines.data.iceberg import iceberg_rows

            files, frame, number = iceberg_rows(table)
    if not files:
        raise BadData(f"{place.uri}: version {number} of the {table.format} table has no rows")
    return TableRows(tuple(files), frame, TableVersion(table.format, number, table.changed))


@contextmanager
def _one_line(table: LakeTable) -> Iterator[None]:
    """Converts the errors of the libraries, which have no common class."""
    try:
        yield
    except EyasError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise BadData(f"{table.uri}: the {table.format} table cannot be read: {reason}") from error
