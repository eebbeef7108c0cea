"""The spec's `serve`: how a recommender answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.contracts.strict import Strict


class Serve(Strict):
    planned = frozenset({"retrieve", "order", "score"})

    seen: Literal["drop", "keep"] = Field(
        "drop", description="Whether items that the user has already liked here are dropped from answers."
    )
    instances: int = Field(
        1, ge=1, le=16, description="Of each version on each server: so many calls are computed at once, each with the model's memory."
    )
    warm_up: int = Field(
        0,
        ge=0,
        le=100_000,
        description="Rows (zeros, empty texts) of a call that a server makes of a version before it is ready; 0: none.",
    )
