"""Bodies of events: a JSON batch, accepted as a whole or not at all, or NDJSON, accepted line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic_core import from_json

from services.api.access import is_json
from services.api.json_bodies import check_values, is_doubtful, parse
from services.api.rate_limits import BULK
from shared.contracts.error_text import fault_message
from shared.contracts.events import Action, Event, PageView, Shown, event_model
from shared.contracts.text import unkeepable

NDJSON = "application/x-ndjson"
MOST_EVENTS = 1_000
MOST_LINES = 10_000
MAX_LINE = 64 * 1024
LISTED = 100
"""Faults that an answer lists."""
_MODELS = (Action, PageView, Shown)
_REF = "#/components/schemas/{}"
_EVENT = {"anyOf": [{"$ref": _REF.format(model.__name__)} for model in _MODELS]}
_BATCH = {
    "type": "object",
    "title": "Batch",
    "required": ["events"],
    "additionalProperties": False,
    "properties": {"events": {"type": "array", "maxItems": MOST_EVENTS, "items": _EVENT}},
}
_LINES = {"type": "string", "description": f"One event per line, as in the JSON batch; at most {MOST_LINES} lines."}
EVENTS_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": _REF.format("Batch")}}, NDJSON: {"schema": _LINES}},
    }
}


def event_schemas() -> dict[str, Any]:
    """Returns the schemas that the body's schema names."""
    return {"Batch": _BATCH, **{model.__name__: model.model_json_schema() for model in _MODELS}}


@dataclass(frozen=True)
class InvalidLine:
    """Line without a valid event."""

    line: int
    message: str


@dataclass(frozen=True)
class ReceivedEvents:
    events: Sequence[Event]
    lines: Sequence[int] | None
    """NDJSON line of each event; None for a batch."""
    refused: Sequence[InvalidLine] = ()


async def _read(request: Request) -> tuple[str, bytes]:
    return request.headers.get("content-type", ""), await request.body()


def _sent(content: Annotated[tuple[str, bytes], Depends(_read)]) -> ReceivedEvents:
    kind, body = content
    if kind.partition(";")[0].strip().lower() == NDJSON:
        return _of_lines(body)
    if body and not is_json(kind):
        raise HTTPException(415, f"the body's type is not supported: send it with 'Content-Type: application/json', or {NDJSON}")
    return _of_batch(body)


EventsBody = Annotated[ReceivedEvents, Depends(_sent)]


def _of_batch(body: bytes) -> ReceivedEvents:
    value = parse(body or b"null", BULK.values)
    if not isinstance(value, dict):
        raise _invalid("model_attributes_type", (), "expected an object", value)
    if unknown := sorted(set(value) - {"events"}):
        raise _invalid("extra_forbidden", (unknown[0],), "unknown field")
    events = value.get("events")
    if "events" not in value:
        raise _invalid("missing", ("events",), "Field required")
    if not isinstance(events, list):
        raise _invalid("list_type", ("events",), "expected a list", events)
    if len(events) > MOST_EVENTS:
        raise _invalid("list", ("events",), f"expected at most {MOST_EVENTS} events, got {len(events)}: send them in parts")
    good: list[Event] = []
    faults: list[dict[str, Any]] = []
    for index, document in enumerate(events):
        try:
            good.append(event_model(document).model_validate(document))
        except ValidationError as error:
            faults += [{**fault, "loc": ("body", "events", index, *fault["loc"])} for fault in error.errors(include_url=False)]
        if len(faults) >= LISTED:
            break
    if faults:
        raise RequestValidationError(faults)
    return ReceivedEvents(good, None)


def _of_lines(body: bytes) -> ReceivedEvents:
    check_values(body, BULK.values)
    lines = body.split(b"\n")
    if len(lines) > MOST_LINES + 1:
        raise HTTPException(413, f"the body has more than {MOST_LINES} lines: send it in parts")
    events: list[Event] = []
    places: list[int] = []
    refused: list[InvalidLine] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            parsed = _of_line(line, len(refused) < LISTED)
            if isinstance(parsed, str):
                refused.append(InvalidLine(number, parsed))
            else:
                events.append(parsed)
                places.append(number)
    return ReceivedEvents(events, places, refused)


def _of_line(line: bytes, explained: bool) -> Event | str:
    """Returns the event, or what is wrong with it: without details unless `explained`, because an answer lists only the first faults."""
    if len(line) > MAX_LINE:
        return f"the line has {len(line)} bytes; the limit is {MAX_LINE}"
    try:
        value = from_json(line)
    except ValueError as error:
        return f"not JSON: {error}"
    if is_doubtful(line) and (bad := unkeepable(value)):
        place, message = bad[0]
        return f"{'.'.join(map(str, place))}: {message}" if place else message
    try:
        return event_model(value).model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False) if explained else []
        return "; ".join(": ".join(filter(None, (".".join(map(str, fault["loc"])), fault_message(fault)))) for fault in faults[:5])


def _invalid(kind: str, place: tuple[str, ...], message: str, value: Any = None) -> RequestValidationError:
    return RequestValidationError([{"type": kind, "loc": ("body", *place), "msg": message, "input": value}])
