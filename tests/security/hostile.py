"""An API in whose answers every text that its schemas leave free is markup: names, reasons, specs, log lines, attributes, keys of maps.

It is asked by the real console, whose pages are looked at by a real browser. Each place has a number of its own, so that it can be
told which of them a page has shown, and which one was executed.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from services.api.examples import EXAMPLES
from services.api.openapi import operations
from services.listening import bind
from shared.domain.sessions import session_text

MARKUP = (
    "\"'><img src=x onerror=pwned({n})><svg onload=pwned({n})></title></textarea></pre></script><script>pwned({n})</script>"
    '<a href="javascript:pwned({n})">x</a><p style="color:red" onclick=pwned({n})>{{{{7*7777777}}}}${{7*7777777}}'
)
ADDRESS = "javascript:pwned({n})"
CALCULATED = "54444439"
"""What a template in a template would make of it."""
_KEPT = frozenset({"state", "stage", "kind", "verdict"})
"""What pages choose by: with markup in their place a page shows little. They are markup in a pass of their own."""


class Places:
    """Every place of every answer, by the number that stands in its text."""

    def __init__(self, text: str = MARKUP, kept: frozenset[str] = _KEPT) -> None:
        self._text = text
        self.kept = kept
        self._numbers: dict[str, int] = {}
        self.turn = 0
        """Rises so that an open page has something new to show."""

    def __call__(self, place: str) -> str:
        number = self._numbers.setdefault(place, len(self._numbers) + 1000)
        return self._text.format(n=f"{number}+{self.turn}" if self.turn else number)

    def shown(self, content: str) -> set[str]:
        numbers = self._numbers.copy()  # the server's thread adds to it, when an open page refreshes
        return {place for place, number in numbers.items() if f"pwned({number}" in content}

    def __len__(self) -> int:
        return len(self._numbers)


class HostileApi:
    """Takes every request for what its documents say of it, and answers with markup."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._schemas = document["components"]["schemas"]
        self.places = Places()
        self.status = 0
        """If not 0: every question but who asks is refused with it."""
        routes = [Route(_any(path), self._endpoint(operation), methods=[verb.upper()]) for path, verb, operation in operations(document)]
        routes.sort(key=lambda route: -len(re.sub(r"\{[^}]*\}", "", route.path)))  # what is named comes before what stands for it
        self.app = Starlette(routes=routes)

    def _endpoint(self, operation: Mapping[str, Any]) -> Any:
        name = operation["operationId"]
        status, answer = next((int(code), one) for code, one in operation["responses"].items() if code.startswith("2"))
        content = answer.get("content", {})

        async def endpoint(request: Request) -> Response:
            if name == "whoami":
                rights = {"token": "t0", "role": "admin", "recommenders": None, "expires_at": None, "renewable_at": "2026-01-01T00:00:00Z"}
                return JSONResponse({"name": self.places(name)} | rights)
            if name in ("start_session", "renew_session"):
                text = session_text("s0", b"s" * 16, b"s" * 16)
                return JSONResponse({"session": text, "expires_at": "2126-01-01T00:00:00Z"}, status)
            if self.status:
                said = {
                    "detail": self.places("problem"),
                    "errors": [{"field": self.places("problem.field"), "message": self.places("problem.message")}],
                }
                return JSONResponse(said, self.status)
            if "text/event-stream" in content:
                told = json.dumps({"text": self.places(f"{name}.text")})
                said = json.dumps({"detail": self.places(f"{name}.problem")})
                return Response(f"event: log\ndata: {told}\n\nevent: problem\ndata: {said}\n\n", media_type="text/event-stream")
            if not content:
                return Response(status_code=status)
            schema = content["application/json"].get("schema", {})
            return JSONResponse(self._of(schema, EXAMPLES.get(name, {}).get("answer"), name), status)

        return endpoint

    def _of(self, schema: Mapping[str, Any], example: Any, place: str) -> Any:
        """The example with markup in it; where there is none, something that the schema allows."""
        schema = self._chosen(schema, example)
        if "const" in schema or "enum" in schema or schema.get("format") in ("date-time", "date"):
            return example if example is not None else schema.get("const", schema.get("enum", ["2026-01-01T00:00:00Z"])[0])
        kind = schema.get("type")
        if "properties" in schema:
            given = example if isinstance(example, dict) else {}
            return {name: self._of(inner, given.get(name), f"{place}.{name}") for name, inner in schema["properties"].items()}
        if kind == "array":
            items = example if isinstance(example, list) and example else [None]
            return [self._of(schema.get("items", {}), one, f"{place}[]") for one in items]
        if kind == "object":
            return self._map(schema.get("additionalProperties", True), example, place)
        if kind in ("integer", "number"):
            return example if example is not None else 1
        if kind == "boolean":
            return example if example is not None else True
        if kind == "null":
            return None
        return self._free(example, place)

    def _chosen(self, schema: Mapping[str, Any], example: Any) -> Mapping[str, Any]:
        while True:
            if "$ref" in schema:
                schema = self._schemas[schema["$ref"].rsplit("/", 1)[-1]]
            elif "anyOf" in schema or "oneOf" in schema:
                among = [self._chosen(one, example) for one in schema.get("anyOf", schema.get("oneOf", []))]
                full = [one for one in among if one.get("type") != "null"]
                schema = next((one for one in full if _fits(one, example)), full[0])
            else:
                return schema

    def _map(self, inner: Any, example: Any, place: str) -> dict[str, Any]:
        """Its own keys too, and one that is markup."""
        given = example if isinstance(example, dict) and example else {}
        schema = inner if isinstance(inner, dict) else {}
        found = {name: self._of(schema, value, f"{place}.{name}") for name, value in given.items()}
        first = next(iter(given.values()), None)
        return found | {self.places(f"{place}.key"): self._of(schema, first, f"{place}.value")}

    def _free(self, example: Any, place: str) -> Any:
        if isinstance(example, str) or example is None:
            if place.rsplit(".", 1)[-1] in self.places.kept or _is_moment(example):
                return example if example is not None else "running"
            return self.places(place)
        if isinstance(example, dict):
            return {name: self._free(value, f"{place}.{name}") for name, value in example.items()}
        if isinstance(example, list):
            return [self._free(value, f"{place}[]") for value in example]
        return example


@contextmanager
def listening(app: ASGIApp) -> Iterator[str]:
    """The address of a server of it, on loopback, in a thread of its own."""
    with bind("a page", 0, 0, "127.0.0.1") as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)


def _any(path: str) -> str:
    """With anything in the place of an id, slashes too."""
    return re.sub(r"\{(\w+)\}", r"{\1:path}", path)


def _fits(schema: Mapping[str, Any], example: Any) -> bool:
    kinds: dict[str, type | tuple[type, ...]] = {
        "string": str,
        "array": list,
        "object": dict,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
    }
    return example is not None and isinstance(example, kinds.get(schema.get("type", ""), object))


def _is_moment(text: Any) -> bool:
    try:
        datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return False
    return True
