"""The spec's `schema`: meaning of the columns of the interactions."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from shared.contracts.columns import Column
from shared.contracts.quantities import AnyRow, Positive
from shared.contracts.strict import Strict

NO_TIME, NO_LABEL = "file.time", "any.label"
"""Columns that are added where the data has none; no data column has these names, because of the dot."""
EPOCH_UNITS = ("s", "ms", "us")
_DIRECTIVE = re.compile(r"%[-_]?(.)")
_DIRECTIVES = frozenset("YymdbBeHIMSpfTDFRz%jaA")
_DATES = ({"Y", "m", "d"}, {"y", "m", "d"}, {"Y", "b", "d"}, {"Y", "B", "d"}, {"F"}, {"D"}, {"Y", "j"}, {"Y", "m", "e"})


def _check_format(text: str) -> str:
    if text in EPOCH_UNITS:
        return text
    directives = set(_DIRECTIVE.findall(text))
    unknown = sorted(directives - _DIRECTIVES)
    if unknown:
        raise ValueError(f"format: unknown directive '%{unknown[0]}'; write it such as '%d.%m.%Y' or '%Y-%m-%d %H:%M:%S'")
    if not any(date <= directives for date in _DATES):
        raise ValueError(f"format: expected a year, a month and a day such as '%d.%m.%Y', or one of {', '.join(EPOCH_UNITS)}, got {text!r}")
    return text


class TimeColumn(Strict):
    column: Column = Field(description="Column of the time.")
    format: Annotated[str, AfterValidator(_check_format), Field(max_length=60)] | None = Field(
        None,
        description="Form of the times: `ms` or `us` since 1970, or strftime directives such as `%d.%m.%Y`. Absent: seconds since 1970, a "
        "timestamp, or ISO 8601 text.",
    )


def _time_of(value: Any) -> Any:
    return {"column": value} if isinstance(value, str) else value


def _write_time(time: TimeColumn | None) -> Any:
    if time is None or time.format is None:
        return time and time.column
    return time.model_dump()


_NO_TIME = TimeColumn.model_construct(column=NO_TIME)
Time = Annotated[
    TimeColumn | None,
    BeforeValidator(_time_of, json_schema_input_type=Column | TimeColumn | None),
    PlainSerializer(_write_time),
]


class Label(Strict):
    column: Column | None = Field(None, description="Column of the label, such as a rating or the kind of an event.")
    positive: Positive = Field(
        "any",
        validate_default=True,
        description="Condition of a positive: a comparison such as '>= 4'; a list of values such as [purchase]; texts with weights such as "
        "{purchase: 5, click: 1}; or `any`, for every row. The texts are also the kinds of events that are positives, unless "
        "`feedback.kinds` has the kind. With weights, a positive counts that much in training (families mlp, dlrm, wide_deep, deepfm, "
        "dcn, two_tower, and mf with `loss: als`), and in an answer's engagement; an event has the weight of its kind.",
    )

    @model_validator(mode="after")
    def _check_column(self) -> Label:
        if self.column is None and self.positive != AnyRow():
            raise ValueError(f"column: missing; name the column in which '{self.positive}' is positive")
        if self.column is not None and "positive" not in self.model_fields_set:
            raise ValueError("positive: missing; set a comparison such as '>= 4', a list of values such as [purchase], or any")
        return self


class Schema(Strict):
    user: Column = Field(description="Column of the user's id: an integer or a text.")
    item: Column = Field(description="Column of the item's id: an integer or a text.")
    time: Time = Field(
        None,
        description="Column of the time: seconds since 1970, a timestamp, or ISO 8601 text, in UTC if it has no zone; for other forms "
        "`{column: Datum, format: '%d.%m.%Y'}`. Absent: all rows are as old as the file, and the holdout is chosen at random.",
    )
    label: Label = Field(Label(), description="Definition of a positive. Absent: every interaction is a positive.")
    page: Column | None = Field(
        None,
        exclude_if=lambda column: column is None,
        description="A column of text or whole numbers. A row with a page and no item is a page view: it is not trained on, counted or "
        "recommended, and needs no label; a `sequence` with `pages` reads it.",
    )

    @property
    def times(self) -> TimeColumn:
        """Column and form of the time, also where the data has none."""
        return self.time or _NO_TIME

    @property
    def time_column(self) -> str:
        return self.times.column

    @property
    def label_column(self) -> str:
        """Column of the label, also where every row is positive."""
        return NO_LABEL if self.label.column is None or isinstance(self.label.positive, AnyRow) else self.label.column

    def columns(self) -> tuple[str, ...]:
        """Returns the columns that the data must have."""
        named = (self.user, self.item, self.time.column if self.time else None, self.label.column, self.page)
        return tuple(column for column in named if column is not None)

    @model_validator(mode="after")
    def _check_different(self) -> Schema:
        fields: dict[str, str] = {}
        named = {"user": self.user, "item": self.item, "time": self.time_column, "label": self.label_column, "page": self.page}
        for field, column in named.items():
            if column is not None and column in fields:
                raise ValueError(f"{field}: column '{column}' is already the {fields[column]}; name another column")
            fields |= {} if column is None else {column: field}
        return self
