"""`eyas features encode`: encodes a column of a table."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.data.sources import ReadableRoots, open_source, readable
from pipelines.data.validate import check_table
from pipelines.encoding.encoders import open_encoder
from pipelines.encoding.files import Below
from pipelines.encoding.inputs import reader
from pipelines.encoding.work import TableEncoding, digest
from shared.contracts.encoding import Encoded, EncodeRequest
from shared.contracts.sources import Place
from shared.contracts.strict import read
from shared.domain.errors import BadData, Invalid


def encode(arguments: Any) -> Encoded:
    request = read(EncodeRequest, arguments, "eyas features encode")
    out = Path(request.out)
    if out.suffix != ".parquet" or not out.parent.is_dir():
        raise Invalid(f"--out: {out}: expected a .parquet file in an existing folder")
    rows = _rows(request)
    path = Path(request.encoder)
    encoder = open_encoder(path)
    ways = request.model_dump(mode="json", include={"column", "images", "size", "pixels", "tokens", "words"})
    how = f"{digest(path)} {sorted(ways.items())}"
    images = Below(Path(request.images or Path(request.table).parent))
    work = TableEncoding(encoder, reader(encoder.takes, request, images), request.key, request.column, out, request.batch, how)

    def show_progress(done: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{min(done, len(rows)):,} of {len(rows):,} rows encoded")
            sys.stderr.flush()

    count, width, before, left = work.run(rows, show_progress)
    return Encoded(rows=count, width=width, before=before, left_out=left.count, reasons=tuple(left.reasons))


def _rows(request: EncodeRequest) -> pl.DataFrame:
    """Returns key and value."""
    with tempfile.TemporaryDirectory(prefix="eyas-encode-") as scratch:
        source = open_source(Place(uri=request.table), ReadableRoots(("/",), Path(scratch)), (request.key, request.column))
        check_table(source, request.key)
        dtype = source.frame.collect_schema()[request.column]
        if dtype != pl.String:
            raise BadData(f"{source.name}: column '{request.column}' is {dtype}; image file names and texts must be text")
        with readable(source.name):
            return source.frame.select(pl.col(request.key).cast(pl.Int64), request.column).collect(engine="streaming")
