"""The spec's `serve`: settings of the answers of a recommender."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from pydantic import Field, model_validator

from shared.contracts.filters import EVER, Available, Filter, Kinds, NotSeen
from shared.contracts.ordering import Each, Order
from shared.contracts.quantities import Duration, Fraction
from shared.contracts.strict import Strict, unknown_name
from shared.domain.attributes import AVAILABLE
from shared.domain.errors import Invalid
from shared.domain.expression_kinds import check_kinds
from shared.domain.expression_text import parse_expression
from shared.domain.expressions import Expression

Lists = Literal["padded", "offsets"]


class Retrieve(Strict):
    candidates: int = Field(
        500, ge=1, le=10_000, description="So many items of the catalogue are scored: those whose vectors meet the user's best."
    )
    fallback: Literal["popular"] = Field(
        "popular",
        exclude_if=lambda name: name == "popular",
        description="Candidates of a user without a vector: the most popular items that may be shown.",
    )


class Batch(Strict):
    """Table of recommendations that is computed once for each version."""

    k: int = Field(50, ge=1, le=1000, description="Items for each user that the version knows; what the user has liked is left out.")


class Deadlines(Strict):
    """Time limits of an answer. What is not ready in time is left out, and the answer or a metric says so."""

    seen: Duration = Field(timedelta(seconds=2), description="For what the user has seen; without it, answers may show it again.")
    score: Duration = Field(timedelta(seconds=1), description="For the model's scores; without them, the likeliest candidates are shown.")
    features: Duration = Field(
        timedelta(milliseconds=50), description="For users' values out of the feature store; without them, the version's own stand in."
    )

    @model_validator(mode="after")
    def _are_times(self) -> Deadlines:
        for name in ("seen", "score", "features"):
            if not timedelta(milliseconds=1) <= getattr(self, name) <= timedelta(seconds=10):
                raise ValueError(f"{name}: expected from 1ms to 10s")
        return self


class Store(Strict):
    """User feature values that are inputs of a version."""

    ttl: Duration | None = Field(
        None, description="How old one may be, when it is served and when it is trained on: an older one is as if absent. Absent: any age."
    )
    keep: Duration = Field(
        timedelta(days=400), description="How long what was written is kept for training, after something newer of the same key came."
    )


class Serve(Strict):
    planned = frozenset({"score"})

    filter: tuple[Filter, ...] = Field(
        (NotSeen(not_seen=EVER), Available(available=True)),
        max_length=32,
        description="What an item must pass to be shown, all of it: `not_seen`, `available`, and expressions over attributes and context.",
    )
    retrieve: Retrieve | None = Field(
        None,
        description="Candidates are found by vectors before they are scored: the model's own, or those of an `mf` that is trained beside a "
        "family that has none. Absent: the whole catalogue is scored.",
    )
    order: Order = Field(Order(), description="What moves items beside their scores: rules, campaigns, diversity, exploration.")
    deadlines: Deadlines = Field(Deadlines(), description="How long a request waits for what it can be answered without.")
    store: Store = Field(Store(), description="Values of users in the feature store.")
    fresh: Fraction = Field(
        0.2,
        ge=0,
        le=1,
        description="Of an answer of popular items, as for a user whom the version doesn't know: the share that is new instead.",
    )
    batch: Batch | None = Field(
        None,
        description="With each version, `recommendations.parquet`: user, place, item, score, for every known user.",
    )
    attributes: Kinds = Field(
        {}, description="Attributes of items, by name and kind. Where some are declared, no others are taken in, and none used in filters."
    )
    context: Kinds = Field({}, description="What requests say of users, by name and kind; as `attributes`, for `user.NAME`.")
    instances: int = Field(
        1, ge=1, le=16, description="Of each version on each server: so many calls are computed at once, each with the model's memory."
    )
    vocabulary_limit: int = Field(
        1_000_000,
        ge=0,
        description="Fitted tables (vocabularies, means, counts by key) with more rows than this aren't in the served graph: what they say "
        "of users is looked up in the feature store, of items in the catalogue.",
    )
    lists: Lists = Field(
        "padded",
        description="How the served graph takes a column of lists: as one tensor of rows as long as the longest list, `padded`; "
        "or as two, all values one after the other and where each row's begin (`offsets`), named `NAME__values` and `NAME__offsets`.",
    )
    warm_up: int = Field(
        0,
        ge=0,
        le=100_000,
        description="Rows (zeros, empty texts) of a call that a server makes of a version before it is ready; 0: none.",
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_seen(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "seen" in value:
            raise ValueError("'seen' is replaced by 'filter': write filter: [{not_seen: ever}, {available: true}]")
        return value

    @model_validator(mode="after")
    def _filters_fit(self) -> Serve:
        kinds = [type(entry) for entry in self.filter if not isinstance(entry, str)]
        for kind in (NotSeen, Available):
            if kinds.count(kind) > 1:
                raise ValueError(f"filter: '{next(iter(kind.model_fields))}' is said twice")
        if AVAILABLE in self.attributes:
            raise ValueError(f"attributes: '{AVAILABLE}' is known of every item, and not declared")
        try:
            check_kinds(self.expressions(), self.attributes, self.context)
        except Invalid as error:
            raise ValueError(f"filter: {error}") from None
        try:
            check_kinds((*self.expressions(), *self.order.expressions()), self.attributes, self.context)
        except Invalid as error:
            raise ValueError(f"order: {error}") from None
        self._check_order()
        return self

    def _check_order(self) -> None:
        if self.order.diversity and self.retrieve is None:
            raise ValueError("order: diversity needs the version's vectors: add 'retrieve'")
        for rule in self.order.all_rules():
            if isinstance(rule, Each) and self.attributes and rule.each not in self.attributes:
                raise unknown_name("attribute", rule.each, self.attributes)

    def expressions(self) -> tuple[Expression, ...]:
        return tuple(parse_expression(entry) for entry in self.filter if isinstance(entry, str))

    @property
    def not_seen(self) -> NotSeen | None:
        return next((entry for entry in self.filter if isinstance(entry, NotSeen)), None)

    @property
    def only_available(self) -> bool:
        return any(isinstance(entry, Available) for entry in self.filter)


def window(entry: NotSeen) -> timedelta | None:
    """Time range of the filter; None: unlimited."""
    return None if entry.not_seen == EVER else entry.not_seen
