"""Records of the online path: an impression (an answer) and an interaction (what a user did, or which page the user saw)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BeforeValidator, FailFast, Field, PlainValidator, WithJsonSchema

from shared.contracts.strict import Strict
from shared.domain.entity_ids import LONGEST_ID, check_id
from shared.domain.traffic import MOST_BUCKET

UNKNOWN_USER = "unknown user"
BY_ITEMS = "unknown user, by items"
NO_SCORES = "scoring unavailable"
NOTHING_LEFT = "nothing left"
SERVER_AWAY = "model server away"
OVERLOADED = "overloaded"
FAILED = "failed"
FRONT_END = "front end"
"""Reasons why an answer is not the version's own:

- `UNKNOWN_USER`, `BY_ITEMS`: the version does not know the user and does not score; the answer has popular items, or items similar to those
  in the request.
- `NO_SCORES`: the version gave no valid scores in time.
- `NOTHING_LEFT`: the filters leave no item, so the answer is empty.
- `SERVER_AWAY`: no model server responds, for any version.
- `OVERLOADED`, `FAILED`: the request was assigned to the version and rejected, because its queue was full or an exception occurred. The
  user got no answer; the impression has no items.
- `FRONT_END`: a front end showed the items without the gateway.
"""

ANSWERED_BY_VERSION = (None, NOTHING_LEFT)
NOT_PERSONAL = (UNKNOWN_USER, BY_ITEMS, NO_SCORES)
REFUSED = (OVERLOADED, FAILED)
VERSION_ERRORS = (NO_SCORES, *REFUSED)

Key = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
ID_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "integer", "format": "int64", "minimum": -(2**63), "maximum": 2**63 - 1},
        {"type": "string", "minLength": 1, "maxLength": LONGEST_ID},
    ]
}
Id = Annotated[int | str, PlainValidator(check_id), WithJsonSchema(ID_SCHEMA)]
"""Id of a user or an item as clients have it."""


SLICE = r"[a-z][a-z0-9_]{0,39}"


class Impression(Strict):
    """One answer to a recommend request: the items in order, the user and the version."""

    request_id: str = Field(max_length=128)
    recommender: str
    user: Key
    version: int = Field(ge=0, description="Version of the answer; 0 for a front end's own list.")
    variant: str = Field(pattern="^(stable|candidate)$")
    generation: int = Field(ge=0, description="Generation of the route that chose the variant.")
    step: int = Field(description="Step of the rollout; -1 outside rollouts.")
    items: tuple[Key, ...]
    fallback: str | None = Field(None, description="Reason why the answer is not the model's own, such as 'unknown user'.")
    bucket: int | None = Field(
        None, ge=0, le=MOST_BUCKET, description="Latency bucket of the version's work; one value for requests that were answered together."
    )
    score: float | None = Field(None, allow_inf_nan=False, description="Mean score of the items shown, if they have scores.")
    propensities: tuple[float, ...] | None = Field(None, description="Propensity of each item in its place; absent without exploration.")
    slices: tuple[Annotated[str, Field(pattern=f"^{SLICE}$")], ...] = Field((), max_length=16, description="Slices of the spec, in order.")
    at: datetime


LONGEST = 64
"""Maximum length of a front end's own request id."""
KIND = r"[a-z][a-z0-9_]{0,39}"
MOST_REVENUE = 1e8


class Action(Strict):
    """Action of a user, as clients send it."""

    id: str | None = Field(
        None, min_length=1, max_length=128, description="Id set by the client: of all events of a recommender with one id the first counts."
    )
    recommender: str
    user: Id = Field(description="Id of the user: an integer or a text, as in the data.")
    item: Id = Field(description="Id of the item.")
    kind: Annotated[str, Field(pattern=f"^{KIND}$")] | None = Field(
        None, description="One of the spec's `feedback.kinds`. If absent, `rating` for an event with a value, else `click`."
    )
    value: Annotated[float, Field(strict=True)] | None = Field(None, description="Value of the event, such as the stars of a rating.")
    revenue: Annotated[float, Field(strict=True, ge=-MOST_REVENUE, le=MOST_REVENUE)] | None = Field(
        None, description="Revenue in the client's own unit; stored with six decimals."
    )
    request_id: str | None = Field(None, max_length=128, description="Id of the answer that it reacts to, if the client knows it.")
    at: AwareDatetime | None = Field(None, description="Time of the event; the time of arrival if absent.")


class Interaction(Action):
    """Action of a user, or a page view, as it is stored: with keys in place of ids."""

    user: Key
    item: Key
    user_id: str | None = Field(None, description="The user's id if it is text.")
    item_id: str | None = Field(None, description="The item's id if it is text.")


PAGE = "page"


class PageView(Strict):
    """Page that a user saw, such as the start page or the cart. Stored as an interaction with the page's key in place of an item's, and
    never a positive."""

    kind: Literal["page"] = Field(description="A view of a page.")
    page: Annotated[
        str,
        BeforeValidator(lambda page: str(page) if type(page) is int else page),
        Field(min_length=1, max_length=1000),
        WithJsonSchema({"type": ["string", "integer"], "minLength": 1, "maxLength": 1000}),
    ] = Field(description="Page, with the same values as the spec's column of pages (`schema.page`).")
    id: str | None = Field(
        None, min_length=1, max_length=128, description="Id set by the client: of all events of a recommender with one id the first counts."
    )
    recommender: str
    user: Id
    at: AwareDatetime | None = Field(None, description="Time of the view; the time of arrival if absent.")


class Shown(Strict):
    """Items that a front end showed without the gateway, such as a cached list. The gateway records its own answers."""

    kind: Literal["impression"] = Field(description="Items that were shown, not an action.")
    request_id: str = Field(min_length=1, max_length=LONGEST, description="Id set by the front end; of equal ids the first counts.")
    recommender: str
    user: Id
    items: Annotated[tuple[Id, ...], FailFast()] = Field(min_length=1, max_length=1000, description="Items in the order shown.")
    version: int | None = Field(None, ge=1, lt=2**31, description="Version of the answer, if any: the impression counts in its hit rate.")
    at: AwareDatetime | None = Field(None, description="Time when the items were shown; the time of arrival if absent.")


Event = Action | PageView | Shown


def event_model(value: Any) -> type[Action] | type[PageView] | type[Shown]:
    """Returns the model that reads an external event."""
    if isinstance(value, Mapping) and value.get("kind") == PAGE and "item" not in value:
        return PageView
    return Shown if isinstance(value, Mapping) and value.get("kind") == "impression" else Action
