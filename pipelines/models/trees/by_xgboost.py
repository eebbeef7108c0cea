"""XGBoost: takes rows in parts and keeps a byte per value (its quantile); trains on a GPU if the spec says so.

XGBoost splits at values that rows have, so rows often lie exactly at a threshold, and features of the served graph may differ from
training's in the last bit. So thresholds are lowered slightly when all trees are grown: no row of the data changes sides.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from pipelines.models.runtime import gpu_sizes
from pipelines.models.trees.ensemble import Floats, Trees, trees_from
from pipelines.models.trees.growing import THREADS, Parts, columns_of, depth_of, library
from shared.contracts.families import GbmParams
from shared.domain.errors import BadData, Invalid

HAIR = 2.0**-18
"""The share by which a threshold is lowered."""


class XGBoost:
    """Implements Grower."""

    def __init__(self, params: GbmParams, seed: int, parts: Parts, before: bytes | None, finished: int) -> None:
        self._library: Any = library("xgboost")
        check_device(params, self._library.build_info())
        quiet(self._library)
        self._settings = settings(params, seed)
        self._rows = self._library.QuantileDMatrix(_iterator(self._library, parts, params.objective == "rank"), max_bin=256)
        self._begin(before)
        self._finished = finished

    def _begin(self, before: bytes | None) -> None:
        self._booster = self._library.Booster(self._settings, [self._rows])
        if before is not None:
            self._booster.load_model(bytearray(before))
            self._booster.set_param(self._settings)

    @property
    def count(self) -> int:
        return int(self._booster.num_boosted_rounds())

    def grow(self, more: int) -> None:
        if self._settings["colsample_bytree"] < 1 and self.count:
            self._begin(self.model())  # the booster's start seeds the column draws: restarting each round gives the same draws after a kill
        for _ in range(more):
            self._booster.update(self._rows, self.count)

    def margin(self, matrix: Floats) -> Floats:
        return margin(self._booster, matrix)

    def cut(self, count: int) -> None:
        self._booster = self._booster[:count]

    def finish(self) -> None:
        document = json.loads(self._booster.save_raw("json"))
        for tree in document["learner"]["gradient_booster"]["model"]["trees"][self._finished :]:
            at = np.array(tree["split_conditions"], np.float32)
            inner = np.array(tree["left_children"]) != -1
            lower = at - np.maximum(np.abs(at) * np.float32(HAIR), np.float32(1e-30))
            tree["split_conditions"] = [float(value) for value in np.where(inner, lower, at)]
        self._booster.load_model(bytearray(json.dumps(document).encode()))

    def trees(self) -> Trees:
        return trees(self._booster)

    def model(self) -> bytes:
        return bytes(self._booster.save_raw("ubj"))


def settings(params: GbmParams, seed: int) -> dict[str, Any]:
    ranks = params.objective == "rank"
    options = {
        "objective": "rank:pairwise" if ranks else "binary:logistic",
        "base_score": 0.0 if ranks else 0.5,
        "tree_method": "hist",
        "device": params.device,
        "max_depth": depth_of(params),
        "learning_rate": params.learning_rate,
        "subsample": params.subsample,
        "colsample_bytree": columns_of(params),
        "reg_lambda": params.regularisation,
        "min_child_weight": params.least,
        "seed": seed,
        "seed_per_iteration": True,  # so that a training from a checkpoint draws the same rows
        "nthread": THREADS,
    }
    if params.leaves is not None:
        options |= {"grow_policy": "lossguide", "max_leaves": params.leaves}
    if ranks:
        options |= {"lambdarank_pair_method": "mean", "lambdarank_num_pair_per_sample": 4}
    return options


def check_device(params: GbmParams, build: dict[str, Any]) -> None:
    if params.device != "cuda":
        return
    if not build.get("USE_CUDA"):
        raise Invalid("model.params.device: this XGBoost was built without CUDA: leave device out, or use an image with 'xgboost'")
    if not gpu_sizes():  # XGBoost would continue on the CPU
        raise Invalid("model.params.device: cuda needs a GPU, and nvidia-smi finds none here: leave device out")


def quiet(xgboost: Any) -> None:
    xgboost.set_config(verbosity=0)


def _iterator(xgboost: Any, parts: Parts, grouped: bool) -> Any:
    class Rows(xgboost.DataIter):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left, self._before = parts(), 0
            super().__init__()

        def next(self, input_data: Callable[..., Any]) -> bool:
            part = next(self._left, None)
            if part is None:
                return False
            groups = {}
            if grouped:
                number = np.cumsum(np.append(True, part.groups[1:] != part.groups[:-1])) + self._before
                self._before = int(number[-1])
                groups = {"qid": number}
            input_data(data=part.matrix, label=part.labels, **groups)
            return True

        def reset(self) -> None:
            self._left, self._before = parts(), 0

    return Rows()


def load(stored: bytes) -> Any:
    """Loads a saved model."""
    xgboost: Any = library("xgboost")
    quiet(xgboost)
    booster = xgboost.Booster({"nthread": THREADS})
    try:
        booster.load_model(bytearray(stored))
    except xgboost.core.XGBoostError as error:
        raise BadData(f"the trees are damaged: {str(error).splitlines()[0][:200]}") from None
    return booster


def margin(booster: Any, matrix: Floats) -> Floats:
    margins: Floats = booster.inplace_predict(matrix, predict_type="margin").astype(np.float32)
    return margins


def trees(booster: Any) -> Trees:
    import treelite

    return trees_from(treelite.frontend.from_xgboost(booster))
