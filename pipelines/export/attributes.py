"""Attributes of the items table: the seed of the catalogue that is published with a version, as in shared.contracts.items_table.

Numbers, texts, truth values, dates, and lists of numbers or of texts become attributes. Values beyond the limits of an attribute are left
out of an item.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import polars as pl

from pipelines.data.ids import text_of
from shared.contracts.items_table import SEED, Seed, part_name
from shared.domain.attributes import (
    ARTICLES,
    AVAILABLE,
    LARGEST,
    MOST_CHARACTERS,
    MOST_NAMES,
    MOST_TEXT,
    MOST_VALUES,
    Kind,
    check_name,
)
from shared.domain.errors import Invalid

PART = 50_000
"""Items per file."""
_DECLARE = "declare it in serve.attributes"


@dataclass(frozen=True)
class AttributeColumns:
    kinds: Mapping[str, Kind]
    left_out: Mapping[str, str]
    """Reason by column."""


def attribute_columns(items: pl.DataFrame, key: str, declared: Mapping[str, Kind]) -> AttributeColumns:
    """Chooses the columns that become attributes: the first of them, if there are too many."""
    kinds: dict[str, Kind] = {}
    left_out: dict[str, str] = {}
    for name, dtype in items.schema.items():
        kind = _kind(dtype)
        if name in (key, text_of(key)):
            continue
        if name == AVAILABLE:
            left_out[name] = "availability is written by clients alone"
        elif (fault := _name_fault(name)) is not None:
            left_out[name] = fault
        elif declared and name not in declared:
            left_out[name] = f"not declared in serve.attributes: {_DECLARE}"
        elif kind is None:
            left_out[name] = f"no attribute can have the type {dtype}"
        elif declared and kind != declared[name]:
            left_out[name] = f"it holds {ARTICLES[kind]}, serve.attributes says {ARTICLES[declared[name]]}"
        elif isinstance(dtype, pl.List) and len(items) and (items[name].list.len() > MOST_VALUES).all():
            left_out[name] = f"each list has more than {MOST_VALUES} values"
        elif len(kinds) == MOST_NAMES:
            left_out[name] = f"more than {MOST_NAMES} attributes: {_DECLARE}"
        else:
            kinds[name] = kind
    return AttributeColumns(kinds, left_out)


def write_seed(items: pl.DataFrame, key: str, kinds: Mapping[str, Kind], at: datetime, place: Callable[[str], Path]) -> dict[str, Path]:
    """Writes the seed; no files if no column is an attribute. `place` returns the path for a name."""
    if not kinds:
        return {}
    files: dict[str, Path] = {}
    for number, rows in enumerate(_parts(items, key, kinds)):
        name = part_name(number)
        files[name] = place(name)
        buffer = io.BytesIO()
        rows.write_ndjson(buffer)
        files[name].write_bytes(gzip.compress(buffer.getvalue(), 6, mtime=0))
    seed = Seed(at=at, items=len(items), names=tuple(sorted(kinds)), parts=tuple(files))
    files[SEED] = place(SEED)
    files[SEED].write_text(seed.model_dump_json(indent=1))
    return files


def _parts(items: pl.DataFrame, key: str, kinds: Mapping[str, Kind]) -> Iterator[pl.DataFrame]:
    for rows in items.iter_slices(PART):
        values = rows.select(_values(name, rows.schema[name], kind) for name, kind in kinds.items())
        values = _short(values, kinds)
        text = [rows[text_of(key)].alias("id")] if text_of(key) in rows.columns else []
        yield pl.DataFrame([rows[key].alias("item"), *text, values.to_struct("attributes")])


def _kind(dtype: pl.DataType) -> Kind | None:
    if isinstance(dtype, pl.List):
        inner = _kind(dtype.inner)  # type: ignore[arg-type]
        return "numbers" if inner == "number" and dtype.inner.is_numeric() else "texts" if inner == "text" else None
    if dtype == pl.Boolean:
        return "boolean"
    if dtype.is_numeric() or dtype in (pl.Date, pl.Datetime):
        return "number"
    return "text" if isinstance(dtype, pl.String | pl.Categorical | pl.Enum) else None


def _name_fault(name: str) -> str | None:
    try:
        check_name(name)
    except Invalid as error:
        return str(error)
    return None


def _values(name: str, dtype: pl.DataType, kind: Kind) -> pl.Expr:
    """Returns the column in the form of its kind; null where a value breaks a limit."""
    column = pl.col(name)
    if isinstance(dtype, pl.List):
        elements = _scalars(pl.element(), dtype.inner, "number" if kind == "numbers" else "text")  # type: ignore[arg-type]
        cleaned = column.list.eval(elements)
        sound = cleaned.list.drop_nulls().list.len() == column.list.drop_nulls().list.len()
        return pl.when(sound & (column.list.drop_nulls().list.len() <= MOST_VALUES)).then(cleaned.list.drop_nulls()).alias(name)
    return _scalars(column, dtype, kind).alias(name)


def _scalars(column: pl.Expr, dtype: pl.DataType, kind: Kind) -> pl.Expr:
    if dtype == pl.Date:
        return column.dt.epoch("s")
    if dtype == pl.Datetime:
        return column.dt.epoch("us") / 1e6
    if kind == "text":
        text = column.cast(pl.String)
        return pl.when((text.str.len_chars() <= MOST_TEXT) & ~text.str.contains("\0", literal=True)).then(text)
    if kind == "number" and dtype.is_integer():
        return pl.when(column.is_between(-LARGEST, LARGEST)).then(column)
    if kind == "number":
        exact = column.cast(pl.String).cast(pl.Float64) if dtype == pl.Float32 else column.cast(pl.Float64)  # 0.1 stays 0.1
        return pl.when(exact.is_finite()).then(exact)
    return column


def _short(values: pl.DataFrame, kinds: Mapping[str, Kind]) -> pl.DataFrame:
    """Leaves out the last texts of an item that exceed the limit of all its names and texts together."""
    total = pl.lit(sum(map(len, kinds)), pl.Int64)
    shortened = []
    for name in kinds:
        if kinds[name] in ("text", "texts"):
            column = pl.col(name)
            length = column.str.len_chars() if kinds[name] == "text" else column.list.eval(pl.element().str.len_chars()).list.sum()
            total = total + length.fill_null(0).cast(pl.Int64)
            shortened.append(pl.when(total <= MOST_CHARACTERS).then(column).alias(name))
    return values.with_columns(shortened)
