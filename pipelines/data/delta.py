"""Reads Delta tables: the library deltalake replays a copy of the log, polars scans the active files in place.

Files with deletion vectors are copied without the deleted rows. deltalake opens only files of the copy: everything that the log names is
checked first.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import polars as pl
from deltalake import DeltaTable

from pipelines.data.partitions import FILE, with_values
from shared.datafiles.lake_tables import LakeTable
from shared.datafiles.table_logs import LOGS
from shared.domain.errors import Unsupported

_READ = frozenset({"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Reader features whose rows are read right."""
_CASTS = pl.ScanCastOptions(
    integer_cast="upcast",
    float_cast=["upcast", "downcast"],
    datetime_cast=["nanosecond-downcast", "millisecond-upcast", "convert-timezone"],
    missing_struct_fields="insert",
    extra_struct_fields="ignore",
)
Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_UUID_LENGTH = 20
"""Characters of a UUID in Z85."""


def delta_rows(table: LakeTable, scratch: Path) -> tuple[list[Path], pl.LazyFrame, int]:
    """Returns the data files of the version, a scan of their rows, and the number of the version."""
    log, copy = table.delta(), scratch / "table"
    folder = copy / LOGS["Delta"]
    shutil.rmtree(copy, ignore_errors=True)
    folder.mkdir(parents=True)
    copied = [Path(shutil.copyfile(table.files.path(table.location(name)), folder / name)) for name in log.names]
    names = dict.fromkeys(_vector_file(vector, table.uri) for path in copied for vector in _vectors(path, table.uri))
    vectors = [_copy_vectors(table, name, copy / name) for name in names if name is not None]
    delta = DeltaTable(copy, version=log.version)
    _check_features(delta, table.uri)
    schema, partitioned = pl.Schema(delta.schema()), delta.metadata().partition_columns
    added = pl.DataFrame(delta.get_add_actions()).sort("path")
    files = [table.files.path(unquote(path)) for path in added["path"]]
    if not files:
        return [], pl.LazyFrame(schema=schema), log.version
    scanned = _without_deleted(files, list(added["path"]), delta, scratch / "rows") if names else files
    rows = pl.scan_parquet(
        scanned,
        glob=False,
        schema={name: dtype for name, dtype in schema.items() if name not in partitioned},
        missing_columns="insert",
        extra_columns="ignore",
        cast_options=_CASTS,
        include_file_paths=FILE,
    )
    columns = [added["partition"].struct.field(name).cast(schema[name]).alias(name) for name in partitioned]
    return [*files, *vectors], with_values(rows, scanned, columns).select(schema.names()), log.version


def _check_features(delta: DeltaTable, uri: str) -> None:
    """Rejects features that change what the rows are; deltalake rejects those that it does not know."""
    features = {*(delta.protocol().reader_features or ())} - {"columnMapping"}
    if delta.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    unread = ", ".join(sorted(features - _READ))
    if unread:
        raise Unsupported(f"{uri}: the Delta table uses the feature {unread}, which is not supported; write a copy of the table without it")


def _vectors(path: Path, uri: str) -> Iterator[Mapping[str, Any]]:
    """Yields the deletion vectors that a file of the log adds. Rejects a checkpoint that names further files."""
    if path.suffix == ".json":
        for line in path.read_text("utf-8").splitlines():
            if '"deletionVector"' in line and (vector := (json.loads(line).get("add") or {}).get("deletionVector")):
                yield vector
        return
    checkpoint = pl.scan_parquet(path, glob=False)
    schema = checkpoint.collect_schema()
    if "sidecar" in schema and checkpoint.select(pl.col("sidecar").struct.field("path").is_not_null().any()).collect().item():
        raise Unsupported(f"{uri}: the Delta table uses the feature v2Checkpoint with sidecar files, which is not supported")
    add = schema.get("add")
    if isinstance(add, pl.Struct) and any(field.name == "deletionVector" for field in add.fields):
        vectors = checkpoint.select(pl.col("add").struct.field("deletionVector")).collect().to_series()
        yield from (vector for vector in vectors if vector and vector["storageType"])


def _vector_file(vector: Mapping[str, Any], uri: str) -> str | None:
    """Returns the path of a deletion vector's file below the table's folder; None if the log itself contains the vector."""
    if vector["storageType"] == "i":
        return None
    prefix, encoded = vector["pathOrInlineDv"][:-_UUID_LENGTH], vector["pathOrInlineDv"][-_UUID_LENGTH:]
    if vector["storageType"] != "u" or ".." in prefix or prefix.startswith("/") or ":" in prefix:
        raise Unsupported(f"{uri}: a deletion vector of the Delta table lies outside its folder, which is not supported")
    uuid = UUID(bytes=base64.b85decode(encoded.encode().translate(bytes.maketrans(Z85, B85))))
    return f"{prefix}/deletion_vector_{uuid}.bin".lstrip("/")


def _copy_vectors(table: LakeTable, name: str, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(table.files.path(name), path))


def _without_deleted(files: Sequence[Path], names: Sequence[str], delta: DeltaTable, folder: Path) -> list[Path]:
    """Copies each file that has deleted rows without them."""
    vectors = pl.DataFrame(delta.deletion_vectors())
    folder.mkdir(parents=True, exist_ok=True)
    scanned = list(files)
    for uri, mask in zip(vectors["filepath"], vectors["selection_vector"], strict=True):
        number = next((number for number, name in enumerate(names) if unquote(uri).endswith(f"/{unquote(name)}")), None)
        if number is None:
            raise Unsupported(f"a file outside the folder of the Delta table has deleted rows, which is not supported: {uri}")
        scanned[number] = folder / f"{number:06}.parquet"
        rows = pl.concat([pl.scan_parquet(files[number], glob=False), pl.LazyFrame({FILE: mask})], how="horizontal_extend")
        rows.filter(pl.col(FILE).fill_null(True)).drop(FILE).sink_parquet(scanned[number], compression="lz4")
    return scanned
