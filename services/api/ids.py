"""Ids in requests to the control plane: their keys, and ids in paths, which are read by the recommender's kind."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from services.api.dependencies import ControlParts
from shared.contracts.ordering import Pin
from shared.contracts.spec import RecommenderSpec
from shared.domain.entity_ids import LONGEST_ID, Id, IdKind, IdKinds, IdReader, kind_of, read_id
from shared.domain.errors import Conflict, Invalid, NotFound

IdPath = Annotated[str, Path(min_length=1, max_length=LONGEST_ID, description="Id: a decimal integer, or a text in percent-encoding.")]


def reader_of(parts: ControlParts, name: str, user: Id | None = None, item: Id | None = None) -> IdReader:
    """Returns the reader of a recommender's ids. `user`, `item`: the first ids of a write, which give kinds that are not fixed yet."""
    kinds = parts.recommenders.get(name).ids
    user_kind, item_kind = (None if id is None else kind_of(id) for id in (user, item))
    return IdReader(IdKinds(kinds.user or user_kind, kinds.item or item_kind), parts.ids)


def fix_ids(parts: ControlParts, name: str, reader: IdReader) -> None:
    """Fixes the kinds of ids by which a valid request was read, before it is carried out."""
    kinds, fixed = reader.kinds, parts.recommenders.fix_ids(name, reader.kinds)
    if (kinds.user or fixed.user, kinds.item or fixed.item) != (fixed.user, fixed.item):
        raise Conflict(f"recommender '{name}': its first ids came now from another client, and are of another kind; nothing was written")


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
