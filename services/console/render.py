"""From what a page knows to HTML. Everything is escaped: what comes from specs, logs and events is text and stays text."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote, unquote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from services.console import assets, charts, formatting
from services.console.session import inside, split, token_of, word
from shared.domain.segments import way

SAID = "eyas-said"
THEME = "eyas-theme"
THEMES = ("light", "dark")
LIVE = "x-eyas-live"
"""Of a request by a page that is open and wants to know what is new: it needs no frame."""


@dataclass(frozen=True)
class Fault:
    status: int
    title: str
    detail: str
    errors: tuple[dict[str, Any], ...] = ()
    unsaved_text: str = ""
    """What somebody had typed, which is nowhere else any more."""


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("services.console"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters.update(formatting.FILTERS)
    made.globals.update(asset=assets.address, charts=charts, quote=lambda text: quote(str(text), safe=""), way=way)
    return made


def page(request: Request, template: str, every: float | None = None, status: int = 200, **context: Any) -> Response:
    """`every`: after how many seconds an open page asks again what is new; None for never."""
    token = token_of(request)
    live = request.headers.get(LIVE) is not None
    message = unquote(request.cookies.get(SAID, ""))
    theme = request.cookies.get(THEME, "")
    text = (
        _environment()
        .get_template(template)
        .render(
            frame="live.html" if live else "base.html",
            every=every,
            path=request.url.path,
            return_path=_return_path(request),
            query=request.query_params,
            who=getattr(request.state, "who", None),
            word=word(token) if token else "",
            once=lambda: secrets.token_urlsafe(18),
            message=message,
            theme=theme if theme in THEMES else "",
            **context,
        )
    )
    response = Response(text, status, media_type="text/html; charset=utf-8", headers={"Cache-Control": "no-store", "Vary": "Cookie"})
    if message and not live:
        response.delete_cookie(SAID)
    return response


def macro(template: str, name: str, *arguments: Any) -> str:
    """Renders a macro of a template, escaped like a page."""
    rendered: Markup = getattr(_environment().get_template(template).module, name)(*arguments)
    return rendered


def fault(request: Request, problem: Fault) -> Response:
    return page(request, "fault.html", status=problem.status, fault=problem)


def onwards(path: str, message: str = "") -> Response:
    """To a page that is read anew, which says what was done."""
    response = Response(status_code=303, headers={"Location": quote(inside(path), safe="/:?=&%#,~+-._"), "Cache-Control": "no-store"})
    if message:
        response.set_cookie(SAID, quote(message[:500]), 60, httponly=True, samesite="lax")
    return response


def _return_path(request: Request) -> str:
    """What can be asked for again: of a form's answer, the page that the form was on."""
    if request.method == "POST":
        return inside(split(request.headers.get("referer", "")).path)
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")
