"""Ids in requests to the control plane: their keys, and ids in paths, which are read by the recommender's kind."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from services.api.dependencies import ControlParts
from shared.contracts.ordering import Pin
from shared.contracts.spec import RecommenderSpec
from shared.domain.entity_ids import LONGEST_ID, Id, IdKind, IdReader, read_id
from shared.domain.errors import Invalid, NotFound

IdPath = Annotated[str, Path(min_length=1, max_length=LONGEST_ID, description="Id: a decimal integer, or a text in percent-encoding.")]


def reader_of(parts: ControlParts, name: str, user: Id | None = None, item: Id | None = None) -> IdReader:
    """Returns the reader of a recommender's ids. `user`, `item`: the first ids of a write, which give kinds that are not fixed yet."""
    return IdReader(parts.recommenders.get(name).ids, parts.ids).assuming(user, item)


def check_pins(parts: ControlParts, spec: RecommenderSpec) -> None:
    """Raises Invalid for a pinned id of another kind than the recommender's items."""
    items = [rule.item for rule in spec.serve.order.all_rules() if isinstance(rule, Pin) and rule.item is not None]
    if not items:
        return
    try:
        reader = reader_of(parts, spec.name)
    except NotFound:
        return
    for item in items:
        reader.item(item, "serve.order: pin")


def user_in_path(parts: ControlParts, name: str, text: str) -> tuple[Id, int]:
    """Returns a user's id and key."""
    reader = reader_of(parts, name)
    id = _read(text, reader.kinds.user, "user")
    return id, reader.user(id)


def item_in_path(parts: ControlParts, name: str, text: str) -> tuple[Id, int]:
    """Returns an item's id and key."""
    reader = reader_of(parts, name)
    id = _read(text, reader.kinds.item, "item")
    return id, reader.item(id)


def _read(text: str, kind: IdKind | None, field: str) -> Id:
    try:
        return read_id(text, kind)
    except Invalid as error:
        raise Invalid(f"{field}: {error}") from None
