"""All that the console answers to, read off its routes and its sources: what comes new is probed without being told of."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from starlette.routing import Route

from services.console import Site, pages

SOURCES = sorted((Path(pages.__file__).parent).glob("*.py"))
TEMPLATES = sorted((Path(pages.__file__).parent.parent / "templates").glob("*.html"))
WORDLESS = ("/login", "/theme")
"""Forms that may be sent by who is nobody yet: they change nothing of the platform, and are taken from this origin alone."""
_IDS = {"name": "m", "id": "r1", "version": "1", "number": "1"}


def shown(site: Site) -> list[str]:
    """The paths that a GET asks for."""
    return [route.path for route in _routes(site) if "GET" in (route.methods or ())]


def taken(site: Site) -> list[str]:
    """The paths that a form is sent to."""
    return [route.path for route in _routes(site) if "POST" in (route.methods or ())]


def filled(path: str, text: str | None = None) -> str:
    """With an id, or with that text, in the place of each parameter."""
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda one: quote(text if text is not None else _IDS.get(one.group(1), "1"), safe=""), path)


def queries() -> set[str]:
    """Every parameter that any page asks its address for."""
    return _named(r"query(?:_params)?(?:\.get(?:list)?\(|\[)\"(\w+)\"") | {"cursor", "since", "until", "recommender", "state", "after"}


def fields() -> set[str]:
    """Every field that any action reads off a form."""
    return _named(r"form(?:\.values)?(?:\.get\(|\[)\"(\w+)\"") | {"reason"}


def _named(pattern: str) -> set[str]:
    return {name for source in SOURCES for name in re.findall(pattern, source.read_text(encoding="utf-8"))}


def _routes(site: Site) -> list[Route]:
    return [route for route in site._pages.routes if isinstance(route, Route)]
