"""Writes frames as TFRecord, chunk by chunk, with a layout file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.data.spill import CHUNK, inner_of
from pipelines.data.tfrecord.columns import Ints, group_places, sums, wire_values
from pipelines.data.tfrecord.example import example_class
from pipelines.data.tfrecord.framing import write_records
from pipelines.data.tfrecord.layout import TYPES, TfColumn, TfRecordLayout, Wire, beside
from shared.contracts.strict import read
from shared.domain.errors import BadData

_NAMES = {dtype: name for name, (dtype, _) in TYPES.items()}
_FILLER: dict[Wire, Any] = {"int64_list": 0, "float_list": 0.0, "bytes_list": b""}
"""Values of nulls in batches."""
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
    loses = [
        _inexact(pl.col(name).explode(empty_as_null=False) if isinstance(schema[name], pl.List) else pl.col(name)).alias(name)
        for name in names
    ]
    for name, lost in zip(names, frame.select(loses).collect(engine="streaming").row(0) if names else (), strict=True):
        if lost:
            raise BadData(f"{path}: column '{name}' has fractions that float32 cannot hold exactly; round them, or set --narrow")


def _inexact(values: pl.Expr) -> pl.Expr:
    return (values.is_finite() & (values.cast(pl.Float32).cast(pl.Float64) != values)).any()


def _examples(frame: pl.LazyFrame, layout: TfRecordLayout) -> Iterator[bytes]:
    make, batch = example_class(), layout.batch or 1
    frame = frame.select(_casted(name, dtype) for name, dtype in frame.collect_schema().items())
    size = max(batch, CHUNK // batch * batch)
    for chunk in _even(frame.collect_batches(chunk_size=size, maintain_order=True), size):
        rows = np.diff(np.append(np.arange(0, len(chunk), batch), len(chunk)))
        features = [(name, wire, values.to_list(), sizes.tolist()) for name, wire, values, sizes in _features(chunk, layout, rows)]
        places = [0] * len(features)
        for number in range(len(rows)):
            example = make()
            messages = example.features.feature
            for at, (name, wire, values, sizes) in enumerate(features):
                if (count := sizes[number]) >= 0:
                    message = getattr(messages[name], wire)
                    message.SetInParent()
                    message.value.extend(values[places[at] : places[at] + count])
                    places[at] += count
            yield example.SerializeToString(deterministic=True)


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


def _features(chunk: pl.DataFrame, layout: TfRecordLayout, rows: Ints) -> Iterator[tuple[str, Wire, pl.Series, Ints]]:
    """Yields name, kind, values and number of values per Example of each feature; `rows` per Example."""
    for name, columns in layout.groups().items():
        wire = columns[0].wire
        values = pl.concat([wire_values(chunk[column.name], wire).alias(name) for column in columns])
        yield name, wire, values.gather(np.argsort(group_places(rows, len(columns)), axis=None)), rows * len(columns)
    for column in layout.alone():
        series, wire = chunk[column.name], column.wire
        if column.lists:
            lengths = series.list.len().cast(pl.Int64).fill_null(-1)
            sizes = lengths.to_numpy()
            if layout.batch is not None:
                yield f"{column.short}#", "int64_list", lengths, rows
                sizes = sums(np.maximum(sizes, 0), rows)
            yield column.short, wire, wire_values(series.drop_nulls().explode(empty_as_null=False), wire), sizes
        elif layout.batch is None:
            yield column.short, wire, wire_values(series.drop_nulls(), wire), np.where(series.is_null(), -1, 1)
        else:
            if column.nulls:
                yield f"{column.short}?", "int64_list", series.is_not_null().cast(pl.Int64), rows
            yield column.short, wire, wire_values(series, wire).fill_null(_FILLER[wire]), rows
