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
        "type": {"type": "string", "description": "Kind of the problem after a fixed prefix; it never changes."},
        "title": {"type": "string", "description": "Kind of the problem in words."},
        "status": {"type": "integer", "description": "Status of the answer."},
        "detail": {"type": "string", "description": "What is wrong, where, and what to do."},
        "errors": {
            "type": "array",
            "description": "Faults, one for each invalid field.",
            "items": {
                "type": "object",
                "description": "Invalid field.",
                "properties": {
                    "field": {"type": "string", "description": "Name of the field, as the client wrote it."},
                    "message": {"type": "string", "description": "Fault of the field."},
                },
            },
        },
    },
}
_PROBLEMS = {
    400: "The body, a header or a cursor is malformed",
    401: "The token is missing or not valid",
    403: "The token's role or scope is not sufficient",
    404: "The resource does not exist, or is outside the token's scope",
    405: "The method is not allowed here; Allow lists the allowed ones",
    408: "The request was not complete within the time limit",
    409: "The state of the resource does not allow this, or another request changes it now",
    412: "The revision is not the one that If-Match or If-None-Match expects",
    413: "The body is too large",
    414: "The address is too long",
    415: "The type of the body is not supported",
    422: "A parameter or a field is not valid",
    429: "Above the rate of the token or of the recommender, or above the capacity: try again later",
    431: "The headers are too large",
    500: "Fault of the platform; see its log",
    503: "A part of the platform does not answer: try again",
}
_OF_EACH_CONNECTION = frozenset({400, 408, 414, 431, 503})
"""Answers before any route is looked up: to malformed, slow or too large requests, and when all connections are in use."""
_NAMED_BY_BODY = frozenset({"apply_recommender", "plan_spec"})
"""Operations whose spec names the recommender: not found for a token that doesn't see it."""
_RETRY = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
_ETAG = {"ETag": {"description": "Tag of the answer, for If-None-Match and If-Match.", "schema": {"type": "string"}}}
_BEARER = "The first token is in the file `token` of the platform's home; `POST /v1/tokens` creates others, each with a role and a scope."
_ABOUT = """Trains recommenders and rolls each new version out in small, judged steps.

- A **recommender** is a named spec. A **run** trains it, stage by stage. If its gates pass, the run registers a **version**, and a
  **rollout** brings the version to users step by step, or back if it does harm.
- Every request except health checks sends `Authorization: Bearer TOKEN`. `x-eyas-role` is the role that a route needs.
- Errors are problems (RFC 9457): what is wrong, where, and what to do.
- Lists have pages: send `next` as `cursor`, with the same filters. A cursor is opaque.
- `POST` with an `Idempotency-Key` acts once, even if it is sent again. `ETag` and `If-Match` prevent lost updates.
- `x-eyas-limits` has the largest body and the cost of a request in units. Above a token's rate the answer is 429 with `Retry-After`.
"""
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Key that the client chooses: a repeated request with it within 24 hours gets the first answer and acts once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}


def document(app: FastAPI) -> dict[str, Any]:
    openapi_document = get_openapi(
        title=app.title,
        version=app.version,
        description=_ABOUT,
        routes=app.routes,
        tags=[{"name": name, "description": description} for name, description in TAGS.items()],
        servers=[{"url": "/", "description": "Platform that serves this document"}],
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
            responses["401"]["headers"] = {"WWW-Authenticate": {"description": "Scheme: Bearer.", "schema": {"type": "string"}}}
        if status == 405:
            responses["405"]["headers"] = {"Allow": {"description": "Allowed methods.", "schema": {"type": "string"}}}
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
