"""Families of trees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from shared.contracts.families.base import ABSENT_NEGATIVES, FamilyParams, UnknownItems
from shared.contracts.ranges import NumberRange, between

TREE_MODULES: Mapping[str, str] = {"xgboost": "xgboost", "lightgbm": "lightgbm", "forest": "sklearn"}
"""Python module of each tree library, in the extra `trees`."""


class GbmParams(FamilyParams):
    """Trees that are grown one after the other (boosting), or independently (forest)."""

    meaning = (
        "gradient-boosted trees (XGBoost, LightGBM) or a forest (scikit-learn) over all features as numbers, counts of positives, and "
        "the score of a factorisation of the same positives."
    )
    no_steps = "gbm grows trees (params.trees), without steps"
    keeps_rows = False
    BOOSTED: ClassVar[tuple[str, ...]] = ("learning_rate", "regularisation", "objective")
    ranges: ClassVar[Mapping[str, NumberRange]] = {
        "params.trees": between(50, 600, log=True),
        "params.depth": between(3, 9),
        "params.learning_rate": between(0.02, 0.3, log=True),
        "params.regularisation": between(0.1, 100, log=True),
        "params.negatives": between(2, 20),
    }

    library: Literal["xgboost", "lightgbm", "forest"] = Field(
        "xgboost", description="Library of the trees. `forest`: scikit-learn, with independent trees."
    )
    objective: Literal["logistic", "rank"] = Field(
        "logistic",
        description="`logistic`: positives against negatives, as separate rows. `rank`: pairs of rows of the same user, with the positive "
        "first (XGBoost's pairwise loss, LightGBM's LambdaRank).",
    )
    trees: int = Field(100, ge=1, le=10_000, description="Number of trees; a warm run adds as many. With `train.validation`, the maximum.")
    depth: int | None = Field(None, ge=1, le=16, description="Maximum depth of a tree; if absent, 6, and 12 in a forest.")
    leaves: int | None = Field(None, ge=2, le=65_536, description="Maximum leaves of a tree; leaves with the largest gain are split first.")
    splits: Literal["best", "random"] = Field(
        "best", description="For a forest: `best`, a random forest; `random`, extremely randomised trees."
    )
    learning_rate: float = Field(0.1, gt=0, le=1, description="Weight of each tree.")
    subsample: float = Field(0.8, gt=0, le=1, description="Share of the rows for each tree.")
    columns: float | None = Field(
        None, gt=0, le=1, description="Share of the columns for each tree, or each node in a forest; if absent, all, and 0.4 in a forest."
    )
    regularisation: float = Field(1.0, ge=0, le=1e6, description="L2 regularisation of the leaves.")
    least: float = Field(
        1.0, ge=0, le=1e9, description="Minimum of a leaf: rows in a forest, else the sum of second derivatives (at most 1/4 a row)."
    )
    negatives: int | None = Field(None, ge=0, le=100, description=f"Negatives for each positive. {ABSENT_NEGATIVES.format(usual=8)}")
    among: Literal["all", "popular", "retrieved", "mixed"] = Field(
        "all",
        description="Source of the negatives: `all` items evenly; `popular` items by their number of positives; `retrieved`, items that "
        "the factorisation retrieves for the user, for trees that only score retrieved candidates; `mixed`: half retrieved, half of all.",
    )
    candidates: int = Field(200, ge=2, le=10_000, description="Number of items that are retrieved for a user to draw negatives from.")
    verified: bool = Field(
        True,
        description="Whether negatives from all or popular items exclude the user's positives in the training rows and, in a warm run, "
        "earlier ones. Retrieved negatives always do.",
    )
    unknown_items: UnknownItems = None
    width: int = Field(
        64, ge=0, le=1024, description="Width of the factorisation whose score is a column; 0: no factorisation and no column."
    )
    keys: bool | None = Field(
        None,
        description="Whether trees also split the codes of users and items, and so remember pairs of them. Absent: with `negatives` 0; a "
        "warm run keeps its parent's columns.",
    )
    folds: int = Field(
        4, ge=2, le=20, description="Number of parts of the positives: a training row is described by the positives of the other parts."
    )
    device: Literal["cpu", "cuda"] = Field(
        "cpu", description="Device of XGBoost; `cuda` needs XGBoost with CUDA, and in a Job `resources.train.gpu: 1`."
    )

    @property
    def heeds(self) -> frozenset[str]:
        """XGBoost can resume its random draws after a restart."""
        return frozenset({"seed", "validation", "early_stop"} | ({"checkpoint"} if self.library == "xgboost" else set()))

    @model_validator(mode="after")
    def _check_label(self) -> GbmParams:
        idle: list[tuple[str, str]] = []
        if self.library == "forest":
            idle += [(name, "in a forest") for name in self.BOOSTED]
        else:
            idle += [("splits", f"with {self.library}")]
        if self.library != "xgboost":
            idle += [("device", f"with {self.library}")]
        if self.negatives == 0:
            idle += [(name, "without negatives") for name in ("among", "candidates", "verified")]
        if self.among not in ("retrieved", "mixed"):
            idle += [("candidates", f"with 'among: {self.among}'")]
        if self.among == "retrieved":
            idle += [("verified", "with 'among: retrieved'")]
        for name, where in idle:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"params: '{name}' has no effect {where}; leave it out")
        if self.negatives != 0 and not self.width and self.among in ("retrieved", "mixed"):
            raise ValueError(f"params: 'among: {self.among}' needs a factorisation; set width above 0, or among: all")
        return self

    def wants_both_labels(self, full: bool) -> bool:
        """Sampled negatives complement positives; without them, rows with only one label are an error."""
        return full or self.negatives == 0
