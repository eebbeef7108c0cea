"""Compares a table of items or users with the last accepted one: gone and new keys, new values, moved values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from pipelines.data.validation.figures import check, percent
from pipelines.data.validation.keys import sampled
from pipelines.data.validation.moved import column_moved
from pipelines.data.validation.tableprofile import ColumnValues, TableProfile, is_drawn_hash, value_counts, value_hash
from pipelines.data.validation.values import Categories
from shared.contracts.validation import ValidateTable
from shared.contracts.validation_report import Check, Distribution


def compare_tables(
    frame: pl.LazyFrame, key: str, profile: TableProfile, accepted: TableProfile, settings: ValidateTable, scratch: Path
) -> Iterator[tuple[Check, Distribution | None]]:
    yield _gone(frame, key, accepted, settings), None
    rows, in_sample = sampled(frame, key, accepted.keys)
    new = (rows - in_sample) / rows if rows else 0.0
    yield (
        check("unseen", key, new, settings.unseen, f"{percent(new)} of the rows have keys that are new since the last accepted table"),
        None,
    )
    for column, before in accepted.columns.items():
        yield from column_moved(frame, column, before, profile.columns.get(column), profile.rows, settings.drift)
        if column in accepted.values and isinstance(profile.columns.get(column), Categories):
            yield _unseen(frame, column, accepted.values[column], settings, scratch), None


def _gone(frame: pl.LazyFrame, key: str, accepted: TableProfile, settings: ValidateTable) -> Check:
    sample = accepted.keys.sample
    there = frame.select(pl.col(key).cast(pl.Int64).is_in(list(sample)).sum()).collect(engine="streaming").item()
    share = 1 - there / len(sample) if sample else 0.0
    return check("gone", key, share, settings.gone, f"{percent(share)} of the last accepted table's {accepted.rows:,} keys are missing")


def _unseen(frame: pl.LazyFrame, column: str, before: ColumnValues, settings: ValidateTable, scratch: Path) -> Check:
    drawn = in_sample = 0
    sample = set(before.sample)
    for counts in value_counts(frame, column, scratch):
        for value, rows in counts.iter_rows():
            mark = value_hash(value)
            if is_drawn_hash(mark, before.shift):
                drawn += rows
                in_sample += rows if mark in sample else 0
    share = (drawn - in_sample) / drawn if drawn else 0.0
    says = f"{percent(share)} of the rows have values of '{column}' that are new since the last accepted table"
    return check("unseen", column, share, settings.unseen, says)
