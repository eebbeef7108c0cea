"""What the online path records: an impression (an answer that was given) and an interaction (what a user did)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, Field

from shared.contracts.strict import Strict
from shared.domain.traffic import MOST_BUCKET

UNKNOWN_USER = "unknown user"
NO_SCORES = "scoring unavailable"
"""Why an answer is not the version's own. For a user that it doesn't know it isn't asked; where it gives no scores it was."""

Key = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]


class Impression(Strict):
    """One answered recommendation: what was shown to whom by which version, in order."""

    request_id: str = Field(max_length=64)
    recommender: str
    user: Key
    version: int = Field(ge=1)
    variant: str = Field(pattern="^(stable|candidate)$")
    generation: int = Field(ge=0, description="Of the routing that chose the variant.")
    step: int = Field(description="Of the rollout whose weight was in force; -1 outside rollouts.")
    items: tuple[Key, ...]
    fallback: str | None = Field(None, description="Why the answer is not the model's own, such as 'unknown user'.")
    bucket: int | None = Field(
        None, ge=0, le=MOST_BUCKET, description="Of the time that scoring took; absent where the version wasn't asked."
    )
    score: float | None = Field(None, allow_inf_nan=False, description="The mean score of the items shown, where they have any.")
    at: datetime


class Interaction(Strict):
    """What a user did. `value` is read by the spec's label rule; absent, the interaction is a positive."""

    recommender: str
    user: Key
    item: Key
    value: Annotated[float, Field(strict=True)] | None = None
    request_id: str | None = Field(None, max_length=64, description="Of the answer that it reacts to, where the client knows it.")
    at: AwareDatetime | None = Field(None, description="When it happened; the time of arrival when absent.")
