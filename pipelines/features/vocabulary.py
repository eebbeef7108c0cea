"""A fitted vocabulary: what ids become codes, the same in polars and in ONNX.

Codes: 0 is null or padding, 1 is out of vocabulary, 2 and up are known values, the most frequent first and equal
ones by value. The file is Parquet and its bytes depend on the content alone. A vocabulary grows without moving:
known values keep their codes, new ones come after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

DType = Literal["int64", "string"]
NULL, UNKNOWN, FIRST = 0, 1, 2
# What stands for null and padding in raw columns at the served unit.
BLANK: dict[DType, int | str] = {"int64": -(2**63), "string": ""}


@dataclass(frozen=True)
class Vocabulary:
    """Values in the order of their codes; `counts` is how often each was seen when it was last fitted."""

    dtype: DType
    values: pl.Series
    counts: pl.Series

    @property
    def cardinality(self) -> int:
        return len(self.values) + FIRST

    def encode(self, source: pl.Expr) -> pl.Expr:
        """Values to codes, as a lazy expression."""
        blank = source.is_null() | (source == pl.lit(BLANK[self.dtype], dtype=polars_type(self.dtype)))
        if self.values.is_empty():
            known = pl.lit(UNKNOWN, dtype=pl.Int32)
        else:
            codes = pl.int_range(FIRST, self.cardinality, dtype=pl.Int32, eager=True)
            known = source.replace_strict(self.values, codes, default=UNKNOWN, return_dtype=pl.Int32)
        return pl.when(blank).then(pl.lit(NULL, dtype=pl.Int32)).otherwise(known)

    def lower(self, name: str, output: str) -> list[Any]:
        """The ONNX nodes from raw input `name` to int32 codes `output`."""
        from onnx import helper

        codes = list(range(FIRST, self.cardinality))
        keys = "keys_int64s" if self.dtype == "int64" else "keys_strings"
        table = {keys: [*self.values.to_list(), BLANK[self.dtype]], "values_int64s": [*codes, NULL], "default_int64": UNKNOWN}
        encode = helper.make_node("LabelEncoder", [name], [f"{output}/wide"], name=f"encode_{name}", domain="ai.onnx.ml", **table)
        cast = helper.make_node("Cast", [f"{output}/wide"], [output], name=f"cast_{name}", to=6)  # 6: int32
        return [encode, cast]

    def write(self, path: Path) -> Path:
        frame = pl.DataFrame({"value": self.values, "count": self.counts})
        frame.write_parquet(path, compression="zstd", statistics=False)
        return path


def polars_type(dtype: DType) -> pl.DataType:
    return pl.Int64() if dtype == "int64" else pl.String()


def read_vocabulary(path: Path, dtype: DType) -> Vocabulary:
    frame = pl.read_parquet(path)
    return Vocabulary(dtype, frame["value"], frame["count"])


def fit_vocabulary(values: pl.LazyFrame, dtype: DType, min_count: int, known: Vocabulary | None = None) -> Vocabulary:
    """Counts the one column of `values`; with `known`, grows it."""
    counted = _count(values, dtype)
    if known is None:
        kept = counted.filter(pl.col("count") >= min_count)
        return Vocabulary(dtype, kept["value"], kept["count"])
    old = pl.DataFrame({"value": known.values, "count": known.counts})
    recounted = old.join(counted, on="value", how="left", maintain_order="left", suffix="_new").select(
        "value", pl.col("count_new").fill_null(0).alias("count")
    )
    new = counted.filter(pl.col("count") >= min_count).join(old, on="value", how="anti", maintain_order="left")
    grown = pl.concat([recounted, new])
    return Vocabulary(dtype, grown["value"], grown["count"])


def _count(values: pl.LazyFrame, dtype: DType) -> pl.DataFrame:
    name = values.collect_schema().names()[0]
    value = pl.col(name).cast(polars_type(dtype)).alias("value")
    return (
        values.select(value)
        .filter(pl.col("value").is_not_null() & (pl.col("value") != BLANK[dtype]))
        .group_by("value")
        .agg(pl.len().cast(pl.Int64).alias("count"))
        .sort(["count", "value"], descending=[True, False])
        .collect(engine="streaming")
    )
