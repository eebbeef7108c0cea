"""The online path over HTTP: one recommendation a call."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from services.api.access import Room
from services.api.item_bodies import VALUES
from services.api.parts import Online
from services.gateway import Question
from shared.contracts.events import Key
from shared.domain.access import Role
from shared.domain.attributes import Value, check_attributes
from shared.domain.errors import Invalid

room = Room("online")


def _context(given: object) -> dict[str, Value]:
    try:
        return {name: value for name, value in check_attributes(given, {}).items() if value is not None}
    except Invalid as error:
        raise ValueError(str(error)) from None


Context = Annotated[dict[str, Any], BeforeValidator(_context), WithJsonSchema(VALUES)]


class Ask(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user: Key
    k: Annotated[int, Field(ge=1, le=1000)] = 10
    exclude: Annotated[list[Key], Field(max_length=10_000, description="Items that must not be in the answer.")] = []
    context: Annotated[Context, Field(description="What is known of the user, by name: what filters call `user.NAME`.")] = {}


class Item(BaseModel):
    item: int
    score: float | None = Field(description="Null for a popular item that no model has scored.")


class AnswerView(BaseModel):
    request_id: str = Field(description="Give it with the user's interactions, so that they count for this answer.")
    recommender: str
    version: int
    variant: Literal["stable", "candidate"]
    items: list[Item]
    fallback: str | None = Field(
        description="Why the answer is not the model's own: 'unknown user', 'scoring unavailable', 'nothing left' by the filters, or null."
    )


@room.post("/v1/recommend/{name}", Role.CLIENT, audited=False)
async def recommend(gateway: Online, name: str, ask: Ask) -> AnswerView:
    """The best items for a user, by the version that the user is given."""
    answer = await asyncio.wrap_future(gateway.submit(Question(name, ask.user, ask.k, frozenset(ask.exclude), ask.context)))
    return AnswerView(
        request_id=answer.request_id,
        recommender=answer.recommender,
        version=answer.version,
        variant=answer.variant,
        items=[Item(item=item, score=score) for item, score in answer.items],
        fallback=answer.fallback,
    )
