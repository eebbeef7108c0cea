"""Spec bodies: JSON or YAML, read by one parser; every fault is the client's."""

from __future__ import annotations

import json
from typing import Annotated, Any

from anyio import to_thread
from fastapi import Depends, Request

from services.api.json_bodies import is_doubtful, refuse_unkeepable
from shared.contracts.spec import RecommenderSpec, parse_spec
from shared.domain.errors import Invalid

_SCHEMA = {"$ref": "#/components/schemas/RecommenderSpec"}
SPEC_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": _SCHEMA}, "application/yaml": {"schema": _SCHEMA}}}
}


async def _spec(request: Request) -> RecommenderSpec:
    """Parses one spec at a time: parsing occupies the interpreter, which all threads share. Waiting requests hold no thread."""
    return await to_thread.run_sync(_parse, await request.body(), limiter=request.app.state.spec_readers)


def _parse(body: bytes) -> RecommenderSpec:
    if is_doubtful(body):
        refuse_unkeepable(_as_json(body))
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise Invalid("spec: the text is not UTF-8") from None
    return parse_spec(text)


def _as_json(body: bytes) -> Any:
    """Returns None if the body isn't JSON: its faults are then located in the text."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


SpecBody = Annotated[RecommenderSpec, Depends(_spec)]
