"""How much of the holdout a run's evaluate stage looks at."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.strict import Strict

MOST_PAIRS = 10**15


class Evaluate(Strict):
    users: Annotated[int, Field(ge=1)] | Literal["all"] = Field(
        20_000,
        description="How many users of the holdout every model is judged on at most: a seeded sample, each with all of the user's "
        "held-out positives. `all`: however many there are.",
    )
    pairs: int = Field(
        1_000_000_000,
        ge=1,
        le=MOST_PAIRS,
        description="How many scores (users times items) are computed at most where a model scores pairs of a user and an item one by one: "
        "such a model, and the serving version, is judged on the first users of the sample alone, one at least. So is what is foretold of "
        "logged answers.",
    )

    @property
    def most(self) -> int | None:
        """Users; None for all."""
        return None if self.users == "all" else self.users

    def by_pairs(self, catalogue: int) -> int:
        """How many users are scored pair by pair, of a catalogue of so many items."""
        return max(1, self.pairs // max(1, catalogue))
