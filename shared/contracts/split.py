"""The spec's `split`: which rows are held out for the evaluation."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from shared.contracts.quantities import Duration, Fraction, parse_duration, parse_fraction, write_duration
from shared.contracts.strict import Strict


def _share(value: Any) -> Any:
    try:
        share = parse_fraction(value)
    except ValueError:
        return parse_duration(value)
    if not 0 < share < 1:
        raise ValueError(f"expected a share between 0% and 100% or a duration, got {value!r}")
    return share


def _write_share(value: timedelta | float) -> float | str:
    return write_duration(value) if isinstance(value, timedelta) else value


class Split(Strict):
    planned = frozenset({"validation"})

    by: Literal["time", "leave_last_out", "random", "pairs"] = Field(
        "time",
        description="Selection of the holdout: the newest part of the data, as in production (`time`); each user's newest interaction "
        "(`leave_last_out`); all data of a share of the users, by a hash of their keys (`random`); or a share of the pairs of user and "
        "item, by a hash of both (`pairs`, the default without `schema.time`).",
    )
    test: Annotated[
        timedelta | float,
        BeforeValidator(_share, json_schema_input_type=Annotated[Fraction, Field(gt=0, lt=1)] | Duration),
        PlainSerializer(_write_share),
    ] = Field(
        0.2, description="Size of the holdout: a share such as 20% or, for `time`, a duration such as 7d. No effect for `leave_last_out`."
    )

    refit: bool = Field(
        True,
        description="Whether the exported version is fitted again on all rows, including the holdout, after the candidate has passed the "
        "gates. Its offline figures are those of the candidate.",
    )

    @model_validator(mode="after")
    def _check_share(self) -> Split:
        if self.by in ("random", "pairs") and isinstance(self.test, timedelta):
            raise ValueError(f"test: a split by '{self.by}' needs a share such as 20%, not a duration")
        return self
