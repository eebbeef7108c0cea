"""What of the spec's `model.train` says when training has come far enough, and what is kept meanwhile."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import Field

from shared.contracts.quantities import Duration
from shared.contracts.strict import Strict

LookMetric = Literal["loss", "auc", "hr@10/99", "ndcg@10/99", "hr@10", "ndcg@10"]
"""Of rows that aren't trained on: less is better of `loss` alone."""
SAMPLED: frozenset[LookMetric] = frozenset({"hr@10/99", "ndcg@10/99"})
FULL: frozenset[LookMetric] = frozenset({"hr@10", "ndcg@10"})
_METRIC = (
    "`loss` and `auc` of the held-out rows; `hr@10/99`, `ndcg@10/99`: how high a held-out like of each of up to 2,000 users ranks among 99 "
    "items that this user never met; `hr@10`, `ndcg@10`: among all such items, for fewer users: 4,000,000 pairs of user and item at most."
)


class EarlyStop(Strict):
    """Training ends when it no longer helps."""

    metric: LookMetric = Field("auc", description=f"By which epochs are compared; the best one is published. {_METRIC}")
    patience: int = Field(3, ge=1, le=1000, description="Looks without a better value before training ends.")
    min_change: float = Field(0, ge=0, le=1, description="By how much a value must be better than the best so far to count.")


class Target(Strict):
    """What the report says the way to."""

    metric: LookMetric = Field("auc", description=_METRIC)
    value: float = Field(description="The report says in which epoch it was reached first, and after how many seconds.")

    def reached(self, value: float) -> bool:
        return value <= self.value if self.metric == "loss" else value >= self.value


class Checkpoints(Strict):
    """From what a stage that was killed goes on."""

    every: Duration = Field(timedelta(minutes=5), description="How much training may be lost at most.")
    steps: int | None = Field(None, ge=1, description="Also after so many steps.")
