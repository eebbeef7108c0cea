"""What is remembered of a batch, so that the next one can be compared with it: bounded, whatever the size of the batch.

Numbers by tenths, categories by their most frequent values, keys by how many rows they have and by a sample of them, chosen by a
stable hash so that two batches sample the same ones; and how much users and items tell of labels and times.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
from pydantic import Field

from pipelines.data.validation.columns import Columns
from pipelines.data.validation.grouping import KEY, grouped
from pipelines.data.validation.keys import Keys, KeySums, is_drawn
from shared.contracts.strict import Strict

MOST_COLUMNS = 32
MOST_TOP = 40
MOST_DISTINCT = 100_000
"""A column with more different values is no category: names, comments."""
LONGEST_VALUE = 200
SAMPLED_ROWS = 500_000
_ROW = "profile.row"
TENTHS = 10


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


def profile_of(frame: pl.LazyFrame, columns: Columns, scratch: Path) -> Profile:
    """Of good rows; there is at least one."""
    time = columns.seconds()
    asked = {"rows": pl.len(), "oldest": time.min(), "newest": time.max(), "positives": columns.is_positive().mean()}
    found = frame.select(**asked).collect(engine="streaming").row(0, named=True)
    rows = int(found["rows"])
    keys: dict[str, Keys] = {}
    ties: dict[str, float] = {}
    for name, key in zip(("user", "item"), columns.keys, strict=True):
        numbers = {"label": columns.label_value(), "time": time - found["oldest"]} if name == "user" else {"label": columns.label_value()}
        of = _keyed(frame, key, numbers, scratch / name)
        keys[name] = of.keys()
        ties |= {f"{number} by {name}": of.tie(number) for number in numbers}
    return Profile(
        rows=rows,
        oldest=found["oldest"],
        newest=found["newest"],
        disorder=_disorder(frame, time, rows),
        positives=found["positives"],
        repeats=_repeats(frame, columns, rows),
        keys=keys,
        ties=ties,
        columns={name: column_of(frame, name, columns.types[name], rows, scratch) for name in profiled(columns)},
    )


def profiled(columns: Columns) -> tuple[str, ...]:
    others = [name for name in columns.others if is_number(columns.types[name]) or is_category(columns.types[name])]
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


def _keyed(frame: pl.LazyFrame, key: str, numbers: Mapping[str, pl.Expr], scratch: Path) -> KeySums:
    """With sums about a middle that keeps them exact enough."""
    sums = [
        each for name in numbers for each in (pl.col(name).sum().alias(f"{name} sum"), (pl.col(name) ** 2).sum().alias(f"{name} squares"))
    ]
    rows = frame.select(pl.col(key).alias(KEY), **numbers)
    return KeySums(grouped(rows, [pl.len().cast(pl.Int64).alias("rows"), *sums], scratch), tuple(numbers))


def _disorder(frame: pl.LazyFrame, time: pl.Expr, rows: int) -> float:
    """Of the first rows: a batch that is in order begins so."""
    seen = min(rows, SAMPLED_ROWS)
    earlier = frame.head(seen).select((time.diff() < 0).sum()).collect(engine="streaming").item()
    return round(int(earlier or 0) / seen, 6)


def _repeats(frame: pl.LazyFrame, columns: Columns, rows: int) -> float:
    """Exact among a share of the users, by their hash: so many that their rows fit in memory."""
    shift = max(0, (rows // SAMPLED_ROWS).bit_length())
    drawn = frame.filter(is_drawn(pl.col(columns.user), shift))
    found = drawn.select(pl.len().alias("rows"), pl.struct(columns.user, columns.item, columns.time).n_unique().alias("different"))
    drawn_rows, different = found.collect(engine="streaming").row(0)
    return round((drawn_rows - different) / drawn_rows, 6) if drawn_rows else 0.0


def is_number(dtype: pl.DataType) -> bool:
    return dtype.is_numeric()


def is_category(dtype: pl.DataType) -> bool:
    return dtype in (pl.String, pl.Boolean, pl.Categorical, pl.Enum)


def column_of(frame: pl.LazyFrame, name: str, dtype: pl.DataType, rows: int, scratch: Path) -> Numbers | Categories:
    return _numbers(frame, name, rows) if is_number(dtype) else _categories(frame, name, rows, scratch)


def _numbers(frame: pl.LazyFrame, name: str, rows: int) -> Numbers:
    """Tenths of every n-th row; what lies in them is counted of all rows."""
    value = pl.col(name).cast(pl.Float64).fill_nan(None)
    every_nth = pl.col(_ROW) % max(1, rows // SAMPLED_ROWS) == 0
    few = frame.select(value).with_row_index(_ROW).filter(every_nth).drop_nulls().collect(engine="streaming")[name]
    edges = sorted({float(edge) for n in range(1, TENTHS) if (edge := few.quantile(n / TENTHS, "lower")) is not None})
    counts = counted(frame, name, tuple(edges))
    return Numbers(nulls=rows - sum(counts), edges=tuple(edges), counts=counts)


def _categories(frame: pl.LazyFrame, name: str, rows: int, scratch: Path) -> Categories:
    text = pl.col(name).cast(pl.String)
    nulls, different = frame.select(text.null_count(), text.approx_n_unique().alias("different")).collect(engine="streaming").row(0)
    top: list[tuple[str, int]] = []
    if different <= MOST_DISTINCT:
        short = frame.select(text.alias(KEY)).filter(pl.col(KEY).str.len_chars() <= LONGEST_VALUE)
        for counts in grouped(short, [pl.len().cast(pl.Int64).alias("rows")], scratch / "values"):
            top = sorted([*top, *counts.iter_rows()], key=lambda one: (-one[1], one[0]))[:MOST_TOP]
    other = rows - int(nulls) - sum(count for _, count in top)
    return Categories(nulls=int(nulls), top=tuple(top), other=other)
