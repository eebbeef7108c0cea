"""Rules for bad rows. A rule depends only on the row, so batches of any size are judged while streaming."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipelines.data.item_membership import is_known
from pipelines.data.times import is_text
from pipelines.data.validation.columns import InteractionColumns
from shared.contracts.schema import EPOCH_UNITS
from shared.contracts.validation import Validate
from shared.domain.entity_ids import LONGEST_ID

UNKNOWN = "not in the items table"
LATEST_SECOND = 1e11
"""The year 5138: larger times are in milliseconds or finer."""
WIDER = (pl.UInt64, pl.Int128, pl.UInt128)
_ADVICE = (
    "write it as 2026-01-31T18:30:00Z (without a zone it means UTC) or as seconds since 1970, or set its format, such as "
    "schema.time: {{column: date, format: '%d.%m.%Y'}}"
)


@dataclass(frozen=True)
class RowRule:
    """Rule for bad rows. `bad`: true or false for every row. `says`: text with places for `count` and `example`; `worst`: the example of
    the bad values."""

    column: str
    fault: str
    bad: pl.Expr
    says: str
    worst: pl.Expr

    @property
    def reason(self) -> str:
        return f"{self.column}: {self.fault}"


def row_rules(columns: InteractionColumns, settings: Validate, now: float) -> tuple[RowRule, ...]:
    """Returns the rules for interactions. `now`: seconds since 1970; much later times are bad."""
    rules: list[RowRule] = []
    for key in columns.keys:
        rules.append(_missing(key, columns))
        if columns.types[key] in WIDER:
            rules.append(too_wide(key))
        rules += id_rules(key, columns.texts[key]) if key in columns.texts else ()
    rules += _times(columns, settings, now)
    rules += (_missing(columns.label, columns), *_endless(columns.label, columns))
    bounds = {**dict.fromkeys(columns.keys, (0.0, None)), **settings.range}
    for column, (low, high) in bounds.items():
        value = pl.col(column).fill_nan(None) if columns.types[column].is_float() else pl.col(column)
        rules += outside(column, value, low, high)
    return tuple(rules)


def id_rules(column: str, text_column: str) -> Iterator[RowRule]:
    """Yields the rules for text ids."""
    text = pl.col(text_column)
    faults = {
        "empty": (text == "", "has {count} empty ids"),
        "longer than an id": (
            text.str.len_bytes() > LONGEST_ID,
            f"has {{count}} ids of more than {LONGEST_ID} bytes, such as '{{example}}'",
        ),
        "has a NUL": (text.str.contains("\0", literal=True), "has {count} ids with a NUL character"),
    }
    for fault, (bad, says) in faults.items():
        bad_rows = bad.fill_null(False)
        yield RowRule(column, fault, bad_rows, f"column '{column}' {says}", the_bad(bad_rows, text).min().str.slice(0, 40))


def unknown_item(column: str, keys: np.ndarray[Any, np.dtype[np.int64]], table: str, text_column: str | None = None) -> RowRule:
    """Returns the rule for items missing from `table`; `keys` are sorted."""
    says = f"{{count}} rows have items that are not in the items table {table}, such as {{example}}"
    return RowRule(column, UNKNOWN, ~is_known(column, keys), says, pl.col(text_column or column))


def missing(column: str, dtype: pl.DataType, viewed: pl.Expr | None = None, needed: str = "every row needs a value") -> RowRule:
    """Returns the rule for missing values. `viewed`: page of a page view, which needs no value."""
    value = pl.col(column)
    lacks = value.is_null()
    if dtype.is_float():
        lacks = lacks | value.is_nan().fill_null(False)
    if viewed is not None:
        lacks = lacks & viewed.is_null()
    return RowRule(column, "missing", lacks, f"column '{column}' has {{count}} nulls or NaN; {needed}", pl.lit(None))


def _missing(column: str, columns: InteractionColumns) -> RowRule:
    """Page views need neither an item nor a label."""
    if columns.page is None or column not in (columns.item, columns.label):
        return missing(column, columns.types[column])
    needed = f"every row needs an item or a page ('{columns.page}')" if column == columns.item else "every row with an item needs a value"
    return missing(column, columns.types[column], columns.viewed(), needed)


def too_wide(column: str) -> RowRule:
    value = pl.col(column)
    bad = ((value > 2**63 - 1) | (value.cast(pl.Int128) < -(2**63))).fill_null(False)
    says = f"column '{column}' has {{example}}, which does not fit int64; renumber the values"
    return RowRule(column, "does not fit int64", bad, says, the_bad(bad, value).min().cast(pl.String))


def _endless(column: str, columns: InteractionColumns) -> Iterator[RowRule]:
    if columns.types[column].is_float():
        bad = pl.col(column).is_infinite().fill_null(False)
        yield RowRule(column, "not finite", bad, f"column '{column}' has {{count}} infinite values; correct those rows", pl.lit(None))


def _times(columns: InteractionColumns, settings: Validate, now: float) -> Iterator[RowRule]:
    column, time = columns.time, columns.seconds()
    yield _missing(column, columns)
    yield from _endless(column, columns)
    form = columns.times.format
    if is_text(columns.types[column]) or form not in (None, *EPOCH_UNITS):
        bad = time.is_null() & pl.col(column).is_not_null()
        wanted = "an ISO 8601 time" if form is None else f"a time of the form {form}".replace("{", "{{").replace("}", "}}")
        says = f"column '{column}' has '{{example}}', which is not {wanted}; {_ADVICE}"
        yield RowRule(column, "not a time", bad, says, the_bad(bad, pl.col(column).cast(pl.String)).min().str.slice(0, 40))
    latest = now + settings.future.total_seconds()
    if columns.types[column].is_numeric():
        finer = time.is_finite() & (time > LATEST_SECOND)
        advice = f"for milliseconds set schema.time: {{{{column: {column}, format: ms}}}}"
        says = f"column '{column}' goes up to {{example}}, not in seconds; {advice}"
        yield RowRule(column, "not in seconds", finer.fill_null(False), says, the_bad(finer, time).max())
        future = time.is_finite() & (time > latest) & (time <= LATEST_SECOND)
    else:
        future = time > latest
    says = f"column '{column}' has {{count}} times in the future, up to {{example}}"
    newest = pl.from_epoch(the_bad(future, time).max().cast(pl.Int64), "s").dt.to_string("%Y-%m-%dT%H:%M:%SZ")
    yield RowRule(column, "in the future", future.fill_null(False), says, newest)


def the_bad(bad: pl.Expr, value: pl.Expr) -> pl.Expr:
    """Returns bad values and nulls elsewhere: filtering would gather all bad values before the minimum."""
    return pl.when(bad).then(value)


def outside(column: str, value: pl.Expr, low: float | None, high: float | None) -> Iterator[RowRule]:
    """Yields rules for a range. `value`: the column's value; nulls are neither in nor out of range."""
    if low is not None:
        under = (value < low).fill_null(False)
        says = f"column '{column}' has {{count}} values below {low:.15g}, down to {{example}}"
        yield RowRule(column, f"below {low:.15g}", under, says, the_bad(under, value).min())
    if high is not None:
        over = (value > high).fill_null(False)
        says = f"column '{column}' has {{count}} values above {high:.15g}, up to {{example}}"
        yield RowRule(column, f"above {high:.15g}", over, says, the_bad(over, value).max())
