"""Bodies of items: a JSON object, or NDJSON with an item per line. All items are read before the first is stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request
from fastapi.exceptions import RequestValidationError

from services.api.eventbodies import NDJSON
from services.api.json_bodies import bounded_object, check_values, is_doubtful
from services.api.rate_limits import BULK
from shared.contracts.events import ID_SCHEMA
from shared.contracts.text import unkeepable
from shared.domain.attributes import LARGEST, MOST_NAMES, MOST_TEXT, MOST_VALUES, NAME_PATTERN, Kind
from shared.domain.catalogue import MOST_AT_ONCE, ItemWrite, read_write
from shared.domain.entity_ids import Id, IdReader
from shared.domain.errors import Invalid, Malformed

_SHOWN = 20
_NUMBER = {"type": "number", "minimum": -LARGEST, "maximum": LARGEST}
_TEXT = {"type": "string", "maxLength": MOST_TEXT}
_VALUE = {
    "anyOf": [
        _TEXT,
        _NUMBER,
        {"type": "boolean"},
        {"type": "array", "items": _TEXT, "maxItems": MOST_VALUES},
        {"type": "array", "items": _NUMBER, "maxItems": MOST_VALUES},
    ]
}
VALUES: dict[str, Any] = {
    "type": "object",
    "propertyNames": {"type": "string", "pattern": f"^{NAME_PATTERN}$"},
    "maxProperties": MOST_NAMES,
    "additionalProperties": _VALUE,
}
SCHEMAS: dict[str, Any] = {
    "ItemWrite": {
        "type": "object",
        "title": "ItemWrite",
        "description": "Attributes and availability of an item.",
        "required": ["item"],
        "additionalProperties": False,
        "properties": {
            "item": {**ID_SCHEMA, "description": "Id of the item."},
            "attributes": {
                **VALUES,
                "additionalProperties": {"anyOf": [*_VALUE["anyOf"], {"type": "null"}]},
                "description": "Values by name; null removes an attribute.",
            },
            "available": {"type": "boolean", "description": "Whether the item is available; true by default."},
        },
    },
    "ItemWrites": {
        "type": "object",
        "title": "ItemWrites",
        "description": "Items to write.",
        "required": ["items"],
        "additionalProperties": False,
        "properties": {
            "items": {
                "type": "array",
                "maxItems": MOST_AT_ONCE,
                "items": {"$ref": "#/components/schemas/ItemWrite"},
                "description": "Items; of two writes of one item the later one counts, or extends the first one.",
            }
        },
    },
}
ITEM_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/ItemWrites"}},
            NDJSON: {"schema": {"type": "string", "description": "One ItemWrite per line, as JSON; empty lines are skipped."}},
        },
    }
}


@dataclass(frozen=True)
class ItemBody:
    """Unparsed body: the recommender's spec says what its items may have."""

    content: bytes
    by_line: bool

    def writes(self, declared: Mapping[str, Kind], reader_for: Callable[[Id], IdReader]) -> tuple[list[ItemWrite], IdReader | None]:
        """Returns the writes, and the reader of their ids; None without writes. `reader_for`: returns the reader, given the first id."""
        check_values(self.content, BULK.values)
        values = _lines(self.content) if self.by_line else _items(self.content)
        return _read(values, declared, reader_for, is_doubtful(self.content))


async def _body(request: Request) -> ItemBody:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", NDJSON):
        raise HTTPException(415, f"the body's type is not supported: send JSON as application/json, or one item per line as {NDJSON}")
    return ItemBody(await request.body(), kind == NDJSON)


Items = Annotated[ItemBody, Depends(_body)]
_Place = tuple[str | int, ...]


def _read(
    entries: Iterator[tuple[_Place, Any]], declared: Mapping[str, Kind], reader_for: Callable[[Id], IdReader], is_doubtful: bool
) -> tuple[list[ItemWrite], IdReader | None]:
    reader: IdReader | None = None

    def key_of(id: Id) -> int:
        nonlocal reader
        reader = reader or reader_for(id)
        return reader.item(id)

    writes: list[ItemWrite] = []
    faults: list[dict[str, Any]] = []
    for place, entry in entries:
        messages = [f"{'.'.join(map(str, inner))}: {message}" for inner, message in (unkeepable(entry) if is_doubtful else ())]
        if not messages:
            try:
                writes.append(read_write(entry, declared, key_of))
            except Invalid as error:
                messages = [str(error)]
        faults += [
            {"type": "item", "loc": ("body", *place), "msg": f"{message}; nothing of this request was written"} for message in messages
        ]
        if len(faults) >= _SHOWN:
            break
        if len(writes) > MOST_AT_ONCE:
            raise Invalid(f"more than {MOST_AT_ONCE} items in one request: send them in parts; nothing of this request was written")
    if faults:
        raise RequestValidationError(faults)
    return writes, reader


def _lines(content: bytes) -> Iterator[tuple[_Place, Any]]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            yield (f"line {number}",), _json(line, f"line {number}", ": nothing of this request was written")


def _items(content: bytes) -> Iterator[tuple[_Place, Any]]:
    body = _json(content, "the body")
    if not isinstance(body, Mapping) or not isinstance(body.get("items"), list) or len(body) > 1:
        raise Invalid('expected an object with a list of items: {"items": [{"item": 1, "attributes": {"price": 3}}]}')
    yield from ((("items", index), entry) for index, entry in enumerate(body["items"]))


def _json(text: bytes, place: str, consequence: str = "") -> Any:
    try:
        return json.loads(text.decode(), parse_constant=_refused, object_pairs_hook=bounded_object)
    except UnicodeDecodeError:
        raise Malformed(f"{place} is not UTF-8 text{consequence}") from None
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{place} is not JSON ({str(error)[:100]}){consequence}") from None


def _refused(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")
