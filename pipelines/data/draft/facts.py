"""Facts about the columns of a file, for the draft of a spec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

import polars as pl

from pipelines.data.sources import SourceRows, readable
from pipelines.data.times import is_text, seconds
from shared.contracts.schema import TimeColumn
from shared.domain.errors import BadData

MOST_LISTED = 50
"""Up to this number of distinct values, the values are listed."""
_SAMPLE = 10_000
_FIRST, _LAST = datetime(1980, 1, 1, tzinfo=UTC).timestamp(), datetime(2100, 1, 1, tzinfo=UTC).timestamp()
_CLOCKS = ("", " %H:%M", " %H:%M:%S", "T%H:%M:%S", " %H:%M:%S%.f", "T%H:%M:%S%.f", "T%H:%M:%S%z", " %H:%M:%S %z")
_DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y")
_NAMED = ("%a %b %d %H:%M:%S %z %Y", "%a, %d %b %Y %H:%M:%S %z", "%d %b %Y", "%b %d, %Y", "%d-%b-%Y")
FORMS = ("ms", "us", *(day + clock for day in _DAYS for clock in _CLOCKS), *_NAMED)
"""Forms of times that are recognised, beside seconds since 1970, timestamps and ISO 8601."""


@dataclass(frozen=True)
class ColumnFacts:
    name: str
    dtype: pl.DataType
    rows: int
    nulls: int
    distinct: int
    low: float | None
    high: float | None
    values: Mapping[object, int]
    """Values with their number of rows, the most frequent first; empty if there are many."""

    @property
    def is_id(self) -> bool:
        """Whether the column can hold ids: integers or text, in every row."""
        return (self.dtype.is_integer() or is_text(self.dtype)) and self.nulls == 0 and self.distinct > 1

    @property
    def is_unique(self) -> bool:
        return self.distinct == self.rows

    @property
    def kind(self) -> str:
        if isinstance(self.dtype, pl.List):
            return "list"
        if is_text(self.dtype):
            return "text"
        return "integer" if self.dtype.is_integer() else str(self.dtype).split("(", maxsplit=1)[0].lower()


class FileFacts:
    """Facts of the columns of one file."""

    def __init__(self, uri: str, source: SourceRows, header: tuple[str, ...] | None = None) -> None:
        """`header`: names of the columns of a file without a header line."""
        self.uri, self.source, self.header = uri, source, header
        self.frame, self.name = source.frame, source.name
        with readable(source.name):
            self.schema = dict(source.frame.collect_schema())
            self.rows = _length(source.frame)
            self.columns = {name: self._column(name, dtype) for name, dtype in self.schema.items()}

    def _column(self, name: str, dtype: pl.DataType) -> ColumnFacts:
        column = pl.col(name)
        if dtype.is_nested():
            nulls = self.frame.select(column.null_count()).collect(engine="streaming").item()
            return ColumnFacts(name, dtype, self.rows, int(nulls), 0, None, None, {})
        is_number = dtype.is_numeric()
        facts = self.frame.select(
            nulls=column.null_count(),
            distinct=column.n_unique(),
            low=column.min() if is_number else pl.lit(None),
            high=column.max() if is_number else pl.lit(None),
        )
        nulls, distinct, low, high = facts.collect(engine="streaming").row(0)
        distinct -= bool(nulls)
        values = {}
        if distinct <= MOST_LISTED:
            counts = self.frame.select(name).drop_nulls().group_by(name).len("rows").collect(engine="streaming")
            values = dict(counts.sort(["rows", name], descending=[True, False]).rows())
        return ColumnFacts(name, dtype, self.rows, int(nulls), int(distinct), low, high, values)

    @cached_property
    def times(self) -> Mapping[str, tuple[TimeColumn, ...]]:
        """Columns whose values are all times, each with the forms in which they can be read."""
        readings = {name: self._readings(name) for name, facts in self.columns.items() if facts.nulls == 0 and not facts.dtype.is_nested()}
        return {name: forms for name, forms in readings.items() if forms}

    def _readings(self, name: str) -> tuple[TimeColumn, ...]:
        dtype = self.schema[name]
        if isinstance(dtype, pl.Date | pl.Datetime):
            return (_time(name, None),)
        if not (dtype.is_numeric() or is_text(dtype)):
            return ()
        start = self.frame.head(_SAMPLE)
        plain = self._fitting([_time(name, None)], start)
        if plain:
            return self._fitting(plain, self.frame)
        forms = [form for form in FORMS if dtype.is_integer() or (is_text(dtype) and form not in ("ms", "us"))]
        return self._fitting(self._fitting([_time(name, form) for form in forms], start), self.frame)

    def _fitting(self, times: Sequence[TimeColumn], frame: pl.LazyFrame) -> tuple[TimeColumn, ...]:
        """Returns the forms that read all rows as times between 1980 and 2100."""
        if not times:
            return ()
        read = {str(at): seconds(time, self.schema[time.column]) for at, time in enumerate(times)}
        fits = frame.select(**{at: value.is_between(_FIRST, _LAST).fill_null(False).all() for at, value in read.items()})
        row = fits.collect(engine="streaming").row(0)
        return tuple(time for time, fit in zip(times, row, strict=True) if fit)

    def delimiter(self, name: str, separators: Iterable[str] = ("|", ";", ",")) -> str | None:
        """Returns the character that splits a text column into few different values."""
        for separator in separators:
            split = pl.col(name).str.split(separator)
            facts = self.frame.select(
                several=(split.list.len() > 1).mean(), distinct=split.explode(empty_as_null=False).str.strip_chars().n_unique()
            )
            several, distinct = facts.collect(engine="streaming").row(0)
            if (several or 0) > 0.2 and distinct < max(20, self.rows / 4):
                return separator
        return None

    def share_of(self, name: str, other: FileFacts, key: str) -> float:
        """Returns the share of this file's distinct values that are keys of another file."""
        values = self.frame.select(pl.col(name).cast(pl.String).alias("value")).unique()
        keys = other.frame.select(pl.col(key).cast(pl.String).alias("value")).unique()
        total, shared = (_length(frame) for frame in (values, values.join(keys, "value", "semi")))
        return shared / max(1, total)


def time_form(file: FileFacts, name: str, form: str | None) -> TimeColumn:
    """Returns how a column's times are read; raises BadData where day and month could be exchanged."""
    if form is not None:
        return _time(name, form)
    forms = file.times.get(name, ())
    if not forms:
        raise BadData(f"{file.name}: column '{name}' has no times that are recognised; set --time-format, such as '%d.%m.%Y'")
    if len(forms) > 1:
        readings = " or ".join(f"'{time.format}'" for time in forms)
        raise BadData(f"{file.name}: column '{name}' can be read in several ways: set --time-format {readings}")
    return forms[0]


def _length(frame: pl.LazyFrame) -> int:
    return int(frame.select(pl.len()).collect(engine="streaming").item())


def _time(name: str, form: str | None) -> TimeColumn:
    return TimeColumn.model_construct(column=name, format=form)
