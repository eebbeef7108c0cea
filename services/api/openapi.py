"""OpenAPI document: FastAPI's, completed with each route's problems, common field descriptions, real examples and the spec's schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from services.api.access import ANYBODY, HOLDER
from services.api.eventbodies import NDJSON, event_schemas
from services.api.examples import EXAMPLES
from services.api.field_descriptions import FIELDS, PARAMETERS, TAGS
from services.api.item_bodies import SCHEMAS
from services.api.problems import MEDIA
from shared.contracts.spec import RecommenderSpec

_REF = "#/components/schemas/{model}"
_VERBS = frozenset({"get", "put", "post", "patch", "delete"})
_PROBLEM = {
    "type": "object",
    "description": "RFC 9457. `errors` names each field of an invalid request.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "Stable: the kind of problem behind a fixed prefix."},
        "title": {"type": "string", "description": "The kind in words."},
        "status": {"type": "integer", "description": "The answer's status."},
        "detail": {"type": "string", "description": "What was wrong, where, and what to do."},
        "errors": {
            "type": "array",
            "description": "One for each field that is wrong.",
            "items": {
                "type": "object",
                "description": "A field that is wrong.",
                "properties": {
                    "field": {"type": "string", "description": "As the client wrote it."},
                    "message": {"type": "string", "description": "What is wrong with it."},
                },
            },
        },
    },
}
_PROBLEMS = {
    400: "The body, a header, or a cursor can't be understood",
    401: "No token, or one that isn't good",
    403: "The token's role isn't enough",
    404: "There is none, or none that the token sees",
    405: "The address knows other methods: see Allow",
    408: "The request was not complete within the time limit",
    409: "Its state doesn't allow it, or somebody else changes it just now",
    412: "It isn't as If-Match or If-None-Match expects",
    413: "The body is too large",
    414: "The address is too long",
    415: "The body is of a type that isn't read",
    422: "A parameter or a field is wrong",
    429: "More than the token, or the recommender, may cost a second, or more than can be answered: try again later",
    431: "The headers are too large",
    500: "A fault of the platform's, which its log has whole",
    503: "A part that is needed doesn't answer: try again",
}
_OF_EACH_CONNECTION = frozenset({400, 408, 414, 431, 503})
"""Answers before any route is looked up: to malformed, slow or too large requests, and when all connections are in use."""
_NAMED_BY_BODY = frozenset({"apply_recommender", "plan_spec"})
"""Operations whose spec names the recommender: not found for a token that doesn't see it."""
_RETRY = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
_ETAG = {"ETag": {"description": "For If-None-Match and If-Match.", "schema": {"type": "string"}}}
_BEARER = "The first token stands in the file `token` of the platform's home; `POST /v1/tokens` makes others, each with a role and a scope."
_ABOUT = """Trains recommenders, and lets each new version fly a little further at a time.

- A **recommender** is a spec under a name. A **run** trains it, stage by stage; what passes its gates is registered as a **version**,
  and a **rollout** brings it to users step by step, and back when it does harm.
- Every request but health carries `Authorization: Bearer TOKEN`. `x-eyas-role` says which role a route needs.
- What went wrong comes as a problem (RFC 9457): what, where, and what to do.
- Lists come in pages: give `next` as `cursor`, with the same filters. It is opaque.
- `POST` with an `Idempotency-Key` is done once, however often it is sent. `ETag` and `If-Match` guard writes against each other.
- `x-eyas-limits` says how large a body may be, and how many units a request costs. Above a token's rate it is 429 with `Retry-After`.
"""
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Of the client's own choosing: the same request with the same key within 24 hours is answered again, not done again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}


def document(app: FastAPI) -> dict[str, Any]:
    openapi_document = get_openapi(
        title=app.title,
        version=app.version,
        description=_ABOUT,
        routes=app.routes,
        tags=[{"name": name, "description": description} for name, description in TAGS.items()],
        servers=[{"url": "/", "description": "The platform that shows this document"}],
        contact={"name": "Eyas", "url": "https://eyas.dev"},
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    schemas = openapi_document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    spec = RecommenderSpec.json_schema(_REF)
    schemas.update(spec.pop("$defs"))
    schemas.update({"RecommenderSpec": spec, "Problem": _PROBLEM})
    schemas.update(event_schemas() if "/v1/events" in openapi_document["paths"] else {})
    schemas.update(SCHEMAS if "/v1/items/{name}" in openapi_document["paths"] else {})
    openapi_document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer", "description": _BEARER}}
    for path, verb, operation in operations(openapi_document):
        _complete(path, verb, operation)
    for schema in schemas.values():
        for name, field in schema.get("properties", {}).items():
            if "description" not in field and name in FIELDS:
                field["description"] = FIELDS[name]
    used = {tag for _, _, operation in operations(openapi_document) for tag in operation["tags"]}
    openapi_document["tags"] = [tag for tag in openapi_document["tags"] if tag["name"] in used]
    return openapi_document


def operations(openapi_document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in openapi_document["paths"].items():
        for verb, operation in item.items():
            if verb in _VERBS:
                yield path, verb, operation


def _complete(path: str, verb: str, operation: dict[str, Any]) -> None:
    operation.setdefault("description", operation["summary"])
    operation["summary"] = operation["operationId"].replace("_", " ").capitalize()
    if operation.pop("x-eyas-repeatable", False):
        operation.setdefault("parameters", []).append(_KEY)
    for parameter in operation.get("parameters", []):
        parameter.setdefault("description", PARAMETERS.get(parameter["name"], ""))
    is_open = operation["x-eyas-role"] == ANYBODY
    operation["security"] = [] if is_open else [{"token": []}]
    responses = operation["responses"]
    responses.pop("422", None)
    for status in sorted(_possible(path, verb, operation)):
        content = {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        responses[str(status)] = {"description": _PROBLEMS[status], "content": content}
        if status in (429, 503):
            responses[str(status)]["headers"] = _RETRY
        if status == 401:
            responses["401"]["headers"] = {"WWW-Authenticate": {"description": "Bearer.", "schema": {"type": "string"}}}
        if status == 405:
            responses["405"]["headers"] = {"Allow": {"description": "The methods.", "schema": {"type": "string"}}}
    if "304" in responses:
        responses["200"]["headers"] = _ETAG
        responses["304"]["headers"] = _ETAG
    for content in operation.get("requestBody", {}).get("content", {}).values():
        content["schema"] = _if_given(content["schema"])
    example = EXAMPLES.get(operation["operationId"], {})
    if "body" in example:
        for kind, content in operation["requestBody"]["content"].items():
            lines = "".join(f"{json.dumps(entry)}\n" for many in example["body"].values() for entry in many) if kind == NDJSON else ""
            content["example"] = lines or example["body"]
    if "answer" in example:
        good = next(status for status in responses if status.startswith("2"))
        responses[good]["content"]["application/json"]["example"] = example["answer"]


def _if_given(schema: dict[str, Any]) -> dict[str, Any]:
    """Removes null from the schema of an optional body: generated clients can't write that null."""
    choices = [choice for choice in schema.get("anyOf", []) if choice != {"type": "null"}]
    return choices[0] if len(choices) == 1 else schema


def _possible(path: str, verb: str, operation: Mapping[str, Any]) -> set[int]:
    """Returns the problem statuses of the middleware and of the operation's parameters."""
    if operation["x-eyas-role"] == ANYBODY:
        return {*_OF_EACH_CONNECTION, 405, 413, 422}
    names = {parameter["name"].lower() for parameter in operation.get("parameters", [])}
    statuses = {*_OF_EACH_CONNECTION, 401, 405, 413, 422, 429, 500}
    if operation["x-eyas-role"] != HOLDER:
        statuses.add(403)
    if "{" in path or names & {"recommender", "with"} or operation["operationId"] in _NAMED_BY_BODY:
        statuses.add(404)
    if verb != "get":
        statuses.add(409)
    if names & {"if-match", "if-none-match"}:
        statuses.add(412)
    kinds = operation.get("requestBody", {}).get("content", {}).keys()
    if kinds and kinds <= {"application/json", NDJSON}:
        statuses.add(415)
    return statuses
