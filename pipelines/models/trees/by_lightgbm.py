"""LightGBM: grows trees leaf by leaf; all rows are in memory."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from pipelines.models.trees.ensemble import LEAF, Floats, Tree, Trees, joined, not_above
from pipelines.models.trees.growing import THREADS, Parts, columns_of, depth_of, gathered, leaves_of, library
from shared.contracts.families import GbmParams
from shared.domain.errors import BadData

_NOTHING = np.float32(1e-35)
_CATEGORICAL, _LEFT, _MISSING = 1, 2, 12
"""Bits of a node's decision type."""


class LightGBM:
    """Implements Grower."""

    def __init__(self, params: GbmParams, seed: int, parts: Parts, before: bytes | None) -> None:
        self._library: Any = library("lightgbm")
        all_rows = gathered(parts)
        groups = None
        if params.objective == "rank":
            ends = np.flatnonzero(np.append(all_rows.groups[1:] != all_rows.groups[:-1], True)) + 1
            groups = np.diff(ends, prepend=0)
        parent = load(before) if before is not None else None
        options = {"verbosity": -1, "num_threads": THREADS, "deterministic": True, "force_row_wise": True, "seed": seed}
        start = None if parent is None else parent.predict(all_rows.matrix, raw_score=True)
        rows = self._library.Dataset(all_rows.matrix, all_rows.labels, group=groups, init_score=start, params=options, free_raw_data=True)
        self._old = parent
        self._booster = self._library.Booster(options | settings(params, parent is not None), rows)

    @property
    def count(self) -> int:
        return (self._old.num_trees() if self._old is not None else 0) + int(self._booster.num_trees())

    def grow(self, more: int) -> None:
        for _ in range(more):
            self._booster.update()

    def margin(self, matrix: Floats) -> Floats:
        margins = margin(self._booster, matrix)
        return margins if self._old is None else margins + margin(self._old, matrix)

    def cut(self, count: int) -> None:
        while self.count > count:
            self._booster.rollback_one_iter()

    def finish(self) -> None:
        """Merges the trees of the parent and the new trees into one booster."""
        if self._old is not None:
            text = merged(self._old.model_to_string(), self._booster.model_to_string())
            self._old, self._booster = None, load(text.encode())

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
    return joined([_tree_of(block) for block in _blocks(booster.model_to_string())], strict=False)


def merged(old: str, new: str) -> str:
    """Returns one model text of both models' trees; the new trees are numbered after the old ones."""
    head, first, tail = _cut(old)
    second = _cut(new)[1]
    blocks = [re.sub(r"^Tree=\d+", f"Tree={at}", block) for at, block in enumerate([*first, *second])]
    sizes = " ".join(str(len(block.encode())) for block in blocks)
    return re.sub(r"(?m)^tree_sizes=.*$", f"tree_sizes={sizes}", head) + "".join(blocks) + tail


def _cut(text: str) -> tuple[str, list[str], str]:
    """Splits a model text into the part before the trees, the trees, and the rest."""
    begin, end = text.index("Tree=0\n"), text.index("end of trees")
    return text[:begin], re.findall(r"Tree=\d+\n.*?(?=Tree=|\Z)", text[begin:end], re.DOTALL), text[end:]


def _blocks(text: str) -> list[dict[str, str]]:
    return [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in _cut(text)[1]]


def _around_zero(thresholds: Floats) -> Floats:
    """Moves thresholds near zero, because LightGBM treats values nearer to zero than `_NOTHING` as zero."""
    below = np.nextafter(-_NOTHING, np.float32(-1))
    adjusted = np.where((thresholds >= -_NOTHING) & (thresholds < 0), below, thresholds)
    return np.array(np.where((thresholds >= 0) & (thresholds < _NOTHING), _NOTHING, adjusted), np.float32)


def _tree_of(fields: dict[str, str]) -> Tree:
    """Converts a tree: leaves come after the nodes, and a negative child is `~` the leaf's number."""
    inner = int(fields["num_leaves"]) - 1

    def numbers(name: str, kind: Any) -> Any:
        return np.array(fields.get(name, "").split(), dtype=kind)

    value = numbers("leaf_value", np.float64)
    kinds = numbers("decision_type", np.int64) if inner else np.zeros(0, np.int64)
    if (kinds & _CATEGORICAL).any():
        raise BadData("the trees have splits by category, but only number splits are supported")
    threshold = numbers("threshold", np.float64) if inner else np.zeros(0)
    yes, no = ((numbers(name, np.int64) if inner else np.zeros(0, np.int64)) for name in ("left_child", "right_child"))
    # If training had no missing values at the node, LightGBM treats a missing value as 0.
    missing = np.where(kinds & _MISSING, (kinds & _LEFT) != 0, threshold >= 0)
    none, leaves = np.zeros(len(value)), np.full(len(value), LEAF)
    return Tree(
        np.concatenate([numbers("split_feature", np.int64) if inner else np.zeros(0, np.int64), leaves]),
        np.concatenate([_around_zero(not_above(threshold)), none]),
        np.concatenate([np.where(yes < 0, inner + ~yes, yes), none]),
        np.concatenate([np.where(no < 0, inner + ~no, no), none]),
        np.concatenate([missing, none]),
        np.concatenate([np.zeros(inner), value]),
    )
