"""Table schemas as text, from which a graph is rebuilt without the data."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from shared.domain.errors import Invalid

_WORDS: dict[str, pl.DataType] = {
    "int": pl.Int64(),
    "float": pl.Float64(),
    "text": pl.String(),
    "truth": pl.Boolean(),
    "moment": pl.Datetime("us"),
    "day": pl.Date(),
    "ints": pl.List(pl.Int64()),
    "floats": pl.List(pl.Float64()),
    "texts": pl.List(pl.String()),
}


def write_schema(schema: pl.Schema) -> dict[str, str]:
    return {name: _word(dtype) for name, dtype in sorted(schema.items())}


def read_schema(types: Mapping[str, str]) -> pl.Schema:
    if odd := [word for word in types.values() if word not in _WORDS]:
        raise Invalid(f"features.json: '{odd[0]}' is not a column type")
    return pl.Schema({name: _WORDS[word] for name, word in types.items()})


def _word(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.List | pl.Array):
        inner = dtype.inner if isinstance(dtype.inner, pl.DataType) else dtype.inner()
        return {"int": "ints", "float": "floats"}.get(_word(inner), "texts")
    if dtype.is_integer():
        return "int"
    if dtype.is_numeric():
        return "float"
    if isinstance(dtype, pl.Datetime):
        return "moment"
    if isinstance(dtype, pl.Date):
        return "day"
    return "truth" if dtype == pl.Boolean else "text"
