"""Attributes of an item or a user: named values of a few plain kinds, each with limits.

A value is a number, a text, a boolean, or a list of numbers or of texts. Whole numbers are limited to 2**53, so that a float represents
them exactly and comparisons are exact. A value of null means that the attribute is unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from shared.domain.errors import Invalid

Scalar = bool | float | str
Value = Scalar | Sequence[float] | Sequence[str]
Kind = Literal["number", "text", "boolean", "numbers", "texts"]
KINDS: tuple[Kind, ...] = ("number", "text", "boolean", "numbers", "texts")
ARTICLES: Mapping[Kind, str] = {
    "number": "a number",
    "text": "a text",
    "boolean": "true or false",
    "numbers": "a list of numbers",
    "texts": "a list of texts",
}

LARGEST = 2**53
MOST_NAMES = 50
MOST_TEXT = 500
MOST_VALUES = 100
MOST_CHARACTERS = 16_384
"""Limit for all names and texts of one item together."""
AVAILABLE = "available"
NAME_PATTERN = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
WORDS = frozenset({"and", "or", "not", "in", "contains", "has", "true", "false", "user"})
"""Keywords of the filter language; an attribute cannot have such a name."""

_NAME = re.compile(NAME_PATTERN)
_BAD = re.compile("[\0\ud800-\udfff]")


def kinds_of(value: Value) -> frozenset[Kind]:
    """Returns the kinds that fit the value: two for an empty list, which can be a list of texts or of numbers."""
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, str):
        return frozenset({"text"})
    if isinstance(value, int | float):
        return frozenset({"number"})
    if not value:
        return frozenset({"texts", "numbers"})
    return frozenset({"texts"}) if isinstance(value[0], str) else frozenset({"numbers"})


def check_name(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Invalid(f"{str(name)[:80]!r} is not an attribute name: use letters, digits, underscores, at most 64, no digit first")
    if name in WORDS:
        raise Invalid(f"'{name}' is a word of the filter language: choose another attribute name")
    return name


def check_attributes(values: Any, declared: Mapping[str, Kind], place: str = "serve.attributes") -> dict[str, Value | None]:
    """Returns the values to store by name; None deletes the attribute. If attributes are declared, other names are rejected."""
    if not isinstance(values, Mapping):
        raise Invalid("expected an object of values by name")
    if len(values) > MOST_NAMES:
        raise Invalid(f"{len(values)} names; at most {MOST_NAMES} are allowed")
    attributes: dict[str, Value | None] = {}
    size = 0
    for name, value in values.items():
        if name not in declared:
            check_name(name)
            if name == AVAILABLE:
                raise Invalid(f"'{AVAILABLE}' belongs beside the attributes, not inside them")
            if declared and value is not None:
                raise Invalid(f"unknown attribute '{name}'; declared by {place}: {', '.join(sorted(declared))}")
        attributes[name] = checked = None if value is None else check_value(value, name)
        if checked is not None and name in declared and declared[name] not in kinds_of(checked):
            raise Invalid(f"{name}: expected {ARTICLES[declared[name]]}, as {place} says, got {_described(value)}")
        size += len(name) + (sum(map(len, _texts(checked))) if checked is not None else 0)
    if size > MOST_CHARACTERS:
        raise Invalid(f"names and texts have {size} characters together; at most {MOST_CHARACTERS} are allowed")
    return attributes


def check_value(value: Any, name: str) -> Value:
    """Returns the value to store; lists become tuples with elements of one kind."""
    if isinstance(value, list | tuple):
        if len(value) > MOST_VALUES:
            raise Invalid(f"{name}: {len(value)} values; a list may have at most {MOST_VALUES}")
        if all(isinstance(element, str) for element in value):
            return tuple(_text(element, name) for element in value)
        if all(isinstance(element, int | float) and not isinstance(element, bool) for element in value):
            return tuple(_number(element, name) for element in value)
        raise Invalid(f"{name}: a list must hold only texts or only numbers")
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, name)
    if isinstance(value, int | float):
        return _number(value, name)
    raise Invalid(f"{name}: expected a number, a text, true, false, or a list of numbers or texts, got {_described(value)}")


def _text(value: str, name: str) -> str:
    if len(value) > MOST_TEXT:
        raise Invalid(f"{name}: a text of {len(value)} characters; at most {MOST_TEXT} are allowed")
    if _BAD.search(value):
        raise Invalid(f"{name}: the text has a NUL or half of a surrogate pair, which cannot be stored: remove it")
    return value


def _number(value: float, name: str) -> float:
    if not math.isfinite(value) or (isinstance(value, int) and abs(value) > LARGEST):
        raise Invalid(f"{name}: a number must be finite, and an integer within -2**53 to 2**53: write larger integers as text")
    return value


def _texts(value: Value) -> Iterable[str]:
    if isinstance(value, str):
        return (value,)
    return () if isinstance(value, int | float) else (element for element in value if isinstance(element, str))


def _described(value: Any) -> str:
    if value is None or isinstance(value, Mapping):
        return "an object" if value is not None else "null"
    return repr(value)[:80]
