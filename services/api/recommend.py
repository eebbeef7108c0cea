"""Online requests over HTTP: recommendations, scores and similar items."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, WithJsonSchema, model_validator

from services.api.access import RoleRouter
from services.api.dependencies import Online
from services.api.item_bodies import VALUES
from services.api.rate_limits import KEYS, ONLINE
from services.gateway import Answer, Explained, Question
from shared.contracts.events import ID_SCHEMA, Id
from shared.domain.access import Role
from shared.domain.attributes import Value, check_attributes
from shared.domain.errors import Invalid
from shared.telemetry import logs

room = RoleRouter("online")

MOST = 1000
"""Most items of an answer."""


def _context(context: object) -> dict[str, Value]:
    try:
        return {name: value for name, value in check_attributes(context, {}).items() if value is not None}
    except Invalid as error:
        raise ValueError(str(error)) from None


Context = Annotated[dict[str, Any], BeforeValidator(_context), WithJsonSchema(VALUES)]
Count = Annotated[int, Field(ge=1, le=MOST)]
Excluded = Annotated[list[Id], FailFast(), Field(max_length=10_000, description="Items that must not be in the answer.")]
Said = Annotated[Context, Field(description="Facts about the user by name; expressions read them as `user.NAME`.")]
Slots = Annotated[dict[Annotated[str, Field(min_length=1, max_length=40)], Count], Field(min_length=1, max_length=20)]


Trial = Annotated[bool, Query(description="Trial request: the answer is not logged, changes no figure, and has no exploration.")]
Explain = Annotated[bool, Query(description="Add what each stage of the answer did, and how long it took.")]


class Ask(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user: Id = Field(description="Id of the user: an integer or a text, as in the data.")
    k: Count = 10
    exclude: Excluded = []
    context: Said = {}
    items: Annotated[list[Id], Field(max_length=100)] = Field(
        [],
        description="Items that the user has just viewed, the newest last. A version that reads recent items (`ease`, `itemknn`, "
        "`transitions`, `mf`, `session`, `blend`) counts them as positives and leaves them out; from other "
        "versions, an unknown user gets similar items.",
    )
    slots: Slots | None = Field(
        None,
        description="Places of a page by name, with numbers of items; instead of `k`. The first one gets the best items; no item repeats.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.slots is not None:
            if "k" in self.model_fields_set:
                raise ValueError("set 'k' or 'slots', not both")
            if sum(self.slots.values()) > MOST:
                raise ValueError(f"slots: {sum(self.slots.values())} items in total; the limit is {MOST}")
        return self

    @property
    def count(self) -> int:
        return self.k if self.slots is None else sum(self.slots.values())


class Item(BaseModel):
    item: Annotated[int | str, WithJsonSchema(ID_SCHEMA)] = Field(description="Id of the item, as in the data.")
    score: float | None = Field(description="Score of the model; null for an item without a score.")


class Explanation(BaseModel):
    """How an answer was made. Items are explained only by rules and exploration."""

    milliseconds: Mapping[str, float] = Field(description="Duration of each stage; requests of one batch share it.")
    together: int = Field(description="Number of requests in the batch.")
    retrieved: int = Field(description="Number of candidates before the filter.")
    filtered: int = Field(description="Number of candidates that the filter dropped.")
    dropped: dict[str, int] = Field(
        description="Number of dropped candidates by entry of `serve.filter`; the first entry that drops a candidate counts."
    )
    scored: bool = Field(description="Whether the model scored the candidates.")
    explored: int | None = Field(description="Place, from 1, whose item was drawn at random.")
    rules: list[list[str]] = Field(description="Rules that apply to each item.")


class AnswerView(BaseModel):
    request_id: str = Field(description="Id of the answer: send it with the user's events, so that they count for this answer.")
    recommender: str
    version: int
    variant: Literal["stable", "candidate"]
    items: list[Item]
    fallback: str | None = Field(
        description="Reason of a fallback: 'unknown user', 'unknown user, by items', 'scoring unavailable', or 'nothing left' after the "
        "filters; null for the version's own answer."
    )
    slots: dict[str, list[Item]] = Field({}, description="Items by place, if the request has `slots`.")
    explain: Explanation | None = Field(None, description="Explanation, if the request asks for it.")


@room.post("/v1/recommend/{name}", Role.CLIENT, audited=False, response_model_exclude_unset=True, work=ONLINE)
async def recommend(gateway: Online, name: str, ask: Ask, explain: Explain = False, trial: Trial = False) -> AnswerView:
    """Returns the best items for a user, from the version that serves the user."""
    ids = gateway.ids(name)
    exclude, viewed = frozenset(ids.items(ask.exclude, "exclude")), tuple(ids.items(ask.items))
    question = Question(name, ids.user(ask.user), ask.count, exclude, ask.context, viewed, explain, trial, logs.context_id("request"))
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

    user: Id
    items: Annotated[list[Id], FailFast(), Field(min_length=1, max_length=10_000)]


class ScoresView(BaseModel):
    version: int
    variant: Literal["stable", "candidate"]
    items: list[Item] = Field(description="Items in the order of the request; the score is null if the version does not have the item.")
    fallback: str | None = Field(description="'unknown user' if the version has no scores for the user, or null.")


@room.post("/v1/score/{name}", Role.CLIENT, audited=False, work=KEYS)
async def score(gateway: Online, name: str, ask: AskScores) -> ScoresView:
    """Returns scores of items for a user, from the version that serves the user. Nothing is filtered, ordered or logged."""
    ids = gateway.ids(name)
    scored = await asyncio.wrap_future(gateway.submit_scores(name, ids.user(ask.user), ids.items(ask.items)))
    items = [Item(item=item, score=score) for item, (_, score) in zip(ask.items, scored.items, strict=True)]
    return ScoresView(version=scored.version, variant=scored.variant, items=items, fallback=scored.fallback)


class AskSimilar(BaseModel):
    model_config = ConfigDict(extra="forbid")

    item: Id
    k: Count = 10
    exclude: Excluded = []
    context: Said = {}


class SimilarView(BaseModel):
    version: int
    items: list[Item] = Field(description="Similar items, the most similar first; the score is the cosine of the vectors.")


@room.post("/v1/similar/{name}", Role.CLIENT, audited=False, work=ONLINE)
def similar(gateway: Online, name: str, ask: AskSimilar) -> SimilarView:
    """Returns the items most similar to an item, by vectors of the stable version, of those that may be shown. Nothing is logged."""
    neighbours = gateway.similar(name, ask.item, ask.k, ask.exclude, ask.context)
    return SimilarView(version=neighbours.version, items=[Item(item=item, score=score) for item, score in neighbours.items])
