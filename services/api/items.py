"""Catalogue over HTTP: a recommender's items and their attributes, for the filters of its answers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, FailFast, Field, WithJsonSchema

from services.api.access import RoleRouter, Who
from services.api.dependencies import ControlParts, With
from services.api.ids import IdPath, item_in_path, reader_of
from services.api.item_bodies import ITEM_BODY, Items
from services.api.paging import Page, Pages
from services.api.rate_limits import BULK, KEYS, ONLINE
from shared.contracts.events import ID_SCHEMA, Id
from shared.domain.access import Role
from shared.domain.catalogue import MOST_AT_ONCE
from shared.domain.errors import Malformed, NotFound, no_such
from shared.ports import CatalogueItem

room = RoleRouter("items")


class ItemView(BaseModel):
    item: Annotated[int | str, WithJsonSchema(ID_SCHEMA)] = Field(description="Id of the item.")
    attributes: dict[str, bool | int | float | str | list[int | float] | list[str]] = Field(description="Values by name.")
    available: bool = Field(description="Whether the item is available.")
    revision: int = Field(description="Number that rises with every change of any item of the recommender.")
    updated_at: datetime = Field(description="When the item last changed.")


class Written(BaseModel):
    accepted: int
    changed: int = Field(description="Number of items that changed.")


class Deletions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    items: Annotated[list[Id], FailFast(), Field(max_length=MOST_AT_ONCE, description="Ids of the items; unknown ids are skipped.")]


class Deleted(BaseModel):
    deleted: int = Field(description="Number of items that were deleted.")


@room.create("/v1/items/{name}:delete", Role.OPERATOR, work=KEYS)
def delete_items(parts: With, who: Who, name: str, body: Deletions) -> Deleted:
    """Deletes items. A deleted item is not available until it is written again."""
    keys = reader_of(parts, name).items(body.items)
    return Deleted(deleted=parts.catalogue.delete(name, keys, parts.clock.now()))


@room.put("/v1/items/{name}", Role.OPERATOR, openapi_extra=ITEM_BODY, work=BULK)
def put_items(parts: With, who: Who, name: str, body: Items) -> Written:
    """Replaces items: each has exactly the given attributes. Writes all or none; a fault names its line."""
    return _write(parts, name, body, overwrite=True)


@room.create("/v1/items/{name}", Role.OPERATOR, openapi_extra=ITEM_BODY, work=BULK)
def change_items(parts: With, who: Who, name: str, body: Items) -> Written:
    """Changes items: only the given attributes change, null removes an attribute, and a new item is created. Writes all or none."""
    return _write(parts, name, body, overwrite=False)


@room.get("/v1/items/{name}", Role.VIEWER)
def list_items(parts: With, name: str, pages: Pages) -> Page[ItemView]:
    """Lists items in the order of their keys: of integer ids, or of the hashes of text ids."""
    parts.recommenders.get(name)
    try:
        after = None if pages.text is None else int(pages.text)
    except ValueError:
        raise Malformed("cursor: not a cursor of this list; start again without it") from None
    if after is not None and not -(2**63) <= after < 2**63:
        raise Malformed("cursor: not a cursor of this list; start again without it")
    return pages.page(parts.catalogue.page(name, pages.more, after), lambda entry: str(entry.item), _view)


@room.get("/v1/items/{name}/{item:path}", Role.VIEWER)
def get_item(parts: With, name: str, item: IdPath) -> ItemView:
    """Returns an item of the catalogue."""
    id, key = item_in_path(parts, name, item)
    try:
        return _view(parts.catalogue.get(name, key))
    except NotFound:
        raise no_such("item", str(id)) from None


@room.delete("/v1/items/{name}/{item:path}", Role.OPERATOR, status_code=204, work=ONLINE)
def delete_item(parts: With, who: Who, name: str, item: IdPath) -> None:
    """Deletes an item: it is not available until it is written again. For an item that only the model knows, write `available` false."""
    id, key = item_in_path(parts, name, item)
    if not parts.catalogue.delete(name, [key], parts.clock.now()):
        raise no_such("item", str(id))


def _write(parts: ControlParts, name: str, body: Items, overwrite: bool) -> Written:
    declared = parts.recommenders.get(name).spec.serve.attributes
    writes, reader = body.writes(declared, lambda id: reader_of(parts, name, item=id))
    if reader is not None:
        parts.recommenders.fix_ids(name, reader.kinds)
    return Written(accepted=len(writes), changed=parts.catalogue.put(name, writes, parts.clock.now(), overwrite))


def _view(entry: CatalogueItem) -> ItemView:
    attributes = {name: list(value) if isinstance(value, tuple) else value for name, value in entry.attributes.items()}
    item = entry.item if entry.id is None else entry.id
    return ItemView.model_validate({**entry.__dict__, "item": item, "attributes": attributes})
