"""The spec's `evaluate`: the part of the holdout that the evaluate stage uses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from shared.contracts.strict import Strict

MOST_PAIRS = 10**15


def _number(value: Any) -> Any:
    """Converts text such as `1e9`, which YAML does not read as a number."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


class Evaluate(Strict):
    users: Annotated[int, Field(ge=1)] | Literal["all"] = Field(
        20_000,
        description="Maximum number of holdout users for the evaluation of each model: a seeded sample, with all held-out positives of "
        "each user. `all`: all users.",
    )
    pairs: Annotated[
        int,
        Field(ge=1, le=MOST_PAIRS),
        BeforeValidator(_number),
        WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}], "examples": ["1e9", 1_000_000_000]}),
    ] = Field(
        1_000_000_000,
        description="Maximum number of scores (users times items) of a model that scores pairs one by one, such as `neumf`, `mlp`, `gbm` "
        "and the serving version: it is evaluated on the first users of the sample only, at least one. Gates of `off_policy` use the "
        "logged answers of the same number of users.",
    )

    @property
    def user_limit(self) -> int | None:
        """Maximum number of users; None for all."""
        return None if self.users == "all" else self.users

    def pairwise_users(self, catalogue: int) -> int:
        """Returns the number of users that are scored pair by pair, for a catalogue of this size."""
        return max(1, self.pairs // max(1, catalogue))
