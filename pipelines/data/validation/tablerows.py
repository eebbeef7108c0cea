"""Rules for bad rows of a table: missing key, unreadable or out-of-range number, repeated key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import polars as pl

from pipelines.data.ids import text_of
from pipelines.data.sources import SourceRows, readable
from pipelines.data.times import is_text
from pipelines.data.validation.rows import WIDER, RowRule, id_rules, missing, outside, the_bad, too_wide
from pipelines.data.validation.sifting import HELPER, RowRules
from shared.contracts.validation import Bounds, ValidateTable
from shared.domain.errors import Invalid


@dataclass(frozen=True)
class TypedTable:
    """Table with typed columns of numbers next to text columns from files without types."""

    source: SourceRows
    key: str
    numbers: Mapping[str, str]
    """Text columns, and the columns with their parsed numbers."""
    types: Mapping[str, pl.DataType]

    def value(self, column: str) -> pl.Expr:
        value = pl.col(self.numbers.get(column, column))
        return value.fill_nan(None) if self.types[self.numbers.get(column, column)].is_float() else value

    def plain(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Moves the parsed numbers to their columns."""
        if not self.numbers:
            return frame
        return frame.with_columns(pl.col(number_column).alias(column) for column, number_column in self.numbers.items()).drop(
            list(self.numbers.values())
        )


def typed(source: SourceRows, key: str, settings: ValidateTable, field: str) -> TypedTable:
    """Types a table's numbers. `field`: the spec's field, for error messages."""
    with readable(source.name):
        types = dict(source.frame.collect_schema())
    for column in settings.columns():
        if column not in types:
            raise Invalid(f"{field}: column '{column}' is not in {source.name}; columns: {', '.join(list(types)[:20])}")
    numbers = {}
    for column in dict.fromkeys((key, *settings.range)):
        if not source.has_types and is_text(types[column]):
            numbers[column] = f"{HELPER}{column}"
        elif not types[column].is_numeric() or (text_of(column) in types and column in settings.range):
            dtype = "text" if text_of(column) in types else types[column]
            raise Invalid(f"{field}.range: column '{column}' of {source.name} is {dtype}; only numbers have a range")
    values = [_integer(column) if column == key else _number(source, column) for column in numbers]
    frame = source.frame.with_columns(value.alias(numbers[column]) for value, column in zip(values, numbers, strict=True))
    return TypedTable(replace(source, frame=frame), key, numbers, types | dict(frame.select(numbers.values()).collect_schema()))


def table_rules(table: TypedTable, settings: ValidateTable, bounds: Bounds, looked_at: Collection[str]) -> RowRules:
    """Returns the rules for a table. `bounds`: the key's default range. `looked_at`: columns that features use."""
    rules = [missing(table.key, table.types[table.key])]
    text = text_of(table.key) if text_of(table.key) in table.types else None
    rules += id_rules(table.key, text) if text else ()
    rules += [_unread(table, column) for column in table.numbers]
    rules += [too_wide(column) for column in dict.fromkeys((table.key, *looked_at)) if table.types.get(column) in WIDER]
    for column, (low, high) in {table.key: bounds, **settings.range}.items():
        rules += outside(column, table.value(column), low, high)
    return RowRules(rules, (text or table.numbers.get(table.key, table.key),), tuple(settings.nulls))


def _unread(table: TypedTable, column: str) -> RowRule:
    text = pl.col(column)
    bad = text.is_not_null() & pl.col(table.numbers[column]).is_null()
    kind, advice = ("not an integer", "; these ids are integers") if column == table.key else ("not a number", "")
    says = f"column '{column}' has {{count}} values that are {kind}, such as '{{example}}'{advice}"
    return RowRule(column, kind, bad, says, the_bad(bad, text).min().str.slice(0, 40))


def _integer(column: str) -> pl.Expr:
    return pl.col(column).str.strip_chars().cast(pl.Int64, strict=False)


def _number(source: SourceRows, column: str) -> pl.Expr:
    """Parses integers if all readable values are whole, else floats."""
    fraction = pl.col(column).str.strip_chars().cast(pl.Float64, strict=False)
    with readable(source.name):
        broken = source.frame.select((fraction.is_not_null() & _integer(column).is_null()).any()).collect(engine="streaming").item()
    return fraction if broken else _integer(column)
