"""The spec's `monitor`: slices with figures of their own, and the limit of empty answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from shared.contracts.entries import written
from shared.contracts.events import SLICE
from shared.contracts.quantities import Fraction
from shared.contracts.strict import Strict
from shared.domain.errors import Invalid
from shared.domain.expression_text import LONGEST, fault, parse_expression
from shared.domain.expressions import Expression
from shared.domain.slices import KNOWN, MOST, NEW, Slices

SliceName = Annotated[
    str,
    written(SLICE, "a slice's name: lower-case letters, digits and underscores, at most 40, beginning with a letter"),
    Field(json_schema_extra={"pattern": f"^{SLICE}$"}),
]


def _of_the_user(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("expected an expression over user attributes of the request, such as \"user.country == 'de'\"")
    try:
        expression = parse_expression(value)
        for name in sorted(expression.names(), key=lambda name: name.column):
            if name.source == "item":
                message = f"'{name}' is an item attribute, but a slice selects answers; use 'user.{name}' for a request attribute"
                raise fault(expression.text, name.column, message)
    except Invalid as error:
        raise ValueError(str(error)) from None
    return expression.text


Condition = Annotated[str, BeforeValidator(_of_the_user), Field(max_length=LONGEST)]


class Monitor(Strict):
    slices: Mapping[SliceName, Condition] = Field(
        {},
        max_length=MOST,
        description="Slices of the answers with KPIs of their own, by name: each an expression of the filter language over user attributes "
        f"of the request, such as `{{germany: user.country == 'de'}}`. `{NEW}` and `{KNOWN}` are built in.",
    )

    empty_answers: Fraction = Field(
        0.2,
        ge=0,
        le=1,
        description="Share of the answers of the last 15 minutes, if there are at least 20, that may be empty because the filters leave no "
        "item. Above it, the log, a metric and the console warn; 1: never.",
    )

    @model_validator(mode="after")
    def _check_built_in(self) -> Monitor:
        for name in (NEW, KNOWN):
            if name in self.slices:
                raise ValueError(f"slices: '{name}' is a built-in slice (whether the version knows the user); choose another name")
        return self

    def expressions(self) -> tuple[Expression, ...]:
        return tuple(parse_expression(text) for text in self.slices.values())

    def compiled(self) -> Slices:
        return Slices({name: parse_expression(text).tree for name, text in self.slices.items()})
