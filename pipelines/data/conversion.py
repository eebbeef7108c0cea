"""Converts data files between kinds, and named data sets to Parquet; streams, and names only complete files."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from pipelines.data.cli_source import open_anywhere
from pipelines.data.sets.named import load, recognise
from pipelines.data.sources import readable
from pipelines.data.tfrecord.writer import write_tfrecord
from shared.contracts.datatools import Convert
from shared.datafiles import kind_of
from shared.datafiles.kinds import ENDINGS
from shared.domain.errors import BadData, Conflict, Invalid


def convert_files(request: Convert, scratch: Path) -> dict[str, int]:
    """Returns the number of rows by file."""
    folder, to = Path(request.source), Path(request.to)
    name = request.name or (recognise(folder) if folder.is_dir() and kind_of(to.name) is None else None)
    if name is not None:
        return _named(name, folder, to, scratch)
    if kind_of(to.name) is None:
        if folder.is_dir():
            raise BadData(f"{folder}: data set not recognised from its files: name it with --as, or name an output file")
        raise Invalid(f"{to}: unknown file extension; use one of {ENDINGS}")
    source = open_anywhere(request.source, scratch)
    with readable(source.name):
        rows = int(source.frame.select(pl.len()).collect(engine="streaming").item())
        _write(source.frame, to, request)
    return {to.name: rows}


def _named(name: str, folder: Path, to: Path, scratch: Path) -> dict[str, int]:
    if kind_of(to.name) is not None:
        raise Invalid(f"{to}: a data set needs several files; name a folder")
    row_counts = {}
    tables = load(name, folder, scratch).tables()
    for table in tables:
        if (to / f"{table}.parquet").exists():
            raise Conflict(f"{to / table}.parquet: already exists; name another folder, or remove the file")
    to.mkdir(parents=True, exist_ok=True)
    for table, frame in tables.items():
        path = to / f"{table}.parquet"
        with readable(str(folder)):
            frame.sink_parquet(path.with_name(f".new-{path.name}"), compression="zstd")
        path.with_name(f".new-{path.name}").replace(path)
        row_counts[path.name] = int(pl.scan_parquet(path).select(pl.len()).collect().item())
    return row_counts


def _write(frame: pl.LazyFrame, to: Path, request: Convert) -> None:
    if to.exists():
        raise Conflict(f"{to}: already exists; name another file, or remove this one")
    kind = kind_of(to.name)
    options = [word for word, value in (("--short", request.short), ("--batch", request.batch), ("--grouped", request.grouped)) if value]
    if options and kind != "tfrecord":
        raise Invalid(f"{options[0]}: only for TFRecord; {to.name} is not a TFRecord file")
    if kind == "tfrecord":
        write_tfrecord(frame, to, request.short, request.batch, request.grouped, request.narrow)
        return
    new = to.with_name(f".new-{to.name}")
    try:
        match kind:
            case "parquet":
                frame.sink_parquet(new, compression="zstd")
            case "jsonl":
                frame.sink_ndjson(new)
            case "typed":
                _typed(frame, new, to)
            case _:
                _no_lists(frame, to)
                frame.sink_csv(new, separator="\t" if kind == "tsv" else ",")
        new.replace(to)
    finally:
        new.unlink(missing_ok=True)


def _no_lists(frame: pl.LazyFrame, to: Path) -> None:
    for name, dtype in frame.collect_schema().items():
        if dtype.is_nested():
            raise BadData(f"{to}: column '{name}' is {dtype}, which a text file cannot hold; write Parquet or TFRecord")


def _typed(frame: pl.LazyFrame, new: Path, to: Path) -> None:
    schema = frame.collect_schema()
    texts = [name for name, dtype in schema.items() if dtype == pl.String]
    broken = frame.select(pl.col(texts).str.contains(r"[\t\r\n]").any()).collect(engine="streaming").row(0, named=True) if texts else {}
    for name, has_breaks in broken.items():
        if has_breaks:
            raise BadData(f"{to}: column '{name}' has text with tabs or line breaks, which a RecBole file cannot hold")
    with new.open("wb") as stream:
        stream.write("\t".join(f"{name}:{_type(name, dtype, to)}" for name, dtype in schema.items()).encode() + b"\n")
        joined = [pl.col(name).list.join(" ") if isinstance(dtype, pl.List) else pl.col(name) for name, dtype in schema.items()]
        frame.select(joined).sink_csv(stream, separator="\t", include_header=False, quote_style="never")


def _type(name: str, dtype: pl.DataType, to: Path) -> str:
    if dtype == pl.String or dtype.is_integer():
        return "token"
    if dtype == pl.List(pl.String):
        return "token_seq"
    if dtype.is_float():
        return "float"
    raise BadData(f"{to}: column '{name}' is {dtype}, which a typed header cannot name")
