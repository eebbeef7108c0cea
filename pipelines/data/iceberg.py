"""Reads Iceberg tables by the library pyiceberg, which opens files only through a check against the data roots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
from polars.io.plugins import register_io_source
from pyarrow.fs import LocalFileSystem
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFile, schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import FileScanTask, StaticTable
from pyiceberg.table.metadata import TableMetadata

from shared.datafiles.lake_tables import LakeTable, TableFiles
from shared.domain.errors import BadData, Unsupported

_READ = (FileFormat.PARQUET, FileFormat.ORC)


class CheckedFiles(FileIO):
    """Opens files under the data roots. The table's own properties, which may name a class to import, are not used."""

    def __init__(self, files: TableFiles) -> None:
        super().__init__()
        self._files = files

    def new_input(self, location: str) -> InputFile:
        return PyArrowFile(location, str(self._files.path(location)), LocalFileSystem())

    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError(location)


def iceberg_rows(table: LakeTable) -> tuple[list[Path], pl.LazyFrame, int]:
    """Returns the files of a snapshot, data before deletes, their rows and the snapshot's id."""
    location, files = table.location(table.metadata()), CheckedFiles(table.files)
    metadata = FromInputFile.table_metadata(files.new_input(location))
    static = StaticTable(("table",), metadata, location, files, NoopCatalog("table"))
    snapshot = static.current_snapshot() if table.version is None else static.snapshot_by_id(table.version)
    if snapshot is None and table.version is not None:
        newest = metadata.current_snapshot_id
        raise BadData(f"{table.uri}: snapshot {table.version} is not in the Iceberg table; its newest snapshot is {newest}")
    if snapshot is None:
        return [], pl.LazyFrame(), 0
    scan = static.scan(snapshot_id=snapshot.snapshot_id)
    tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
    deletes = {delete.file_path: delete for task in tasks for delete in task.delete_files}
    for file in (*(task.file for task in tasks), *deletes.values()):
        if file.file_format not in (*_READ, FileFormat.PUFFIN):
            raise Unsupported(f"{table.uri}: {file.file_format.value} files of the Iceberg table are not supported")
    paths = [table.files.path(location) for location in (*(task.file.file_path for task in tasks), *sorted(deletes))]
    return paths, _scan(tasks, metadata, files, scan.projection()), snapshot.snapshot_id


def _scan(tasks: list[FileScanTask], metadata: TableMetadata, files: FileIO, schema: Schema) -> pl.LazyFrame:
    """Returns the rows, file by file; each pass reads only the columns that it needs."""
    types = pl.Schema(pl.DataFrame(schema_to_pyarrow(schema, include_field_ids=False).empty_table()).schema)

    def rows(columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, _: int | None) -> Iterator[pl.DataFrame]:
        names = columns or types.names()[: None if columns is None else 1]  # without a column, a batch has no length
        wanted = schema.select(*names)
        for task in tasks:
            for batch in ArrowScan(metadata, files, wanted, AlwaysTrue()).to_record_batches([task]):
                frame = pl.DataFrame(batch).select(pl.col(name).cast(types[name]) for name in names)
                frame = frame if limit is None else frame.head(limit)
                limit = None if limit is None else limit - len(frame)
                yield frame if predicate is None else frame.filter(predicate)
                if limit == 0:
                    return

    return register_io_source(rows, schema=types)
