"""Families of trees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from shared.contracts.families.base import FamilyParams
from shared.contracts.ranges import Range, between


class GbmParams(FamilyParams):
    """Trees that are grown one after the other (boosting), or independently (forest)."""

    meaning = (
        "gradient-boosted trees (XGBoost, LightGBM) or a forest (scikit-learn) over all features as numbers, over counts of likes, and "
        "over how well a factorisation of the same likes thinks that user and item go together."
    )
    no_steps = "gbm grows trees (params.trees) and takes no steps"
    keeps_rows = False
    BOOSTED: ClassVar[tuple[str, ...]] = ("learning_rate", "regularisation", "objective")
    ranges: ClassVar[Mapping[str, Range]] = {
        "params.trees": between(50, 600, log=True),
        "params.depth": between(3, 9),
        "params.learning_rate": between(0.02, 0.3, log=True),
        "params.regularisation": between(0.1, 100, log=True),
        "params.negatives": between(2, 20),
    }

    library: Literal["xgboost", "lightgbm", "forest"] = Field(
        "xgboost", description="What grows them. `forest`: scikit-learn's, whose trees stand beside each other."
    )
    objective: Literal["logistic", "rank"] = Field(
        "logistic",
        description="`logistic`: likes are told from what isn't liked, each row for itself. `rank`: of two rows of one user the liked one "
        "is to stand higher (XGBoost's pairwise loss, LightGBM's LambdaRank).",
    )
    trees: int = Field(100, ge=1, le=10_000, description="How many; a warm run grows as many more. With `train.validation` at most.")
    depth: int | None = Field(None, ge=1, le=16, description="Of a tree at most; when absent 6, and 12 in a forest.")
    leaves: int | None = Field(None, ge=2, le=65_536, description="Of a tree at most: those are split first where most is won.")
    splits: Literal["best", "random"] = Field(
        "best", description="Of a forest: where a node is split. `best`: a random forest; `random`: extremely randomised trees."
    )
    learning_rate: float = Field(0.1, gt=0, le=1, description="What a tree counts of what it would correct.")
    subsample: float = Field(0.8, gt=0, le=1, description="Share of the rows that a tree sees.")
    columns: float | None = Field(
        None, gt=0, le=1, description="Share of the columns that a tree sees, in a forest each node; when absent all, and 0.4 in a forest."
    )
    regularisation: float = Field(1.0, ge=0, le=1e6, description="How small what leaves say is kept (L2).")
    least: float = Field(
        1.0, ge=0, le=1e9, description="Of a leaf at least: rows of a forest, else the sum of their second derivatives (at most 1/4 a row)."
    )
    negatives: int = Field(8, ge=0, le=100, description="Negatives for each positive.")
    among: Literal["all", "popular", "retrieved", "mixed"] = Field(
        "all",
        description="What negatives are drawn from: `all` items evenly; `popular` ones as often as they are liked; what the factorisation "
        "would have `retrieved` for the user, that isn't liked: for trees that are asked of retrieved candidates alone; `mixed`: half of "
        "them retrieved, half of all.",
    )
    candidates: int = Field(200, ge=2, le=10_000, description="How many items are retrieved for a user, to draw negatives from.")
    verified: bool = Field(
        True,
        description="Whether no negative that is drawn of all or of popular items is one that its user liked in the rows to train on, or, "
        "of a warm run, before. What is retrieved never is.",
    )
    width: int = Field(
        64, ge=0, le=1024, description="Of the factorisation whose fit of user and item is a column; 0: there is none, and no such column."
    )
    folds: int = Field(
        4, ge=2, le=20, description="Into how many parts likes are dealt: a row to train on is described by the likes of the other parts."
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where XGBoost grows trees; `cuda` takes a build of it that knows GPUs.")

    @property
    def heeds(self) -> frozenset[str]:
        """XGBoost can resume its random draws after a restart."""
        return frozenset({"seed", "validation", "early_stop"} | ({"checkpoint"} if self.library == "xgboost" else set()))

    @model_validator(mode="after")
    def _says_what_counts(self) -> GbmParams:
        idle: list[tuple[str, str]] = []
        if self.library == "forest":
            idle += [(name, "in a forest") for name in self.BOOSTED]
        else:
            idle += [("splits", f"with {self.library}")]
        if self.library != "xgboost":
            idle += [("device", f"with {self.library}")]
        if not self.negatives:
            idle += [(name, "where no negatives are drawn") for name in ("among", "candidates", "verified")]
        if self.among not in ("retrieved", "mixed"):
            idle += [("candidates", f"where negatives are drawn from {self.among}")]
        if self.among == "retrieved":
            idle += [("verified", "where negatives are retrieved")]
        for name, where in idle:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"params: '{name}' has no effect {where}: leave it out")
        if self.negatives and not self.width and self.among in ("retrieved", "mixed"):
            raise ValueError(
                f"params: negatives 'among: {self.among}' are what a factorisation finds: give it a width, or choose among: all"
            )
        return self

    def wants_both_labels(self, full: bool) -> bool:
        """Sampled negatives complement positives; without them, rows with only one label are an error."""
        return full or self.negatives == 0
