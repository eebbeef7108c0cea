"""Times of the interactions. Text is ISO 8601, or has the format that the spec gives: day and month are never guessed."""

from __future__ import annotations

import polars as pl

from shared.contracts.schema import EPOCH_UNITS, TimeColumn

_ISO = r"^([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:[0-9]{2})(:[0-9]{2}(?:\.[0-9]{1,9})?)?(?: ?(Z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?))?)?$"
_FIRST_YEAR = 1000


def is_text(dtype: pl.DataType) -> bool:
    return dtype in (pl.String, pl.Categorical, pl.Enum)


def iso_time(column: str) -> pl.Expr:
    """Returns the time in UTC; null for other text. Default zone is UTC, default time midnight."""
    text = pl.col(column).cast(pl.String).str.strip_chars()
    date, clock, seconds, zone = (text.str.extract(_ISO, group) for group in (1, 2, 3, 4))
    zone = zone.str.replace("UTC", "Z", literal=True).str.replace(r"^([+-][0-9]{2})$", "${1}:00")
    zone = zone.str.replace(r"^([+-][0-9]{2})([0-9]{2})$", "${1}:${2}")
    iso_text = pl.concat_str(date, pl.lit("T"), clock.fill_null("00:00"), seconds.fill_null(":00"), zone.fill_null("Z"))
    return iso_text.str.to_datetime("%+", time_unit="us", time_zone="UTC", strict=False)


def seconds(time: TimeColumn, dtype: pl.DataType) -> pl.Expr:
    """Returns seconds since 1970 for any column that can be a time; null where it cannot be read."""
    column, form = pl.col(time.column), time.format
    if form is not None and form not in EPOCH_UNITS:
        return _parsed(column, form).dt.epoch("us") / 1e6
    if is_text(dtype) and form is None:
        return iso_time(time.column).dt.epoch("us") / 1e6
    if isinstance(dtype, pl.Date):
        return column.cast(pl.Datetime("us")).dt.epoch("us") / 1e6
    if isinstance(dtype, pl.Datetime):
        return column.dt.epoch("us") / 1e6
    return column.cast(pl.Float64, strict=not is_text(dtype)) / {"ms": 1e3, "us": 1e6}.get(form or "s", 1)


def _parsed(column: pl.Expr, form: str) -> pl.Expr:
    """Parses text in UTC; `%Y` alone would also accept years of two digits."""
    text, zone = column.cast(pl.String).str.strip_chars(), "UTC" if "%z" in form else None
    time = text.str.to_datetime(form, time_unit="us", time_zone=zone, strict=False)
    return pl.when(time.dt.year() >= _FIRST_YEAR).then(time)
