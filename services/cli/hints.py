"""Suggestions for names and ids that do not exist."""

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
    """Adds the closest existing name or id to an error line."""
    if (match := _NAMED.match(path)) and f"'{match[1]}'" in line:
        names = _of(peek("/v1/recommenders", limit=_MOST), "name")
        if match[1] in names:  # the recommender exists; something below it does not
            return line
        near = meant(match[1], [*names, *_of(peek("/v1/recommenders", limit=_MOST, prefix=match[1][0]), "name")])
        few = f"known: {', '.join(names)}" if 0 < len(names) <= _FEW else "list recommenders with `eyas recommenders`"
        return f"{line}: {near or few}"
    if (match := _RUN.match(path)) and f"'{match[1]}'" in line:
        near = meant(match[1], _of(peek("/v1/runs", limit=_MOST), "id"))
        return f"{line}: {near or 'list runs with `eyas runs NAME`'}"
    return line


def _of(page: Any, field: str) -> list[str]:
    try:
        return [str(entry[field]) for entry in page["items"]]
    except (KeyError, TypeError):
        return []
