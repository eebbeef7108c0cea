"""Errors as RFC 9457 problems: what was wrong, where, and what to do; never a traceback.

`type` is stable: the kind of the error behind a fixed prefix. `errors` has the validation faults, one per field.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from shared.contracts.error_text import fault_message
from shared.domain.errors import EyasError, is_disk_fault
from shared.telemetry import metrics

log = logging.getLogger(__name__)

MEDIA = "application/problem+json"
_PARAMETER = re.compile(r"\\\{[^}]*\\\}")
TYPES = "https://eyas.dev/problems/"
_KINDS = {400: "malformed", 401: "unauthenticated", 404: "not-found", 405: "method-not-allowed", 413: "too-large"}
_PLACE = re.compile(
    r"\b[a-z][a-z0-9+.-]*://[^\s,;)'\"]*[^\s,;)'\":.]"  # a URL
    r"|(?<![\w.:])(?:/[^\s/,;:)'\"]+)+/?"  # a path
    r"|\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?"  # an address
    r"|\b[\w.-]*[A-Za-z][\w.-]*:\d{2,5}\b(?!\.)"  # a host's port
)
_OF_USER = re.compile(r"^(/v1/users/|/v1/features/[^/]*/[^/]*/).*", re.DOTALL)
"""Paths that end with the id of a user."""
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def problem(kind: str, status: int, detail: str, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """Returns a problem in ASCII JSON, which can encode whatever a client has sent."""
    document = {"type": TYPES + kind, "title": kind.replace("-", " ").capitalize(), "status": status, "detail": detail, **more}
    return Response(json.dumps(document), status, headers, MEDIA)


def unexpected(request_path: str, error: Exception) -> Response:
    request_path = _without_user(request_path)
    if is_disk_fault(error):
        log.error("request: disk write failed path=%s error=%s", request_path, error)
        return problem("unavailable", 503, "a disk of the platform is full or broken; see the platform's log", {"Retry-After": "1"})
    log.error("request: unexpected error path=%s", request_path, exc_info=error)
    return problem("internal", 500, "internal error; see the platform's log")


def install(app: FastAPI) -> None:
    app.add_exception_handler(EyasError, _ours)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)


def refused(method: str, path: str, error: EyasError) -> Response:
    if error.status >= 500:  # each request fails with 503 during an outage: its cause is logged already
        level = logging.DEBUG if error.status == 503 else logging.WARNING
        log.log(level, "request: failed method=%s path=%s error=%s", method, _without_user(path), error)
    headers = None if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    errors = {"errors": [{"field": field, "message": message} for field, message in error.faults]} if error.faults else {}
    return problem(error.kind, error.status, answer_of(error), headers, **errors)


def _without_user(path: str) -> str:
    """Returns the path for the log: ids of users are left out."""
    return _OF_USER.sub(r"\1...", path)


def answer_of(error: EyasError) -> str:
    """Returns the client's text. Faults of the platform may name paths, URLs and addresses, which only the log shows."""
    return error.answer if error.status < 500 else _PLACE.sub("(see the log)", error.answer)


def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, EyasError)
    return refused(request.method, request.url.path, error)


def _validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = error.errors()
    if any(fault["type"] == "json_invalid" for fault in faults):
        return problem("malformed", 400, "the body is not valid JSON")
    errors = [{"field": _field(fault["loc"]), "message": fault_message(fault)} for fault in faults[:100]]
    return problem("invalid", 422, "; ".join(f"{entry['field']}: {entry['message']}" for entry in errors[:5]), errors=errors)


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        verb = _verb(request)
        if verb is not None:
            return problem("not-found", 404, verb)
        allowed = _allowed(request)
        if allowed:
            message = f"{request.method} is not allowed here; use {', '.join(allowed)}"
            return problem("method-not-allowed", 405, message, {"Allow": ", ".join(allowed)})
    if error.status_code == 400:  # from the framework: nested too deeply, or a number with thousands of digits
        return problem("malformed", 400, "the body is not valid JSON, is nested too deeply, or has a number that is too long")
    if error.status_code == 413:
        metrics.LIMITED.labels("body").inc()
    kind = _KINDS.get(error.status_code, HTTPStatus(error.status_code).phrase.lower().replace(" ", "-"))
    detail = f"not found: {request.scope['path'][:500]}" if error.status_code == 404 else str(error.detail)
    return problem(kind, error.status_code, detail, error.headers)


def _verb(request: Request) -> str | None:
    """Names the known verbs for an unknown one: `/v1/runs/r1:fly` looks like a run's own address, which has no POST."""
    place, colon, verb = request.url.path.rpartition(":")
    if request.method != "POST" or not colon or "/" in verb:
        return None
    verbs = sorted({path.rpartition(":")[2] for path in _paths(request.app) if ":" in path and _fits(path.rpartition(":")[0], place)})
    return f"unknown verb '{verb[:80]}'; use {', '.join(verbs)}" if verbs else None


def _allowed(request: Request) -> list[str]:
    """Returns the methods of all routes at the address; the framework knows only the first route's. `r1:retry` is a verb before it is an
    id."""
    paths = request.app.openapi()["paths"]
    fitting = [path for path in paths if _fits(path, request.scope["path"])]
    nearest = [path for path in fitting if ":" in path] or fitting
    methods = {method for path in nearest for method in paths[path]}
    return [method for method in _METHODS if method.lower() in methods]


def _paths(app: Any) -> list[str]:
    return list(app.openapi()["paths"])


def _fits(pattern: str, place: str) -> bool:
    return re.fullmatch(_PARAMETER.sub("[^/]+", re.escape(pattern)), place) is not None


def _field(place: Sequence[int | str]) -> str:
    """Returns the field as the client wrote it: `body.events.3.user` without the `body`."""
    parts = [str(part) for part in place]
    return ".".join(parts[1:] if len(parts) > 1 and parts[0] in ("body", "query", "path") else parts)
