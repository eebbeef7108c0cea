"""Roles and types of a source's columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from pipelines.data.ids import text_of
from pipelines.data.interactions import file_rule, holds
from pipelines.data.pages import is_view
from pipelines.data.sources import SourceRows, readable
from pipelines.data.times import seconds
from shared.contracts.quantities import PositiveRule
from shared.contracts.schema import TimeColumn
from shared.contracts.spec import RecommenderSpec
from shared.contracts.validation import Validate
from shared.domain.errors import Invalid


@dataclass(frozen=True)
class InteractionColumns:
    """Columns of the interactions by the spec's names."""

    user: str
    item: str
    times: TimeColumn
    label: str
    positive: PositiveRule
    types: Mapping[str, pl.DataType]
    page: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    """Columns of text ids, by the column of their keys."""

    @property
    def time(self) -> str:
        return self.times.column

    @property
    def keys(self) -> tuple[str, str]:
        return self.user, self.item

    @property
    def others(self) -> tuple[str, ...]:
        return tuple(name for name in self.types if name not in (self.user, self.item, self.time, self.label))

    def seconds(self) -> pl.Expr:
        """Returns the time in seconds; null if unreadable."""
        return seconds(self.times, self.types[self.time])

    def viewed(self) -> pl.Expr | None:
        """Returns the page of a page view, null for other rows; None if the spec names no page column."""
        return None if self.page is None else pl.when(is_view(self.item, self.page)).then(pl.col(self.page))

    def label_value(self) -> pl.Expr:
        return pl.col(self.label).cast(pl.Float64)

    def is_positive(self) -> pl.Expr:
        return holds(self.label_value(), self.positive)


def columns_of(source: SourceRows, spec: RecommenderSpec) -> InteractionColumns:
    with readable(source.name):
        types = dict(source.frame.collect_schema())
    schema = spec.schema_
    texts = {column: text_of(column) for column in (schema.user, schema.item) if text_of(column) in types}
    types = {name: dtype for name, dtype in types.items() if name not in texts.values()}
    _check_named(spec.data.validate_, types, texts, source.name)
    positive = file_rule(spec.positive())
    return InteractionColumns(schema.user, schema.item, schema.times, schema.label_column, positive, types, schema.page, texts)


def _check_named(settings: Validate, types: Mapping[str, pl.DataType], texts: Mapping[str, str], name: str) -> None:
    for column in settings.columns():
        if column not in types:
            raise Invalid(f"data.validate: column '{column}' is not in {name}; columns: {', '.join(list(types)[:20])}")
    for column in settings.range:
        dtype = pl.String() if column in texts else types[column]
        if not dtype.is_numeric():
            raise Invalid(f"data.validate.range: column '{column}' of {name} is {dtype}; only numbers have a range")
