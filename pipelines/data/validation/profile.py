"""Profile of a batch for the next comparison: bounded, whatever the batch's size.

Contains value profiles of columns, row counts and a sample of keys, how much users and items explain labels and times, and profiles of the
tables of items and users.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import Field

from pipelines.data.validation.columns import InteractionColumns
from pipelines.data.validation.grouping import KEY, grouped
from pipelines.data.validation.keys import KeyCounts, KeySums, is_drawn
from pipelines.data.validation.tableprofile import TableProfile
from pipelines.data.validation.values import MOST_COLUMNS, SAMPLED_ROWS, Column, column_of, is_category, is_number
from shared.contracts.schema import NO_LABEL
from shared.contracts.strict import Strict
from shared.contracts.validation_report import TableName


class Profile(Strict):
    version: Literal[1] = 1
    rows: int
    oldest: float
    newest: float
    disorder: float = Field(description="Share of the first rows that are older than the row before them.")
    positives: float = Field(description="Share of positive rows.")
    repeats: float = Field(description="Share of rows that repeat the user, item and time of another row.")
    keys: Mapping[str, KeyCounts]
    ties: Mapping[str, float] = Field(description="Share of a number's variance that a key explains.")
    columns: Mapping[str, Column]
    tables: Mapping[TableName, TableProfile] = Field({}, description="Profiles of the tables that the interactions were joined with.")


def profile_of(frame: pl.LazyFrame, columns: InteractionColumns, scratch: Path) -> Profile:
    """Profiles good rows; at least one must exist."""
    time = columns.seconds()
    aggregates = {"rows": pl.len(), "oldest": time.min(), "newest": time.max(), "positives": columns.is_positive().mean()}
    facts = frame.select(**aggregates).collect(engine="streaming").row(0, named=True)
    rows = int(facts["rows"])
    keys: dict[str, KeyCounts] = {}
    ties: dict[str, float] = {}
    for name, key in zip(("user", "item"), columns.keys, strict=True):
        numbers = {"label": columns.label_value(), "time": time - facts["oldest"]} if name == "user" else {"label": columns.label_value()}
        of = _keyed(frame, key, numbers, scratch / name)
        keys[name] = of.keys()
        ties |= {f"{number} by {name}": of.tie(number) for number in numbers}
    return Profile(
        rows=rows,
        oldest=facts["oldest"],
        newest=facts["newest"],
        disorder=_disorder(frame, time, rows),
        positives=facts["positives"],
        repeats=_repeats(frame, columns, rows),
        keys=keys,
        ties=ties,
        columns={name: column_of(frame, name, columns.types[name], rows, scratch) for name in profiled(columns)},
    )


def profiled(columns: InteractionColumns) -> tuple[str, ...]:
    others = [name for name in columns.others if is_number(columns.types[name]) or is_category(columns.types[name])]
    label = () if columns.label == NO_LABEL else (columns.label,)
    return (*label, *others[: MOST_COLUMNS - 1])


def _keyed(frame: pl.LazyFrame, key: str, numbers: Mapping[str, pl.Expr], scratch: Path) -> KeySums:
    """Sums numbers by key; the caller subtracts the oldest time, to keep precision."""
    sums = [
        each for name in numbers for each in (pl.col(name).sum().alias(f"{name} sum"), (pl.col(name) ** 2).sum().alias(f"{name} squares"))
    ]
    rows = frame.select(pl.col(key).alias(KEY), **numbers)
    return KeySums(grouped(rows, [pl.len().cast(pl.Int64).alias("rows"), *sums], scratch), tuple(numbers))


def _disorder(frame: pl.LazyFrame, time: pl.Expr, rows: int) -> float:
    """Measures disorder in the first rows, which suffice for a sorted batch."""
    sampled_rows = min(rows, SAMPLED_ROWS)
    earlier = frame.head(sampled_rows).select((time.diff() < 0).sum()).collect(engine="streaming").item()
    return round(int(earlier or 0) / sampled_rows, 6)


def _repeats(frame: pl.LazyFrame, columns: InteractionColumns, rows: int) -> float:
    """Computes the exact share for users sampled by hash, few enough that their rows fit in memory."""
    shift = max(0, (rows // SAMPLED_ROWS).bit_length())
    drawn = frame.filter(is_drawn(pl.col(columns.user), shift))
    counts = drawn.select(pl.len().alias("rows"), pl.struct(columns.user, columns.item, columns.time).n_unique().alias("different"))
    drawn_rows, different = counts.collect(engine="streaming").row(0)
    return round((drawn_rows - different) / drawn_rows, 6) if drawn_rows else 0.0
