"""The spec's `data.validate`: checks of a batch of interactions before training, and checks of a table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from shared.contracts.columns import Column
from shared.contracts.quantities import Duration, Fraction
from shared.contracts.strict import Strict


class CheckLimits(Strict):
    """A figure above `warn` causes a warning; a figure above `stop` stops the run."""

    warn: Fraction | None = Field(None, ge=0, description="Limit above which the run warns; null: never.")
    stop: Fraction | None = Field(None, ge=0, description="Limit above which the run stops; null: never.")

    @model_validator(mode="after")
    def _in_order(self) -> CheckLimits:
        if self.warn is not None and self.stop is not None and self.warn > self.stop:
            raise ValueError(f"warn ({self.warn:g}) is greater than stop ({self.stop:g})")
        return self


def _filled(warn: float | None, stop: float | None) -> BeforeValidator:
    """Sets the defaults of missing limits; a `stop` below the default of `warn` lowers `warn` too."""

    def fill(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        limits = CheckLimits.model_validate({"stop": stop, **value})
        if "warn" in value or warn is None:
            return limits
        return CheckLimits(warn=warn if limits.stop is None else min(warn, limits.stop), stop=limits.stop)

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
        {}, description="Maximum share of nulls by column; more stop the run. A row without user, item, time or label is always bad."
    )
    range: Mapping[Column, Bounds] = Field(
        {},
        description="Bounds by column: rows with a value outside of [least, most] are bad; null leaves a side open. Keys of users and "
        "items must be 0 or more unless set otherwise.",
    )
    unknown_items: Annotated[CheckLimits, _filled(0.01, None)] = Field(
        CheckLimits(warn=0.01, stop=None),
        exclude_if=lambda limits: limits == CheckLimits(warn=0.01, stop=None),
        description="Limits of the share of otherwise good rows whose item is not in the items table; these rows are quarantined. "
        "Default: warns above 1%, never stops. The platform's events are checked separately.",
    )
    unique: tuple[Column, ...] = Field((), description="Columns with unique combinations of values: later rows with equal ones are bad.")
    future: Duration = Field(timedelta(days=1), description="Maximum time in the future; rows with a later time are bad.")
    bad_rows: Annotated[CheckLimits, _filled(0.001, 0.05)] = Field(
        CheckLimits(warn=0.001, stop=0.05),
        description="Limits of the share of bad rows, for each reason and in total. Default: warns above 0.1%, stops above 5%.",
    )
    bad_files: Annotated[CheckLimits, _filled(0.0, 0.1)] = Field(
        CheckLimits(warn=0.0, stop=0.1),
        description="Limits of the share of bytes in unreadable files. Default: warns above 0, stops above 10%.",
    )
    repeats: Annotated[CheckLimits, _filled(0.01, None)] = Field(
        CheckLimits(warn=0.01, stop=None),
        description="Limits of the share of rows with the user, item and time of another row. Default: warns above 1%, never stops.",
    )
    positives: Bounds = Field((0.001, 0.999), description="Bounds of the share of positives; outside of them the run warns.")
    unseen: Annotated[CheckLimits, _filled(0.5, None)] = Field(
        CheckLimits(warn=0.5, stop=None),
        description="Limits of the share of rows whose user or item is not in the last accepted batch. Default: warns above 50%, never "
        "stops.",
    )
    drift: Annotated[CheckLimits, _filled(0.1, None)] = Field(
        CheckLimits(warn=0.1, stop=None),
        description="Limits of the population stability index of each column, and of the rows per user and per item, against the last "
        "accepted batch. Default: warns above 0.1, never stops, since drift is a reason to retrain.",
    )
    ties: Annotated[CheckLimits, _filled(0.5, None)] = Field(
        CheckLimits(warn=0.5, stop=None),
        description="Limits of the loss of association between user or item and label, or user and time, since the last accepted batch; a "
        "shuffled column loses all. Default: warns above 50%, never stops.",
    )

    def columns(self) -> tuple[str, ...]:
        """Columns that the checks name; the source must have them."""
        return tuple(dict.fromkeys((*self.nulls, *self.range, *self.unique)))


class ValidateTable(Strict):
    """Checks of a table with one row per key: of rows with the same key the first good one is used, the others are bad."""

    nulls: Mapping[Column, Fraction] = Field(
        {}, description="Maximum share of nulls by column; more stop the run. A row without a key is always bad."
    )
    range: Mapping[Column, Bounds] = Field(
        {},
        description="Bounds by column: rows with a value outside of [least, most] are bad; null leaves a side open. In a text file (CSV, "
        "TSV) values that are not numbers are also bad. Keys must be 0 or more unless set otherwise here, or in `data.validate.range` of "
        "the interactions' column.",
    )
    bad_rows: Annotated[CheckLimits, _filled(0.001, 0.05)] = Field(
        CheckLimits(warn=0.001, stop=0.05),
        description="Limits of the share of bad rows, for each reason and in total. Default: warns above 0.1%, stops above 5%.",
    )
    gone: Annotated[CheckLimits, _filled(0.2, None)] = Field(
        CheckLimits(warn=0.2, stop=None),
        description="Limits of the share of the last accepted table's keys that are missing. Default: warns above 20%, never stops.",
    )
    unseen: Annotated[CheckLimits, _filled(0.5, None)] = Field(
        CheckLimits(warn=0.5, stop=None),
        description="Limits of the share of rows with a key, or a value of a text column, that is not in the last accepted table. "
        "Default: warns above 50%, never stops.",
    )
    drift: Annotated[CheckLimits, _filled(0.1, None)] = Field(
        CheckLimits(warn=0.1, stop=None),
        description="Limits of the population stability index of each column against the last accepted table. Default: warns above 0.1, "
        "never stops.",
    )

    def columns(self) -> tuple[str, ...]:
        """Columns that the checks name; the table must have them."""
        return tuple(dict.fromkeys((*self.nulls, *self.range)))
