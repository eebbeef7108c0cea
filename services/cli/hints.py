"""What a name or an id that isn't there was perhaps meant to be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from services.cli.faults import meant

_NAMED = re.compile(r"/v1/(?:recommenders|recommend|similar|items|features)/([^/:]+)")
_RUN = re.compile(r"/v1/runs/([^/:]+)")
_MOST = 200
_FEW = 8


def added(line: str, path: str, peek: Callable[..., Any]) -> str:
    """The line and, where the platform knows a name or an id like it, that one."""
    if (found := _NAMED.match(path)) and f"'{found[1]}'" in line:
        known = _of(peek("/v1/recommenders", limit=_MOST), "name")
        if found[1] in known:  # it is there, and something of it isn't
            return line
        near = meant(found[1], [*known, *_of(peek("/v1/recommenders", limit=_MOST, prefix=found[1][0]), "name")])
        few = f"there is {', '.join(known)}" if 0 < len(known) <= _FEW else "`eyas recommenders` lists them"
        return f"{line}: {near or few}"
    if (found := _RUN.match(path)) and f"'{found[1]}'" in line:
        near = meant(found[1], _of(peek("/v1/runs", limit=_MOST), "id"))
        return f"{line}: {near or '`eyas runs NAME` lists those of a recommender'}"
    return line


def _of(page: Any, field: str) -> list[str]:
    try:
        return [str(one[field]) for one in page["items"]]
    except (KeyError, TypeError):
        return []
