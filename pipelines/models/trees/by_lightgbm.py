"""LightGBM: grows trees leaf by leaf; all rows are in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pipelines.models.trees.ensemble import LEAF, Floats, Trees, trees_from
from pipelines.models.trees.growing import THREADS, Parts, columns_of, depth_of, gathered, leaves_of, library
from shared.contracts.families import GbmParams
from shared.domain.errors import BadData

_NOTHING = np.float32(1e-35)


class LightGBM:
    """Implements Grower."""

    def __init__(self, params: GbmParams, seed: int, parts: Parts, before: bytes | None) -> None:
        self._library: Any = library("lightgbm")
        all_rows = gathered(parts)
        groups = None
        if params.objective == "rank":
            ends = np.flatnonzero(np.append(all_rows.groups[1:] != all_rows.groups[:-1], True)) + 1
            groups = np.diff(ends, prepend=0)
        self._options = {"verbosity": -1, "num_threads": THREADS, "deterministic": True, "force_row_wise": True, "seed": seed}
        self._options |= settings(params, before is not None)
        self._rows = self._library.Dataset(all_rows.matrix, all_rows.labels, group=groups, params=self._options, free_raw_data=True)
        self._booster: Any = load(before) if before is not None else None
        """The parent's trees until the first own tree is grown, then all trees."""
        self._begun = False

    @property
    def count(self) -> int:
        return 0 if self._booster is None else int(self._booster.num_trees())

    def grow(self, more: int) -> None:
        if not self._begun:
            self._booster = self._library.train(self._options, self._rows, 1, init_model=self._booster, keep_training_booster=True)
            self._begun, more = True, more - 1
        for _ in range(more):
            self._booster.update()

    def margin(self, matrix: Floats) -> Floats:
        return margin(self._booster, matrix)

    def cut(self, count: int) -> None:
        while self.count > count:
            self._booster.rollback_one_iter()

    def finish(self) -> None:
        """Does nothing: each tree is ready when it is grown."""

    def trees(self) -> Trees:
        return trees(self._booster)

    def model(self) -> bytes:
        text: str = self._booster.model_to_string()
        return text.encode()


def settings(params: GbmParams, warm: bool) -> dict[str, Any]:
    options = {
        "max_depth": depth_of(params),
        "num_leaves": max(2, min(leaves_of(params), 131_072)),
        "learning_rate": params.learning_rate,
        "bagging_fraction": params.subsample,
        "bagging_freq": 1 if params.subsample < 1 else 0,
        "feature_fraction": columns_of(params),
        "lambda_l2": params.regularisation,
        "min_sum_hessian_in_leaf": params.least,
        "min_data_in_leaf": 1,
        "max_bin": 255,
    }
    if params.objective == "rank":
        return options | {"objective": "lambdarank", "lambdarank_truncation_level": 20}
    return options | {"objective": "binary", "boost_from_average": not warm}


def load(stored: bytes) -> Any:
    """Loads a saved model."""
    lightgbm: Any = library("lightgbm")
    try:
        return lightgbm.Booster(model_str=stored.decode())
    except (lightgbm.basic.LightGBMError, ValueError) as error:
        raise BadData(f"the trees are damaged: {str(error).splitlines()[0][:200]}") from None


def margin(booster: Any, matrix: Floats) -> Floats:
    margins: Floats = booster.predict(matrix, raw_score=True, num_threads=THREADS).astype(np.float32)
    return margins


def trees(booster: Any) -> Trees:
    import treelite

    trees = trees_from(treelite.frontend.from_lightgbm(booster))
    return replace(trees, threshold=np.where(trees.feature == LEAF, trees.threshold, _around_zero(trees.threshold)))


def _around_zero(thresholds: Floats) -> Floats:
    """Moves thresholds near zero, because LightGBM treats values nearer to zero than `_NOTHING` as zero."""
    below = np.nextafter(-_NOTHING, np.float32(-1))
    adjusted = np.where((thresholds >= -_NOTHING) & (thresholds < 0), below, thresholds)
    return np.array(np.where((thresholds >= 0) & (thresholds < _NOTHING), _NOTHING, adjusted), np.float32)
