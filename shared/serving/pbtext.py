"""Writer of protobuf's text format, with the features that config.pbtxt needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Union

Value = Union[str, int, bool, "EnumWord", "Message", Sequence["Value"]]
Message = Mapping[str, Value]
"""Fields by name; None means absent, lists are repeated fields."""


@dataclass(frozen=True)
class EnumWord:
    """Enum name, written without quotes."""

    name: str


def write(message: Message) -> str:
    """Returns the message with one field per line."""
    return "".join(f"{line}\n" for name, value in message.items() for line in _field(name, value))


def _field(name: str, value: Value) -> list[str]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [line for element in value for line in _field(name, element)]
    return [f"{name} {_written(value)}" if isinstance(value, Mapping) else f"{name}: {_written(value)}"]


def _written(value: Value) -> str:
    if isinstance(value, Mapping):
        return "{ " + " ".join(line for name, inner in value.items() for line in _field(name, inner)) + " }"
    if isinstance(value, EnumWord):
        return value.name
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else f'"{_escaped(str(value))}"'


def _escaped(text: str) -> str:
    """Escapes UTF-8 bytes that are not plain ASCII in octal, which every reader of the format supports."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in text.encode())
