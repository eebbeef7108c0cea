"""Versions by number, alias or tag; their tags; and what served when, by whose decision."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime

from services.api.access import RoleRouter, Who
from services.api.dependencies import ControlParts, With
from services.api.paging import Page, Pages
from services.api.views import ServedView, VersionView
from shared.contracts.card import CARD, Card
from shared.contracts.strict import read
from shared.domain.access import Role
from shared.domain.errors import Invalid, NotFound
from shared.domain.naming import aliases, check_tag, number_of
from shared.ports import Version

room = RoleRouter("versions")

At = Annotated[AwareDatetime | None, Query(description="Only the entry that served at this time, such as 2026-01-01T12:00:00Z.")]


@room.get("/v1/recommenders/{name}/versions", Role.VIEWER)
def list_versions(parts: With, name: str, pages: Pages) -> Page[VersionView]:
    """Lists versions, the newest first."""
    parts.recommenders.get(name)
    after = pages.number
    versions = sorted(
        (version for version in parts.registry.list(name) if after is None or version.number < after), key=lambda version: -version.number
    )
    return pages.page(versions, lambda version: version.number, _viewer(parts, name))


@room.get("/v1/recommenders/{name}/versions/{version}", Role.VIEWER)
def get_version(parts: With, name: str, version: str) -> VersionView:
    """Returns a version by number, by alias (serving, previous, candidate) or by tag."""
    parts.recommenders.get(name)
    named = aliases(parts.routes.get(name), parts.routes.previous(name))
    number = number_of(name, version, named, parts.registry.tags(name))
    return _viewer(parts, name)(parts.registry.get(name, number))


@room.get("/v1/recommenders/{name}/versions/{version}/card", Role.VIEWER)
def get_card(parts: With, name: str, version: str) -> Card:
    """Returns the model card: data, metrics beside the baseline's, gates with reasons, lineage, sizes. By number, alias or tag."""
    parts.recommenders.get(name)
    named = aliases(parts.routes.get(name), parts.routes.previous(name))
    registered = parts.registry.get(name, number_of(name, version, named, parts.registry.tags(name)))
    label = f"version {registered.number} of '{name}'"
    if registered.number in parts.registry.collected(name):
        raise NotFound(f"{label} was collected: its card is deleted with its files")
    if CARD not in registered.files:
        raise NotFound(f"{label} has no card; start a new run to get one")
    return read(Card, json.loads(parts.artifacts.read(registered.files[CARD])), f"{CARD} of {label}")


@room.put("/v1/recommenders/{name}/versions/{version}/tags/{tag}", Role.OPERATOR)
def put_tag(parts: With, who: Who, name: str, version: str, tag: str) -> VersionView:
    """Puts a tag on a version. A tag names one version at a time: putting it elsewhere moves it. A tagged version keeps its files."""
    number = _number(parts, name, version)
    parts.registry.tag(name, number, check_tag(tag), parts.clock.now(), who.name)
    return _viewer(parts, name)(parts.registry.get(name, number))


@room.delete("/v1/recommenders/{name}/versions/{version}/tags/{tag}", Role.OPERATOR)
def delete_tag(parts: With, name: str, version: str, tag: str) -> VersionView:
    """Removes a tag from a version."""
    number = _number(parts, name, version)
    parts.registry.untag(name, number, check_tag(tag))
    return _viewer(parts, name)(parts.registry.get(name, number))


@room.get("/v1/recommenders/{name}/history", Role.VIEWER)
def list_served(parts: With, name: str, pages: Pages, at: At = None) -> Page[ServedView]:
    """Lists what served when and by whose decision, the newest first."""
    parts.recommenders.get(name)
    if at is not None:
        return _then(parts, name, at)
    return pages.page(parts.routes.history(name, pages.more, pages.number), lambda entry: entry.route.generation, ServedView.entry)


def _then(parts: ControlParts, name: str, at: datetime) -> Page[ServedView]:
    entry = parts.routes.at(name, at)
    return Page(items=[ServedView.entry(entry)] if entry else [], next=None)


def _number(parts: ControlParts, name: str, word: str) -> int:
    """Accepts only numbers for writes: an alias may mean another version a moment later."""
    parts.recommenders.get(name)
    if not word.isdecimal():
        raise Invalid(f"version {word[:80]!r}: expected a number; an alias may name another version by now")
    return number_of(name, word, {}, {})


def _viewer(parts: ControlParts, name: str) -> Callable[[Version], VersionView]:
    named = aliases(parts.routes.get(name), parts.routes.previous(name))
    tags, collected = parts.registry.tags(name), parts.registry.collected(name)

    def view(version: Version) -> VersionView:
        return VersionView.of(
            version,
            [alias for alias, number in named.items() if number == version.number],
            [tag for tag, number in tags.items() if number == version.number],
            collected.get(version.number),
        )

    return view
