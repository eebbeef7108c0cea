"""What is remembered of a batch, so that the next one can be compared with it: bounded, whatever the size of the batch.

Numbers by tenths, categories by their most frequent values, keys by how many rows they have and by a sample of them, chosen by a
stable hash so that two batches sample the same ones; and how much users and items tell of labels and times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import polars as pl
from pydantic import Field

from pipelines.data.stable_hash import stable_hash
from pipelines.data.validation.columns import Columns
from shared.contracts.strict import Strict
from shared.domain.soundness import explained

MOST_COLUMNS = 32
MOST_TOP = 40
MOST_DISTINCT = 100_000
"""A column with more different values is no category: names, comments."""
LONGEST_VALUE = 200
SAMPLED_KEYS = 2048
SAMPLED_ROWS = 500_000
_ROW = "profile.row"
TENTHS = 10
SIZES = 32
"""Rows per key in powers of two: the last one holds all that have more."""


class Numbers(Strict):
    kind: Literal["numbers"] = "numbers"
    nulls: int
    edges: tuple[float, ...] = Field(description="A bin holds what is more than the edge before it, and at most its own.")
    counts: tuple[int, ...] = Field(description="One more than there are edges.")


class Categories(Strict):
    kind: Literal["categories"] = "categories"
    nulls: int
    top: tuple[tuple[str, int], ...] = Field(description="The most frequent values and how often they are there.")
    other: int


class Keys(Strict):
    count: int
    sizes: tuple[int, ...] = Field(description="How many keys have 1 row, 2 or 3, 4 to 7, and so on.")
    shift: int = Field(description="Keys are sampled whose hash has so many leading zeros.")
    sample: tuple[int, ...]


class Profile(Strict):
    version: Literal[1] = 1
    rows: int
    oldest: float
    newest: float
    disorder: float = Field(description="The share of the first rows that are older than the row before them.")
    positives: float = Field(description="The share of them.")
    repeats: float = Field(description="The share of rows that repeat another one's user, item and time.")
    keys: Mapping[str, Keys]
    ties: Mapping[str, float] = Field(description="The share of a number's variance that a key explains.")
    columns: Mapping[str, Annotated[Numbers | Categories, Field(discriminator="kind")]]


def profile_of(frame: pl.LazyFrame, columns: Columns) -> Profile:
    """Of good rows; there is at least one."""
    time = columns.seconds()
    asked = {"rows": pl.len(), "oldest": time.min(), "newest": time.max(), "positives": columns.is_positive().mean()}
    found = frame.select(**asked).collect(engine="streaming").row(0, named=True)
    rows = int(found["rows"])
    keys, ties = {}, {}
    for name, key in zip(("user", "item"), columns.keys, strict=True):
        groups = _grouped(frame, key, columns, found["oldest"])
        keys[name] = _keys(groups)
        ties[f"label by {name}"] = _tie(groups, "label")
        if name == "user":
            ties["time by user"] = _tie(groups, "time")
    return Profile(
        rows=rows,
        oldest=found["oldest"],
        newest=found["newest"],
        disorder=_disorder(frame, time, rows),
        positives=found["positives"],
        repeats=_repeats(frame, columns, rows),
        keys=keys,
        ties=ties,
        columns={name: _column(frame, name, columns.types[name], rows) for name in profiled(columns)},
    )


def profiled(columns: Columns) -> tuple[str, ...]:
    others = [name for name in columns.others if _is_number(columns.types[name]) or _is_category(columns.types[name])]
    return (columns.label, *others[: MOST_COLUMNS - 1])


def counted(frame: pl.LazyFrame, name: str, edges: tuple[float, ...]) -> tuple[int, ...]:
    """How many values lie in each bin between edges."""
    value = pl.col(name).cast(pl.Float64).fill_nan(None)
    below = [(value <= edge).sum().alias(str(n)) for n, edge in enumerate(edges)]
    found = frame.select(value.count().alias("all"), *below).collect(engine="streaming").row(0)
    reached = [*found[1:], found[0]]
    return tuple(int(now - before) for before, now in zip([0, *reached], reached, strict=False))


def named(frame: pl.LazyFrame, name: str, values: tuple[str, ...]) -> dict[str, int]:
    """How often each of these values is there."""
    text = pl.col(name).cast(pl.String)
    found = frame.select(text).filter(text.is_in(values)).group_by(name).len().collect(engine="streaming")
    return dict(found.iter_rows())


def sampled(frame: pl.LazyFrame, key: str, keys: Keys) -> tuple[int, int]:
    """Rows whose key would be in the sample, and those of them whose key is in it."""
    drawn = frame.select(key).filter(_is_drawn(pl.col(key), keys.shift)).group_by(key).len().collect(engine="streaming")
    seen = drawn.filter(pl.col(key).cast(pl.Int64).is_in(list(keys.sample)))
    return int(drawn["len"].sum()), int(seen["len"].sum())


def _grouped(frame: pl.LazyFrame, key: str, columns: Columns, oldest: float) -> pl.DataFrame:
    """Sums by key, about a middle that keeps them exact enough."""
    numbers = {"label": columns.label_value(), "time": columns.seconds() - oldest}
    sums = [
        each for name, value in numbers.items() for each in (value.sum().alias(f"{name} sum"), (value**2).sum().alias(f"{name} squares"))
    ]
    return frame.group_by(pl.col(key).alias("key")).agg(pl.len().alias("rows"), *sums).sort("key").collect(engine="streaming")


def _tie(groups: pl.DataFrame, name: str) -> float:
    rows, total, squares = int(groups["rows"].sum()), float(groups[f"{name} sum"].sum()), float(groups[f"{name} squares"].sum())
    between = float((groups[f"{name} sum"] ** 2 / groups["rows"]).sum())
    found = explained(len(groups), rows, squares - between, squares - total**2 / rows)
    return round(found, 4)


def _keys(groups: pl.DataFrame) -> Keys:
    size = pl.col("rows").log(2).floor().cast(pl.Int64).clip(0, SIZES - 1)
    sizes = dict(groups.group_by(size.alias("size")).len().iter_rows())
    shift = max(0, (len(groups) // SAMPLED_KEYS).bit_length())
    sample = groups.filter(_is_drawn(pl.col("key"), shift))["key"]
    return Keys(
        count=len(groups), sizes=tuple(int(sizes.get(n, 0)) for n in range(SIZES)), shift=shift, sample=tuple(int(key) for key in sample)
    )


def _is_drawn(key: pl.Expr, shift: int) -> pl.Expr:
    return stable_hash(key) <= pl.lit((2**64 - 1) >> shift, dtype=pl.UInt64)


def _disorder(frame: pl.LazyFrame, time: pl.Expr, rows: int) -> float:
    """Of the first rows: a batch that is in order begins so."""
    seen = min(rows, SAMPLED_ROWS)
    earlier = frame.head(seen).select((time.diff() < 0).sum()).collect(engine="streaming").item()
    return round(int(earlier or 0) / seen, 6)


def _repeats(frame: pl.LazyFrame, columns: Columns, rows: int) -> float:
    """Exact among a share of the users, by their hash: so many that their rows fit in memory."""
    shift = max(0, (rows // SAMPLED_ROWS).bit_length())
    drawn = frame.filter(_is_drawn(pl.col(columns.user), shift))
    found = drawn.select(pl.len().alias("rows"), pl.struct(columns.user, columns.item, columns.time).n_unique().alias("different"))
    drawn_rows, different = found.collect(engine="streaming").row(0)
    return round((drawn_rows - different) / drawn_rows, 6) if drawn_rows else 0.0


def _is_number(dtype: pl.DataType) -> bool:
    return dtype.is_numeric()


def _is_category(dtype: pl.DataType) -> bool:
    return dtype in (pl.String, pl.Boolean, pl.Categorical, pl.Enum)


def _column(frame: pl.LazyFrame, name: str, dtype: pl.DataType, rows: int) -> Numbers | Categories:
    return _numbers(frame, name, rows) if _is_number(dtype) else _categories(frame, name, rows)


def _numbers(frame: pl.LazyFrame, name: str, rows: int) -> Numbers:
    """Tenths of every n-th row; what lies in them is counted of all rows."""
    value = pl.col(name).cast(pl.Float64).fill_nan(None)
    every_nth = pl.col(_ROW) % max(1, rows // SAMPLED_ROWS) == 0
    few = frame.select(value).with_row_index(_ROW).filter(every_nth).drop_nulls().collect(engine="streaming")[name]
    edges = sorted({float(edge) for n in range(1, TENTHS) if (edge := few.quantile(n / TENTHS, "lower")) is not None})
    counts = counted(frame, name, tuple(edges))
    return Numbers(nulls=rows - sum(counts), edges=tuple(edges), counts=counts)


def _categories(frame: pl.LazyFrame, name: str, rows: int) -> Categories:
    text = pl.col(name).cast(pl.String)
    nulls, different = frame.select(text.null_count(), text.approx_n_unique().alias("different")).collect(engine="streaming").row(0)
    top: list[tuple[str, int]] = []
    if different <= MOST_DISTINCT:
        counts = frame.select(text).filter(text.str.len_chars() <= LONGEST_VALUE).group_by(name).len().collect(engine="streaming")
        top = list(counts.sort(["len", name], descending=[True, False]).head(MOST_TOP).iter_rows())
    other = rows - int(nulls) - sum(count for _, count in top)
    return Categories(nulls=int(nulls), top=tuple(top), other=other)
