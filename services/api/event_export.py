"""Stored events over HTTP, page by page, in the form in which `POST /v1/events` takes them."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field

from services.api.access import RoleRouter
from services.api.dependencies import With
from services.api.paging import Page, Pages
from shared.contracts.events import Action
from shared.domain.access import Role
from shared.domain.errors import Malformed
from shared.ports import StoredEvent

room = RoleRouter("online")


class ExportedEvent(Action):
    """Action of a user, as it is stored."""

    id: str = Field(description="The event's id; a made-up one, which never changes, if the client set none.")


@room.get("/v1/events/{name}", Role.OPERATOR, response_model_exclude_none=True)
def export_events(parts: With, name: str, pages: Pages) -> Page[ExportedEvent]:
    """Lists the stored actions of users, the oldest first. They can be sent to another recommender: each counts once. Page views are left
    out, because only the hash of a page is stored."""
    parts.recommenders.get(name)
    return pages.page(parts.days.page(name, pages.more, _place(pages.text)), lambda stored: "{}.{}".format(*stored.place), _view)


def _place(cursor: str | None) -> tuple[int, int] | None:
    if cursor is None:
        return None
    match = re.fullmatch(r"(-?\d{1,18})\.(\d{1,18})", cursor)
    if match is None:
        raise Malformed("cursor: not a cursor of this list; start again without it")
    return int(match[1]), int(match[2])


def _view(stored: StoredEvent) -> ExportedEvent:
    event = stored.event
    fields: dict[str, Any] = {name: getattr(event, name) for name in Action.model_fields}
    fields |= {"id": event.id or f"exported-{stored.place[1]}"}
    fields |= {
        "user": event.user if event.user_id is None else event.user_id,
        "item": event.item if event.item_id is None else event.item_id,
    }
    return ExportedEvent.model_validate(fields)
