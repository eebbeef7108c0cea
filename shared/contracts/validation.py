"""The spec's `data.validate`: checks of a batch of interactions before training, and checks of a table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from shared.contracts.columns import Column
from shared.contracts.quantities import Duration, Fraction
from shared.contracts.strict import Strict


class Limits(Strict):
    """A figure above `warn` causes a warning; a figure above `stop` stops the run."""

    warn: Fraction | None = Field(None, ge=0, description="More than this is warned of; null: never.")
    stop: Fraction | None = Field(None, ge=0, description="More than this stops the run; null: never.")

    @model_validator(mode="after")
    def _in_order(self) -> Limits:
        if self.warn is not None and self.stop is not None and self.warn > self.stop:
            raise ValueError(f"warn ({self.warn:g}) is more than stop ({self.stop:g})")
        return self


def _filled(warn: float | None, stop: float | None) -> BeforeValidator:
    """Sets the defaults of missing limits; a `stop` below the default of `warn` lowers `warn` too."""

    def fill(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        limits = Limits.model_validate({"stop": stop, **value})
        if "warn" in value or warn is None:
            return limits
        return Limits(warn=warn if limits.stop is None else min(warn, limits.stop), stop=limits.stop)

    return BeforeValidator(fill)


def _in_order(value: tuple[float | None, float | None]) -> tuple[float | None, float | None]:
    low, high = value
    if low is not None and high is not None and low > high:
        raise ValueError(f"expected the lower bound first, got [{low:g}, {high:g}]")
    return value


_NUMBER = {"type": ["number", "null"]}
Bounds = Annotated[
    tuple[float | None, float | None],
    AfterValidator(_in_order),
    WithJsonSchema({"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2, "examples": [[0.5, 5]]}),
]


class Validate(Strict):
    """Good rows are used, bad rows are quarantined with reasons, and thresholds decide whether the run continues."""

    nulls: Mapping[Column, Fraction] = Field(
        {}, description="By column: a larger share of nulls stops the run. A row without user, item, time or label is bad in any case."
    )
    range: Mapping[Column, Bounds] = Field(
        {},
        description="By column: rows with a value outside of [least, most] are bad; null leaves a side open. "
        "Keys of users and items are 0 or more unless it says otherwise.",
    )
    unknown_items: Annotated[Limits, _filled(0.01, None)] = Field(
        Limits(warn=0.01, stop=None),
        exclude_if=lambda limits: limits == Limits(warn=0.01, stop=None),
        description="The share of rows, good otherwise, whose item isn't in the items table: they are quarantined, 1% is warned of and "
        "nothing stops, unless said otherwise. Events of the platform are held against it by themselves.",
    )
    unique: tuple[Column, ...] = Field((), description="No two rows have the same values in these columns: the later ones are bad.")
    future: Duration = Field(timedelta(days=1), description="Rows of later than this after now are bad.")
    bad_rows: Annotated[Limits, _filled(0.001, 0.05)] = Field(
        Limits(warn=0.001, stop=0.05),
        description="The share of bad rows, for each reason and for all: 0.1% is warned of and 5% stops, unless said otherwise.",
    )
    bad_files: Annotated[Limits, _filled(0.0, 0.1)] = Field(
        Limits(warn=0.0, stop=0.1),
        description="The share of the bytes that lie in files which can't be read: any is warned of and 10% stops, unless said otherwise.",
    )
    repeats: Annotated[Limits, _filled(0.01, None)] = Field(
        Limits(warn=0.01, stop=None),
        description="The share of rows that repeat another one's user, item and time: 1% is warned of and nothing stops, unless said "
        "otherwise.",
    )
    positives: Bounds = Field((0.001, 0.999), description="The share of positives is warned of outside of these.")
    unseen: Annotated[Limits, _filled(0.5, None)] = Field(
        Limits(warn=0.5, stop=None),
        description="The share of rows whose user, or whose item, the last accepted batch didn't have: 50% is warned of and nothing "
        "stops, unless said otherwise.",
    )
    drift: Annotated[Limits, _filled(0.1, None)] = Field(
        Limits(warn=0.1, stop=None),
        description="The population stability index of each column, and of the rows per user and per item, against the last accepted "
        "batch. From 0.1 on it is warned of; it stops nothing unless said otherwise, for moved data is what retraining is for.",
    )
    ties: Annotated[Limits, _filled(0.5, None)] = Field(
        Limits(warn=0.5, stop=None),
        description="How much of what a user or an item tells of the label, or a user of the time, was lost since the last accepted batch: "
        "all of it when a column was shuffled. 50% is warned of and nothing stops, unless said otherwise.",
    )

    def columns(self) -> tuple[str, ...]:
        """Columns that the checks name; the source must have them."""
        return tuple(dict.fromkeys((*self.nulls, *self.range, *self.unique)))


class ValidateTable(Strict):
    """Checks of a table with one row per key: of rows with the same key the first good one is used, the others are bad."""

    nulls: Mapping[Column, Fraction] = Field(
        {}, description="By column: a larger share of nulls stops the run. A row without a key is bad in any case."
    )
    range: Mapping[Column, Bounds] = Field(
        {},
        description="By column: rows with a value outside of [least, most] are bad; null leaves a side open. In a text file (CSV, TSV) "
        "what is no number there is bad, too. Keys are 0 or more unless it says otherwise, or `data.validate.range` of the "
        "interactions' column.",
    )
    bad_rows: Annotated[Limits, _filled(0.001, 0.05)] = Field(
        Limits(warn=0.001, stop=0.05),
        description="The share of bad rows, for each reason and for all: 0.1% is warned of and 5% stops, unless said otherwise.",
    )
    gone: Annotated[Limits, _filled(0.2, None)] = Field(
        Limits(warn=0.2, stop=None),
        description="The share of the last accepted table's keys that aren't there any more: 20% is warned of and nothing stops, unless "
        "said otherwise.",
    )
    unseen: Annotated[Limits, _filled(0.5, None)] = Field(
        Limits(warn=0.5, stop=None),
        description="The share of rows whose key, or whose value in a column of text, the last accepted table didn't have: 50% is warned "
        "of and nothing stops, unless said otherwise.",
    )
    drift: Annotated[Limits, _filled(0.1, None)] = Field(
        Limits(warn=0.1, stop=None),
        description="The population stability index of each column against the last accepted table. From 0.1 on it is warned of; it stops "
        "nothing unless said otherwise.",
    )

    def columns(self) -> tuple[str, ...]:
        """Columns that the checks name; the table must have them."""
        return tuple(dict.fromkeys((*self.nulls, *self.range)))
