"""Encoder and reader of a spec's `encode`, under the operator's roots.

The encoder is copied to the scratch folder first, so that the digest is of the loaded file and no neighbouring files are loaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipelines.data.sources import ReadableRoots
from pipelines.encoding.batches import SkippedRows, arrays, batches
from pipelines.encoding.encoders import Encoder, open_encoder
from pipelines.encoding.files import Below, Files, Objects
from pipelines.encoding.inputs import InputReader, reader
from pipelines.encoding.work import digest
from shared.contracts.encoding import Encode
from shared.contracts.features import VectorOf
from shared.datafiles import is_object
from shared.datafiles.auxiliary_files import images_folder, images_objects, single_file, single_object
from shared.datafiles.object_store import ObjectStore
from shared.domain.errors import BadData, EyasError, Invalid

TRIED = 8
"""Rows of a test encoding."""


@dataclass(frozen=True)
class SpecEncoder:
    encoder: Encoder
    reader: InputReader
    digest: str
    """Digest of the encoder file."""


def open_spec_encoder(encode: Encode, reach: ReadableRoots, scratch: Path) -> SpecEncoder:
    path = _copy_encoder(encode.encoder, reach, scratch)
    encoder = open_encoder(path, encode.encoder)
    if encode.images is not None and encoder.takes.kind != "images":
        raise Invalid(f"images: {encode.encoder} takes {encoder.takes.kind}, not images; remove 'images'")
    files = _images(encode.images, reach, scratch) if encode.images is not None else None
    return SpecEncoder(encoder, reader(encoder.takes, encode, files), digest(path))


def check_column(schema: Mapping[str, pl.DataType], column: str, table: str) -> None:
    if column not in schema:
        raise BadData(f"{table}: column '{column}' is missing; columns: {', '.join(list(schema)[:20])}")
    if schema[column] != pl.String:
        raise BadData(f"{table}: column '{column}' is {schema[column]}; image file names and texts must be text")


def check_width(actual: int, width: int) -> None:
    if actual != width:
        raise BadData(f"encoder returns vectors of length {actual}, but the spec says {width}")


@contextmanager
def of_feature(of: VectorOf) -> Iterator[None]:
    """Adds the spec's entry to error messages."""
    try:
        yield
    except EyasError as error:
        raise type(error)(f"features: vector '{of.output}': encode: {error}") from None


def try_encoder(table: pl.DataFrame, of: VectorOf, encode: Encode, name: str, reach: ReadableRoots) -> None:
    """Raises the errors of etl that the first rows reveal."""
    with of_feature(of):
        check_column(table.schema, encode.column, name)
        spec_encoder = open_spec_encoder(encode, reach, reach.scratch / "encoding" / of.output)
        left = SkippedRows()
        rows = arrays(table.head(TRIED).select(pl.int_range(pl.len()), encode.column), spec_encoder.reader, left)
        for _, vectors in batches(spec_encoder.encoder, rows, encode.batch):
            check_width(vectors.shape[1], of.width)


def _copy_encoder(uri: str, reach: ReadableRoots, scratch: Path) -> Path:
    path = scratch / f"encoder{Path(uri).suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_object(uri):
        store = ObjectStore()
        data_object = single_object(uri, reach.roots, store)
        store.fetch(uri, path, data_object.tag)
    else:
        try:
            shutil.copyfile(single_file(uri, reach.roots), path)
        except OSError as error:
            raise BadData(f"{uri}: cannot be read: {error.strerror}") from None
    return path


def _images(uri: str, reach: ReadableRoots, scratch: Path) -> Files:
    if not is_object(uri):
        return Below(images_folder(uri, reach.roots))
    store = ObjectStore()
    return Objects(store, images_objects(uri, reach.roots, store))
