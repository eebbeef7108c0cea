"""Online requests over HTTP: recommendations, scores and similar items."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, WithJsonSchema, model_validator

from services.api.access import Room
from services.api.dependencies import Online
from services.api.item_bodies import VALUES
from services.api.rate_limits import KEYS, ONLINE
from services.gateway import Answer, Explained, Question
from shared.contracts.events import Key
from shared.domain.access import Role
from shared.domain.attributes import Value, check_attributes
from shared.domain.errors import Invalid

room = Room("online")

MOST = 1000
"""Most items of an answer."""


def _context(context: object) -> dict[str, Value]:
    try:
        return {name: value for name, value in check_attributes(context, {}).items() if value is not None}
    except Invalid as error:
        raise ValueError(str(error)) from None


Context = Annotated[dict[str, Any], BeforeValidator(_context), WithJsonSchema(VALUES)]
Count = Annotated[int, Field(ge=1, le=MOST)]
Excluded = Annotated[list[Key], FailFast(), Field(max_length=10_000, description="Items that must not be in the answer.")]
Said = Annotated[Context, Field(description="What is known of the user, by name: what expressions call `user.NAME`.")]
Slots = Annotated[dict[Annotated[str, Field(min_length=1, max_length=40)], Count], Field(min_length=1, max_length=20)]


Trial = Annotated[
    bool, Query(description="Nobody is shown the answer: it is logged nowhere, so it counts for nothing, and nothing is explored.")
]
Explain = Annotated[bool, Query(description="Say what each stage did, and with its time.")]


class Ask(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user: Key
    k: Count = 10
    exclude: Excluded = []
    context: Said = {}
    items: Annotated[list[Key], Field(max_length=100)] = Field(
        [],
        description="What the user looked at just now, the newest last. A version of `session` with a `sequence` feature reads them and "
        "leaves them out; of any other one a user whom it doesn't know gets what is like these.",
    )
    slots: Slots | None = Field(
        None,
        description="Instead of `k`: places of a page, by name, with how many items. The first gets the best; no item comes twice.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.slots is not None:
            if "k" in self.model_fields_set:
                raise ValueError("give 'k' or 'slots', not both")
            if sum(self.slots.values()) > MOST:
                raise ValueError(f"slots: {sum(self.slots.values())} items together; an answer has {MOST} at most")
        return self

    @property
    def count(self) -> int:
        return self.k if self.slots is None else sum(self.slots.values())


class Item(BaseModel):
    item: int
    score: float | None = Field(description="Null for an item that no model has scored.")


class Explanation(BaseModel):
    """How an answer was made. Items are explained only by rules and exploration."""

    milliseconds: Mapping[str, float] = Field(description="Of each stage; requests that came together share them.")
    together: int = Field(description="So many requests were answered at once.")
    retrieved: int = Field(description="Candidates before the filter.")
    filtered: int = Field(description="Of these, how many it dropped.")
    dropped: dict[str, int] = Field(
        description="Of what may not be shown: how many for which entry of `serve.filter`, the first that says so."
    )
    scored: bool = Field(description="Whether the model's scores decided.")
    explored: int | None = Field(description="The place, from 1, that was given to another candidate by chance.")
    rules: list[list[str]] = Field(description="Of each item, which rules concern it.")


class AnswerView(BaseModel):
    request_id: str = Field(description="Give it with the user's interactions, so that they count for this answer.")
    recommender: str
    version: int
    variant: Literal["stable", "candidate"]
    items: list[Item]
    fallback: str | None = Field(
        description="Why the answer is not the model's own: 'unknown user', 'unknown user, by items', 'scoring unavailable', "
        "'nothing left' by the filters, or null."
    )
    slots: dict[str, list[Item]] = Field({}, description="The items by place, where the request names places.")
    explain: Explanation | None = Field(None, description="Where the request asks for it.")


@room.post("/v1/recommend/{name}", Role.CLIENT, audited=False, response_model_exclude_unset=True, work=ONLINE)
async def recommend(gateway: Online, name: str, ask: Ask, explain: Explain = False, trial: Trial = False) -> AnswerView:
    """Returns the best items for a user, from the version that serves the user."""
    question = Question(name, ask.user, ask.count, frozenset(ask.exclude), ask.context, tuple(ask.items), explain, trial)
    return _view(await asyncio.wrap_future(gateway.submit(question)), ask)


def _view(answer: Answer, ask: Ask) -> AnswerView:
    items = [Item(item=item, score=score) for item, score in answer.items]
    more: dict[str, Any] = {}
    if ask.slots is not None:
        left = iter(items)
        more["slots"] = {name: list(itertools.islice(left, count)) for name, count in ask.slots.items()}
    if answer.explained is not None:
        more["explain"] = _explanation(answer.explained)
    return AnswerView(
        request_id=answer.request_id,
        recommender=answer.recommender,
        version=answer.version,
        variant=answer.variant,
        items=items,
        fallback=answer.fallback,
        **more,
    )


def _explanation(explained: Explained) -> Explanation:
    return Explanation(
        milliseconds={stage: round(1000 * seconds, 3) for stage, seconds in explained.seconds.items()},
        together=explained.together,
        retrieved=explained.explanation.looked,
        filtered=explained.explanation.looked - explained.explanation.eligible,
        dropped=dict(explained.explanation.dropped),
        scored=explained.explanation.scored,
        explored=None if explained.explanation.explored is None else explained.explanation.explored + 1,
        rules=[list(rule) for rule in explained.explanation.why],
    )


class AskScores(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user: Key
    items: Annotated[list[Key], FailFast(), Field(min_length=1, max_length=10_000)]


class ScoresView(BaseModel):
    version: int
    variant: Literal["stable", "candidate"]
    items: list[Item] = Field(description="In the order of the request; a score is null where the version doesn't have the item.")
    fallback: str | None = Field(description="'unknown user', of whom it has no scores, or null.")


@room.post("/v1/score/{name}", Role.CLIENT, audited=False, work=KEYS)
async def score(gateway: Online, name: str, ask: AskScores) -> ScoresView:
    """Returns scores of items for a user, from the version that serves the user. Nothing is filtered, ordered or logged."""
    scored = await asyncio.wrap_future(gateway.submit_scores(name, ask.user, ask.items))
    items = [Item(item=item, score=score) for item, score in scored.items]
    return ScoresView(version=scored.version, variant=scored.variant, items=items, fallback=scored.fallback)


class AskSimilar(BaseModel):
    model_config = ConfigDict(extra="forbid")

    item: Key
    k: Count = 10
    exclude: Excluded = []
    context: Said = {}


class SimilarView(BaseModel):
    version: int
    items: list[Item] = Field(description="The most like first; the score is the cosine of their vectors.")


@room.post("/v1/similar/{name}", Role.CLIENT, audited=False, work=ONLINE)
def similar(gateway: Online, name: str, ask: AskSimilar) -> SimilarView:
    """Returns the items most similar to an item, by vectors of the stable version, of those that may be shown. Nothing is logged."""
    neighbours = gateway.similar(name, ask.item, ask.k, ask.exclude, ask.context)
    return SimilarView(version=neighbours.version, items=[Item(item=item, score=score) for item, score in neighbours.items])
