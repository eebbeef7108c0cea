"""Times as text: only ISO 8601, since guessing between day and month would be silently wrong."""

from __future__ import annotations

import polars as pl

_ISO = r"^([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:[0-9]{2})(:[0-9]{2}(?:\.[0-9]{1,9})?)?(?: ?(Z|[+-][0-9]{2}(?::?[0-9]{2})?))?)?$"


def is_text(dtype: pl.DataType) -> bool:
    return dtype in (pl.String, pl.Categorical, pl.Enum)


def iso_time(column: str) -> pl.Expr:
    """Returns the time in UTC; null for other text. Default zone is UTC, default time midnight."""
    text = pl.col(column).cast(pl.String).str.strip_chars()
    date, clock, seconds, zone = (text.str.extract(_ISO, group) for group in (1, 2, 3, 4))
    zone = zone.str.replace(r"^([+-][0-9]{2})$", "${1}:00").str.replace(r"^([+-][0-9]{2})([0-9]{2})$", "${1}:${2}")
    iso_text = pl.concat_str(date, pl.lit("T"), clock.fill_null("00:00"), seconds.fill_null(":00"), zone.fill_null("Z"))
    return iso_text.str.to_datetime("%+", time_unit="us", time_zone="UTC", strict=False)


def seconds(column: str, dtype: pl.DataType) -> pl.Expr:
    """Returns seconds since 1970 for any column that can be a time."""
    if is_text(dtype):
        return iso_time(column).dt.epoch("us") / 1e6
    if isinstance(dtype, pl.Date):
        return pl.col(column).cast(pl.Datetime("us")).dt.epoch("us") / 1e6
    if isinstance(dtype, pl.Datetime):
        return pl.col(column).dt.epoch("us") / 1e6
    return pl.col(column).cast(pl.Float64)
