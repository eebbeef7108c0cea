"""Profile of a table of items or users for the next comparison: bounded, whatever the table's size.

Contains samples of keys and text values, selected by stable hashes, and value profiles of columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

import polars as pl
from pydantic import Field

from pipelines.data.ids import text_of
from pipelines.data.validation.grouping import KEY, grouped
from pipelines.data.validation.keys import KeyCounts, KeySums
from pipelines.data.validation.values import MOST_COLUMNS, MOST_DISTINCT, Column, column_of, is_category, is_number
from shared.contracts.strict import Strict

_SAMPLED_VALUES = 256
_ROWS = pl.len().cast(pl.Int64).alias("rows")


class ColumnValues(Strict):
    count: int
    shift: int = Field(description="Leading zeros of the hashes of sampled values.")
    sample: tuple[int, ...] = Field(description="Hashes of the sampled values.")


class TableProfile(Strict):
    rows: int
    keys: KeyCounts
    columns: Mapping[str, Column]
    values: Mapping[str, ColumnValues] = Field(description="Values of text columns.")


def table_profile(frame: pl.LazyFrame, key: str, scratch: Path) -> TableProfile:
    """Profiles good rows; at least one must exist."""
    types = dict(frame.collect_schema())
    keys = KeySums(grouped(frame.select(pl.col(key).alias(KEY)), [_ROWS], scratch / "keys"), ()).keys()
    columns_beside_key = [name for name in types if name not in (key, text_of(key))]
    shown = [name for name in columns_beside_key if is_number(types[name]) or is_category(types[name])][:MOST_COLUMNS]
    values = {
        name: value_sample for name in shown if is_category(types[name]) and (value_sample := _values(frame, name, scratch)) is not None
    }
    columns = {name: column_of(frame, name, types[name], keys.count, scratch) for name in shown}
    return TableProfile(rows=keys.count, keys=keys, columns=columns, values=values)


def _values(frame: pl.LazyFrame, name: str, scratch: Path) -> ColumnValues | None:
    """Returns None for a column with too many different values to be categories."""
    about = frame.select(pl.col(name).cast(pl.String).approx_n_unique()).collect(engine="streaming").item()
    if about > MOST_DISTINCT:
        return None
    marks = sorted(value_hash(value) for counts in value_counts(frame, name, scratch) for value in counts[KEY])
    shift = max(0, (len(marks) // _SAMPLED_VALUES).bit_length())
    return ColumnValues(count=len(marks), shift=shift, sample=tuple(mark for mark in marks if is_drawn_hash(mark, shift)))


def value_counts(frame: pl.LazyFrame, column: str, scratch: Path) -> Iterator[pl.DataFrame]:
    return grouped(frame.select(pl.col(column).cast(pl.String).alias(KEY)).drop_nulls(), [_ROWS], scratch / "values")


def value_hash(value: str) -> int:
    return int.from_bytes(blake2b(value.encode(), digest_size=8).digest(), "big")


def is_drawn_hash(mark: int, shift: int) -> bool:
    return mark <= (2**64 - 1) >> shift
