"""Spec bodies: JSON or YAML text, one parser for both, and every fault of it the client's."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request

from shared.contracts.spec import MAX_SPEC, RecommenderSpec, parse_spec
from shared.domain.errors import Invalid

_SCHEMA = {"$ref": "#/components/schemas/RecommenderSpec"}
SPEC_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": _SCHEMA}, "application/yaml": {"schema": _SCHEMA}}}
}


async def _read(request: Request) -> bytes:
    return await request.body()


def _spec(body: Annotated[bytes, Depends(_read)]) -> RecommenderSpec:
    if len(body) > MAX_SPEC:
        raise HTTPException(413, f"the spec has {len(body)} bytes; at most {MAX_SPEC} are read")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise Invalid("spec: the text is not UTF-8") from None
    return parse_spec(text)


SpecBody = Annotated[RecommenderSpec, Depends(_spec)]
