"""Writes frames as TFRecord, chunk by chunk, with a layout file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.data.spill import CHUNK, inner_of
from pipelines.data.tfrecord.columns import FILLER, plain_values
from pipelines.data.tfrecord.example import example_class
from pipelines.data.tfrecord.framing import write_records
from pipelines.data.tfrecord.layout import TYPES, TfColumn, TfRecordLayout, beside
from shared.contracts.strict import read
from shared.domain.errors import BadData

_NAMES = {dtype: name for name, (dtype, _) in TYPES.items()}
_PRECISE = (pl.Float64(), pl.List(pl.Float64()))


def write_tfrecord(
    frame: pl.LazyFrame, path: Path, short: Mapping[str, str], batch: int | None = None, grouped: bool = False, narrow: bool = False
) -> TfRecordLayout:
    """Writes a file. `short`: feature names by column; `narrow`: allows floats to lose precision in float32."""
    layout = _layout(frame, path, short, batch, grouped, narrow)
    new = path.with_name(f".new-{path.name}")
    try:
        write_records(_examples(frame, layout), new)
        beside(path).write_text(layout.model_dump_json(indent=1))
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    return layout


def _layout(frame: pl.LazyFrame, path: Path, short: Mapping[str, str], batch: int | None, grouped: bool, narrow: bool) -> TfRecordLayout:
    schema = frame.collect_schema()
    for name in short:
        if name not in schema:
            raise BadData(f"{path}: --short: unknown column '{name}'; columns: {', '.join(schema.names()[:20])}")
    frame = frame.select(_casted(name, dtype) for name, dtype in schema.items())
    schema = frame.collect_schema()
    nulls = frame.select(pl.all().null_count()).collect(engine="streaming").row(0, named=True)
    if not narrow:
        _check_floats(frame, schema, path)
    columns = []
    for name, dtype in schema.items():
        value_type = inner_of(dtype)
        if value_type not in _NAMES:
            raise BadData(f"{path}: column '{name}' is {dtype}, which TFRecord cannot hold")
        if isinstance(dtype, pl.List):
            inner = frame.select(pl.col(name).list.eval(pl.element().is_null().any()).list.first().any()).collect(engine="streaming").item()
            if inner:
                raise BadData(f"{path}: column '{name}' has nulls in lists, which TFRecord cannot hold")
        columns.append(
            TfColumn(
                name=name, short=short.get(name, name), type=_NAMES[value_type], lists=isinstance(dtype, pl.List), nulls=nulls[name] > 0
            )
        )
    return read(TfRecordLayout, {"batch": batch, "grouped": grouped, "columns": tuple(columns)}, str(path))


def _casted(name: str, dtype: pl.DataType) -> pl.Expr:
    """Casts types without a name to types with one: enumerations, other time units."""
    if dtype in (pl.Categorical, pl.Enum):
        return pl.col(name).cast(pl.String)
    if isinstance(dtype, pl.Datetime):
        return pl.col(name).cast(pl.Datetime("us", "UTC" if dtype.time_zone else None)) if dtype.time_unit != "ns" else pl.col(name)
    return pl.col(name).cast(pl.Int64) if dtype == pl.UInt64 else pl.col(name)


def _check_floats(frame: pl.LazyFrame, schema: pl.Schema, path: Path) -> None:
    names = [name for name, dtype in schema.items() if dtype in _PRECISE]
    loses = [_inexact(pl.col(name).explode() if isinstance(schema[name], pl.List) else pl.col(name)).alias(name) for name in names]
    for name, lost in zip(names, frame.select(loses).collect(engine="streaming").row(0) if names else (), strict=True):
        if lost:
            raise BadData(f"{path}: column '{name}' has fractions that float32 cannot hold exactly; round them, or set --narrow")


def _inexact(values: pl.Expr) -> pl.Expr:
    return (values.is_finite() & (values.cast(pl.Float32).cast(pl.Float64) != values)).any()


def _examples(frame: pl.LazyFrame, layout: TfRecordLayout) -> Iterator[bytes]:
    make = example_class()
    frame = frame.select(_casted(name, dtype) for name, dtype in frame.collect_schema().items())
    size = CHUNK if layout.batch is None else max(layout.batch, CHUNK // layout.batch * layout.batch)
    for chunk in _even(frame.collect_batches(chunk_size=size, maintain_order=True), size):
        if layout.batch is None:
            yield from _rows(chunk, layout, make)
        else:
            for batch in chunk.iter_slices(layout.batch):
                yield _batch(batch, layout, make)


def _even(chunks: Iterator[pl.DataFrame], size: int) -> Iterator[pl.DataFrame]:
    """Yields chunks of equal size except the last; polars' chunks vary."""
    left: pl.DataFrame | None = None
    for chunk in chunks:
        left = chunk if left is None else pl.concat([left, chunk])
        while len(left) >= size:
            yield left.head(size)
            left = left.slice(size)
    if left is not None and len(left):
        yield left


def _rows(chunk: pl.DataFrame, layout: TfRecordLayout, make: Any) -> Iterator[bytes]:
    groups = [
        (name, columns[0].wire, list(zip(*(plain_values(chunk[column.name], column) for column in columns), strict=True)))
        for name, columns in layout.groups().items()
    ]
    alone = [(column, _by_row(chunk[column.name], column)) for column in layout.alone()]
    for row in range(len(chunk)):
        example = make()
        features = example.features.feature
        for name, wire, rows in groups:
            getattr(features[name], wire).value.extend(rows[row])
        for column, values in alone:
            own = values[row]
            if own is not None:
                feature = getattr(features[column.short], column.wire)
                feature.SetInParent()
                feature.value.extend(own)
        yield example.SerializeToString(deterministic=True)


def _by_row(series: pl.Series, column: TfColumn) -> list[list[Any] | None]:
    """Returns the values of each row; None for null."""
    if column.lists:
        return [None if values is None else plain_values(values, column) for values in series]
    valid, filled = series.is_not_null().to_list(), plain_values(series.drop_nulls(), column)
    rest = iter(filled)
    return [[next(rest)] if there else None for there in valid]


def _batch(rows: pl.DataFrame, layout: TfRecordLayout, make: Any) -> bytes:
    example = make()
    features = example.features.feature
    for name, columns in layout.groups().items():
        for member in columns:
            getattr(features[name], member.wire).value.extend(plain_values(rows[member.name], member))
    for column in layout.alone():
        series = rows[column.name]
        feature = getattr(features[column.short], column.wire)
        feature.SetInParent()
        if column.lists:
            features[f"{column.short}#"].int64_list.value.extend(-1 if length is None else length for length in series.list.len().to_list())
            feature.value.extend(plain_values(series.drop_nulls().explode(empty_as_null=False), column))
        elif column.nulls:
            features[f"{column.short}?"].int64_list.value.extend(series.is_not_null().cast(pl.Int64).to_list())
            filled = iter(plain_values(series.drop_nulls(), column))
            feature.value.extend(next(filled) if there else FILLER[column.wire] for there in series.is_not_null().to_list())
        else:
            feature.value.extend(plain_values(series, column))
    return bytes(example.SerializeToString(deterministic=True))
