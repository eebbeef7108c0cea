"""scikit-learn's forests: random forests with the best thresholds, extra trees with drawn thresholds.

With labels 0 and 1, regression trees split as classification trees do, and a leaf is the share of likes in it. Only arrays are saved, since
the library's file is a pickle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.models.trees.ensemble import LEAF, Floats, Tree, Trees, joined, not_above
from pipelines.models.trees.growing import THREADS, Parts, columns_of, depth_of, gathered, library
from shared.contracts.families import GbmParams


class Forest:
    """Implements Grower."""

    def __init__(self, params: GbmParams, seed: int, parts: Parts) -> None:
        self._all_rows = gathered(parts)
        kinds: Any = library("forest")
        kind = kinds.ExtraTreesRegressor if params.splits == "random" else kinds.RandomForestRegressor
        self._forest = kind(
            n_estimators=0,
            max_depth=depth_of(params),
            max_leaf_nodes=params.leaves,
            max_features=columns_of(params),
            min_samples_leaf=max(1, round(params.least)),
            bootstrap=True,
            max_samples=params.subsample,
            random_state=seed,
            n_jobs=THREADS,
            warm_start=True,
        )
        self._grown: list[Tree] = []

    @property
    def count(self) -> int:
        return len(self._grown)

    def grow(self, more: int) -> None:
        self._forest.n_estimators = self.count + more
        self._forest.fit(self._all_rows.matrix, self._all_rows.labels)
        self._grown += [_tree_of(tree.tree_) for tree in self._forest.estimators_[self.count :]]

    def margin(self, matrix: Floats) -> Floats:
        return self.trees().score(matrix)

    def cut(self, count: int) -> None:
        self._grown = self._grown[:count]

    def finish(self) -> None:
        """Does nothing: only arrays are saved."""

    def trees(self) -> Trees:
        share = 1 / max(1, self.count)
        return joined(
            [Tree(tree.feature, tree.threshold, tree.yes, tree.no, tree.missing, tree.value * share) for tree in self._grown], strict=False
        )

    def model(self) -> bytes:
        return b""


def _tree_of(tree: Any) -> Tree:
    leaf = tree.children_left == -1
    return Tree(
        np.where(leaf, LEAF, tree.feature),
        np.where(leaf, np.float32(0), not_above(tree.threshold)),
        np.where(leaf, 0, tree.children_left),
        np.where(leaf, 0, tree.children_right),
        tree.missing_go_to_left != 0,
        np.where(leaf, tree.value[:, 0, 0], 0),
    )
