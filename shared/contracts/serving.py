"""The spec's `serve`: settings of the answers of a recommender."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

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
        500, ge=1, le=10_000, description="Number of items that are scored: those with the best inner product of vectors."
    )
    fallback: Literal["popular"] = Field(
        "popular",
        exclude_if=lambda name: name == "popular",
        description="Candidates for a user without a vector: the most popular items that may be shown.",
    )


class Batch(Strict):
    """Table of recommendations that is computed once for each version."""

    k: int = Field(50, ge=1, le=1000, description="Number of items for each known user, without the user's positives.")


class Deadlines(Strict):
    """Time limits of an answer. What is not ready in time is left out, and the answer or a metric says so."""

    seen: Duration = Field(timedelta(seconds=2), description="Limit for the user's seen items; else the answer may show them again.")
    score: Duration = Field(timedelta(seconds=1), description="Limit for the model's scores; else retrieved or popular items are shown.")
    features: Duration = Field(
        timedelta(milliseconds=50), description="Limit for user values of the feature store; else the version's own values are used."
    )

    @model_validator(mode="after")
    def _check_times(self) -> Deadlines:
        for name in ("seen", "score", "features"):
            if not timedelta(milliseconds=1) <= getattr(self, name) <= timedelta(seconds=10):
                raise ValueError(f"{name}: expected from 1ms to 10s")
        return self


class Store(Strict):
    """User feature values that are inputs of a version."""

    ttl: Duration | None = Field(
        None, description="Maximum age of a value, in serving and in training; older values count as absent. Absent: any age."
    )
    keep: Duration = Field(
        timedelta(days=400), description="Time for which an old value is stored for training after a newer value of its key arrived."
    )


class Serve(Strict):
    planned = frozenset({"score"})

    filter: tuple[Filter, ...] = Field(
        (NotSeen(not_seen=EVER), Available(available=True)),
        max_length=32,
        description="Conditions that an item must meet to be shown: `not_seen`, `available`, and expressions over attributes and context.",
    )
    retrieve: Retrieve | None = Field(
        None,
        description="Retrieval of candidates by vectors before they are scored: the model's own vectors, or those of an `mf` that is "
        "trained beside a family without vectors. Absent: the whole catalogue is scored.",
    )
    order: Order = Field(Order(), description="Changes of the order by score: rules, campaigns, diversity, exploration.")
    deadlines: Deadlines = Field(Deadlines(), description="Time limits for the optional parts of an answer.")
    store: Store = Field(Store(), description="User values in the feature store.")
    fresh: Fraction = Field(0.2, ge=0, le=1, description="Share of new items in an answer of popular items, as for an unknown user.")
    new_items: bool = Field(
        True,
        description="Whether items that the catalogue got after a version's training are candidates, scored by their attributes. At most "
        "as many as the version has (but 1,000 to 10,000), the newest; with `retrieve`, at most a quarter of its candidates.",
    )
    recent: Literal["off"] | Annotated[int, Field(strict=True, ge=1, le=500)] = Field(
        50,
        description="Maximum number of the user's newest positives since the version's training that a request gives to a version that "
        "reads them: `ease`, `itemknn`, `transitions`, `mf` by least squares, `session`, `blend`, and others with a `sequence`. `off`: "
        "none.",
    )
    batch: Batch | None = Field(
        None, description="With each version, `recommendations.parquet`: user, place, item, score, for every known user."
    )
    attributes: Kinds = Field(
        {}, description="Attributes of items, by name and kind. If any are declared, all others are rejected, also in filters."
    )
    context: Kinds = Field({}, description="User attributes of requests, by name and kind; as `attributes`, for `user.NAME`.")
    device: Literal["cpu", "gpu"] = Field(
        "cpu",
        description="Where Triton computes the network or the trees of a version; features are computed on CPUs. `gpu` is rejected if the "
        "family has neither, or if the platform's Tritons have no GPU (docs/gpus.md); the embedded Triton computes all on CPUs.",
    )
    instances: int = Field(
        1,
        ge=1,
        le=16,
        description="Instances of each version on each server, with `device: gpu` on each GPU: the number of simultaneous calls, each with "
        "the model's memory.",
    )
    vocabulary_limit: int = Field(
        1_000_000,
        ge=0,
        description="Maximum rows of fitted tables (vocabularies, means, counts by key) in the served graph: larger tables are read from "
        "the feature store for users, and from the catalogue for items.",
    )
    lists: Lists = Field(
        "padded",
        description="Form of list inputs of the served graph: `padded`, one tensor with rows of the longest list's length; or `offsets`, "
        "two tensors `NAME__values` with all values and `NAME__offsets` with the start of each row.",
    )
    warm_up: int = Field(
        0, ge=0, le=100_000, description="Number of rows (zeros, empty texts) of a warm-up call before a version is ready; 0: none."
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_seen(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "seen" in value:
            raise ValueError("'seen' is replaced by 'filter'; write filter: [{not_seen: ever}, {available: true}]")
        return value

    @model_validator(mode="after")
    def _check_filters(self) -> Serve:
        kinds = [type(entry) for entry in self.filter if not isinstance(entry, str)]
        for kind in (NotSeen, Available):
            if kinds.count(kind) > 1:
                raise ValueError(f"filter: '{next(iter(kind.model_fields))}' is listed twice")
        if AVAILABLE in self.attributes:
            raise ValueError(f"attributes: '{AVAILABLE}' is a built-in attribute; remove it")
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
            raise ValueError("order: diversity needs the version's vectors; add 'retrieve'")
        for rule in self.order.all_rules():
            if isinstance(rule, Each) and self.attributes and rule.each not in self.attributes:
                raise unknown_name("attribute", rule.each, self.attributes)

    def expressions(self) -> tuple[Expression, ...]:
        return tuple(parse_expression(entry) for entry in self.filter if isinstance(entry, str))

    @property
    def recent_items(self) -> int:
        """Maximum number of recent items; 0 if off."""
        return 0 if self.recent == "off" else self.recent

    @property
    def not_seen(self) -> NotSeen | None:
        return next((entry for entry in self.filter if isinstance(entry, NotSeen)), None)

    @property
    def only_available(self) -> bool:
        return any(isinstance(entry, Available) for entry in self.filter)


def window(entry: NotSeen) -> timedelta | None:
    """Time range of the filter; None: unlimited."""
    return None if entry.not_seen == EVER else entry.not_seen
