"""Histories of features as tables, built from rows."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from pipelines.features.asof import AT, KEY, column_type
from shared.contracts.online import View
from shared.domain.feature_values import StoredRow, instant


def history_of(rows: Sequence[StoredRow], view: View) -> pl.DataFrame:
    """Builds a history from rows; the highest rank wins among rows of one key and time."""
    counts = {(row.key, row.at): row for row in sorted(rows, key=lambda row: row.rank)}
    schema: dict[str, pl.DataType] = {KEY: pl.Int64(), AT: pl.Int64()} | {column.name: column_type(column) for column in view.columns}
    names = [column.name for column in view.columns]
    values = [
        (row.key, instant(row.at), *(list(value) if isinstance(value := row.values.get(name), tuple) else value for name in names))
        for row in counts.values()
    ]
    return pl.DataFrame(values, schema=schema, orient="row")
