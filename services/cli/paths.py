"""API paths of names and ids, which are checked and quoted so that none can change the path."""

from __future__ import annotations

import re

from services.cli.exit_codes import Exit
from services.cli.faults import ReportedError
from shared.domain.feature_values import VIEW
from shared.domain.naming import NAME
from shared.domain.segments import segment

_ID = re.compile(r"[a-z0-9-]{1,80}")


def checked_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ReportedError(f"{name!r} is not a recommender name: use a-z, 0-9 and dashes, a letter first, at most 40", Exit.WRONG)
    return name


def checked_view(view: str) -> str:
    if not re.fullmatch(VIEW, view):
        raise ReportedError(f"{view!r} is not a view name: use a-z, 0-9 and underscores, a letter first, at most 60", Exit.WRONG)
    return view


def checked_id(id: str) -> str:
    if not _ID.fullmatch(id):
        raise ReportedError(f"{id!r} is not an id: use a-z, 0-9 and dashes, at most 80", Exit.WRONG)
    return id


def checked_id_or_none(id: str | None) -> str | None:
    return None if id is None else checked_id(id)


def recommender(name: str, rest: str = "") -> str:
    return f"/v1/recommenders/{checked_name(name)}{rest}"


def recommend(name: str) -> str:
    return f"/v1/recommend/{checked_name(name)}"


def events(name: str) -> str:
    return f"/v1/events/{checked_name(name)}"


def similar(name: str) -> str:
    return f"/v1/similar/{checked_name(name)}"


def items(name: str, item: str | None = None) -> str:
    return f"/v1/items/{checked_name(name)}" + ("" if item is None else f"/{segment(item)}")


def features(name: str, view: str | None = None, key: str | None = None) -> str:
    inner = "" if view is None else f"/{checked_view(view)}" + ("" if key is None else f"/{segment(key)}")
    return f"/v1/features/{checked_name(name)}{inner}"


def run(id: str, rest: str = "") -> str:
    return f"/v1/runs/{checked_id(id)}{rest}"


def user(id: str) -> str:
    return f"/v1/users/{segment(id)}"


def token(id: str) -> str:
    return f"/v1/tokens/{checked_id(id)}"


def rollout(id: str, rest: str = "") -> str:
    return f"/v1/rollouts/{checked_id(id)}{rest}"


def tag(name: str, version: int, tag: str) -> str:
    return recommender(name, f"/versions/{version}/tags/{segment(tag)}")


def card(name: str, version: str) -> str:
    return recommender(name, f"/versions/{segment(version)}/card")
