"""Renders templates to HTML. Everything is escaped: text of specs, logs and events stays text."""

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
from services.console.cell_labels import label_cells
from services.console.session import inside, session_of, split, word
from shared.domain.segments import way

FLASH_COOKIE = "eyas-said"
THEME = "eyas-theme"
THEMES = ("light", "dark")
LIVE = "x-eyas-live"
"""Header of a refresh by an open page, which needs no frame."""


@dataclass(frozen=True)
class PageFault:
    status: int
    title: str
    detail: str
    errors: tuple[dict[str, Any], ...] = ()
    unsaved_text: str = ""
    """Form text that would otherwise be lost."""


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("services.console"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters.update(formatting.FILTERS)
    made.globals.update(asset=assets.address, charts=charts, quote=lambda text: quote(str(text), safe=""), way=way)
    return made


def page(request: Request, template: str, every: float | None = None, status: int = 200, **context: Any) -> Response:
    """`every` is the refresh interval in seconds; None for no refresh."""
    session = session_of(request)
    live = request.headers.get(LIVE) is not None
    message = unquote(request.cookies.get(FLASH_COOKIE, ""))
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
            word=word(session) if session else "",
            once=lambda: secrets.token_urlsafe(18),
            message=message,
            theme=theme if theme in THEMES else "",
            **context,
        )
    )
    response = Response(
        label_cells(text), status, media_type="text/html; charset=utf-8", headers={"Cache-Control": "no-store", "Vary": "Cookie"}
    )
    if message and not live:
        response.delete_cookie(FLASH_COOKIE)
    return response


def macro(template: str, name: str, *arguments: Any) -> Markup:
    """Renders a macro of a template, escaped like a page."""
    rendered: Markup = getattr(_environment().get_template(template).module, name)(*arguments)
    return rendered


def login_page(request: Request, next: str, wrong: str = "", status: int = 401) -> Response:
    """`wrong` is the reason of a refused sign-in; without it the status is 200."""
    has_provider = request.state.provider is not None
    return page(request, "login.html", status=status if wrong else 200, next=next, wrong=wrong, has_provider=has_provider)


def fault(request: Request, problem: PageFault) -> Response:
    return page(request, "fault.html", status=problem.status, fault=problem)


def onwards(path: str, message: str = "") -> Response:
    """Redirects to a page, which shows the message once."""
    response = Response(status_code=303, headers={"Location": quote(inside(path), safe="/:?=&%#,~+-._"), "Cache-Control": "no-store"})
    if message:
        response.set_cookie(FLASH_COOKIE, quote(message[:500]), 60, httponly=True, samesite="lax")
    return response


def _return_path(request: Request) -> str:
    """Address to return to; after a form, the page of the form."""
    if request.method == "POST":
        return inside(split(request.headers.get("referer", "")).path)
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")
