"""API reference: the OpenAPI document of this process as a page without scripts."""

from __future__ import annotations

import json
import shlex
from typing import Any
from weakref import WeakKeyDictionary

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from services.console.api import Api, Json
from services.console.page import Pages
from services.console.render import macro, page

pages = Pages()


_rendered: WeakKeyDictionary[ASGIApp, Markup] = WeakKeyDictionary()
"""Rendered page by API: rendering takes 0.3 s, and a process's document never changes."""


@pages.page("/docs")
async def reference(request: Request, api: Api) -> Response:
    if api.app not in _rendered:
        _rendered[api.app] = await run_in_threadpool(_render, await api.get("/openapi.json"))
    return page(request, "reference.html", operations=_rendered[api.app])


def _render(document: Json) -> Markup:
    operations = [_operation(path, method, value) for path, methods in document["paths"].items() for method, value in methods.items()]
    groups = [(tag, [operation for operation in operations if tag["name"] in operation["tags"]]) for tag in document["tags"]]
    return macro("operations.html", "operations", document, groups, sorted(document["components"]["schemas"].items()))


def _operation(path: str, method: str, operation: Json) -> Json:
    contents = operation.get("requestBody", {}).get("content", {})
    return operation | {
        "path": path,
        "method": method.upper(),
        "contents": contents,
        "curl": _curl(path, method.upper(), operation, contents),
    }


def _curl(path: str, method: str, operation: Json, contents: Json) -> str:
    """Example request. Path parameters are in capitals; EYAS_URL and EYAS_TOKEN are the variables of `eyas`."""
    address = f'"$EYAS_URL{path.translate({ord("{"): None, ord("}"): None})}"'
    for name in (parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "path"):
        address = address.replace(f"/{name}", f"/{name.upper()}").replace(f":{name}", f":{name.upper()}")
    lines = [f"curl -X {method} {address}"]
    if operation["security"]:
        lines.append('-H "Authorization: Bearer $EYAS_TOKEN"')
    for kind, content in list(contents.items())[:1]:
        lines.append(f"-H {shlex.quote(f'Content-Type: {kind}')}")
        lines.append(f"--data-binary {shlex.quote(_text(content.get('example', {})))}")
    return " \\\n  ".join(lines)


def _text(example: Any) -> str:
    return example if isinstance(example, str) else json.dumps(example, ensure_ascii=False)
