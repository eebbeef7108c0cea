"""The spec's `serve.filter`: filters of items, and the names that their expressions may use."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from shared.contracts.entries import entry
from shared.contracts.quantities import Duration, parse_duration, write_duration
from shared.contracts.strict import Strict
from shared.domain.attributes import KINDS, MOST_NAMES, NAME_PATTERN, Kind, check_name
from shared.domain.errors import Invalid
from shared.domain.expression_text import LONGEST, parse_expression

EVER: Literal["ever"] = "ever"


def _window(value: Any) -> Any:
    try:
        return value if value == EVER else parse_duration(value)
    except ValueError:
        raise ValueError(f"expected a duration such as 30d, or 'ever', got {value!r}") from None


Window = Annotated[
    timedelta | Literal["ever"],
    BeforeValidator(_window, json_schema_input_type=Literal["ever"] | Duration),
    PlainSerializer(lambda value: value if value == EVER else write_duration(value), return_type=str),
]


class NotSeen(Strict):
    """Drops items that the user has liked in this recommender."""

    not_seen: Window = Field(description="Maximum age of the positive, such as 30d; `ever`: any age.")


class Available(Strict):
    """Drops items that are unavailable in the catalogue, or deleted from it."""

    available: Literal[True] = Field(description="Always true; to show unavailable items, leave the entry out.")


_ENTRIES: dict[str, type[Strict]] = {"not_seen": NotSeen, "available": Available}
_EXAMPLE = "{not_seen: 30d}, or an expression such as 'age_rating <= user.age'"
_read = entry("filter", _ENTRIES, frozenset(), _EXAMPLE)


def _entry(value: Any) -> Any:
    if not isinstance(value, str):
        return _read(value)
    try:
        return parse_expression(value).text
    except Invalid as error:
        raise ValueError(str(error)) from None


Filter = Annotated[
    NotSeen | Available | Annotated[str, Field(max_length=LONGEST, description="Condition on attributes of the item and the request.")],
    BeforeValidator(_entry),
]


def _named(value: Any) -> Any:
    try:
        for name in value if isinstance(value, Mapping) else ():
            check_name(name)
    except Invalid as error:
        raise ValueError(str(error)) from None
    return value


Kinds = Annotated[
    dict[str, Kind],
    Field(max_length=MOST_NAMES),
    BeforeValidator(_named),
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": f"^{NAME_PATTERN}$"},
            "maxProperties": MOST_NAMES,
            "additionalProperties": {"enum": list(KINDS), "type": "string"},
        }
    ),
]
