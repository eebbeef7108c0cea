"""Checks that a data set must pass whatever the thresholds; errors name the file, the column and the remedy.

Checks run on lazy frames in one streaming pass, so data may exceed memory. Faults of single rows, and thresholds, are in
pipelines/data/validation.
"""

from __future__ import annotations

import polars as pl

from pipelines.data.sources import SourceRows, readable
from pipelines.data.times import is_text
from shared.contracts.schema import NO_LABEL
from shared.domain.errors import BadData

MIN_ROWS = 20
_WIDER = (pl.UInt64, pl.Int128, pl.UInt128)


def check_keys(source: SourceRows, columns: tuple[str, ...]) -> None:
    """Raises BadData unless keys are integers without nulls; text ids have keys already."""
    for column in columns:
        check_filled(source, column)
    check_key_types(source, columns)
    for column in columns:
        check_fits(source, column)


def check_key_types(source: SourceRows, columns: tuple[str, ...]) -> None:
    for column in columns:
        dtype = _dtype(source, column)
        if not dtype.is_integer():
            raise BadData(f"{source.name}: column '{column}' is {dtype}; ids must be integers or text")


def check_fits(source: SourceRows, column: str) -> None:
    """Raises BadData for values beyond int64, the type of whole numbers from features to serving."""
    if _dtype(source, column) not in _WIDER:
        return
    with readable(source.name):
        low, high = source.frame.select(low=pl.col(column).min(), high=pl.col(column).max()).collect(engine="streaming").row(0)
    for value in (low, high):
        if value is not None and not -(2**63) <= value < 2**63:
            raise BadData(f"{source.name}: column '{column}' has {value}, which does not fit int64; renumber the values")


def check_filled(source: SourceRows, column: str) -> None:
    """Raises BadData for nulls and NaN."""
    missing = pl.col(column).is_null()
    if _dtype(source, column).is_float():
        missing = missing | pl.col(column).is_nan().fill_null(False)
    with readable(source.name):
        count = source.frame.select(missing.sum()).collect(engine="streaming").item()
    if count:
        raise BadData(f"{source.name}: column '{column}' has {count:,} nulls or NaN; every row needs a value")


def check_label_type(source: SourceRows, column: str) -> None:
    dtype = _dtype(source, column)
    if not (dtype.is_numeric() or dtype == pl.Boolean):
        raise BadData(f"{source.name}: column '{column}' is {dtype}; the label must be a number")


def check_time_type(source: SourceRows, column: str) -> None:
    dtype = _dtype(source, column)
    if not (dtype.is_numeric() or isinstance(dtype, pl.Datetime | pl.Date) or is_text(dtype)):
        raise BadData(f"{source.name}: column '{column}' is {dtype}; time must be seconds since 1970 or a timestamp")


def check_table(source: SourceRows, key: str) -> None:
    check_keys(source, (key,))
    with readable(source.name):
        doubled = source.frame.group_by(key).len().filter(pl.col("len") > 1).sort(key).collect(engine="streaming")
    if not doubled.is_empty():
        raise BadData(f"{source.name}: column '{key}' has {len(doubled):,} duplicate keys, such as {doubled[key][0]}")


def check_interactions(frame: pl.LazyFrame, name: str, user: str, item: str, label: str, need_both_labels: bool) -> int:
    """Checks the normalised data set: enough rows, users and items, and different labels. Returns the number of rows."""
    facts = frame.select(
        rows=pl.len(),
        users=pl.col("user").n_unique(),
        items=pl.col("item").n_unique(),
        positives=pl.col("label").cast(pl.Int64).sum(),
    )
    totals = facts.collect(engine="streaming").row(0, named=True)
    rows, positives = int(totals["rows"]), int(totals["positives"] or 0)
    if rows < MIN_ROWS:
        raise BadData(f"{name}: {rows} usable interactions are too few; at least {MIN_ROWS} needed")
    for column, count in ((user, totals["users"]), (item, totals["items"])):
        if count < 2:
            raise BadData(f"{name}: column '{column}' has only one value; at least 2 needed")
    if positives == 0:
        raise BadData(f"{name}: column '{label}' has no positive; check schema.label.positive")
    if positives == rows and need_both_labels:
        says = "every row is a positive" if label == NO_LABEL else f"column '{label}' makes every row a positive"
        raise BadData(f"{name}: {says}; check schema.label.positive, or choose a family that learns from positives alone, such as ease")
    return rows


def _dtype(source: SourceRows, column: str) -> pl.DataType:
    with readable(source.name):
        return source.frame.collect_schema()[column]
