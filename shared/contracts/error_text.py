"""Messages of validation errors, in plain words: what is expected and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SHOWN = 80
_TIME = "expected a time with its zone, such as 2026-01-31T12:00:00Z"
_OBJECT = "expected an object"
_NUMBER = "expected a number"
_INTEGER = "expected a whole number"
_WORDS = {
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected at least {ge}",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected at most {le}",
    "too_short": "expected at least {min_length} entries",
    "too_long": "expected at most {max_length} entries",
    "literal_error": "expected {expected}",
    "enum": "expected {expected}",
    "int_type": _INTEGER,
    "int_parsing": _INTEGER,
    "int_from_float": _INTEGER,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "expected a finite number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "string_type": "expected text",
    "list_type": "expected a list",
    "tuple_type": "expected a list",
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "datetime_type": _TIME,
    "datetime_parsing": _TIME,
    "datetime_from_date_parsing": _TIME,
    "datetime_object_invalid": _TIME,
    "timezone_aware": _TIME,
}


def fault_message(fault: Mapping[str, Any], secret: bool = False) -> str:
    """Returns the message of a pydantic error, without its location. Repeats a short input, but never a secret."""
    if fault["type"] == "extra_forbidden":
        return "unknown field"
    words = _WORDS.get(fault["type"])
    if words is None:
        message = str(fault["msg"])
        return message.removeprefix("Value error, ") if message.startswith("Value error, ") else message[:1].lower() + message[1:]
    context = fault.get("ctx", {})
    expected = words.format_map({name: _shown(value) for name, value in context.items()})
    if secret:
        return expected
    value = fault.get("input")
    return f"{expected}, got {len(value) if 'actual_length' in context and value is not None else _described(value)}"


def _shown(value: Any) -> str:
    """Formats a bound without a trailing zero: 1, not 1.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _described(value: Any) -> str:
    """Describes an input; lists and objects are too long, so only their kind is named."""
    if isinstance(value, str):
        return repr(value[:_SHOWN])
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)[:_SHOWN]
    return "an object" if isinstance(value, Mapping) else "a list"
