"""scikit-learn's forests: random forests with the best thresholds, extra trees with drawn thresholds.

With labels 0 and 1, regression trees split as classification trees do, and a leaf is the share of likes in it. Only arrays are saved, since
the library's file is a pickle.
"""

from __future__ import annotations

from typing import Any

from pipelines.models.trees.ensemble import Floats, Trees, trees_from
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
        self._forest.estimators_ = []

    @property
    def count(self) -> int:
        return len(self._forest.estimators_)

    def grow(self, more: int) -> None:
        self._forest.n_estimators = self.count + more
        self._forest.fit(self._all_rows.matrix, self._all_rows.labels)

    def margin(self, matrix: Floats) -> Floats:
        return self.trees().score(matrix)

    def cut(self, count: int) -> None:
        self._forest.estimators_ = self._forest.estimators_[:count]
        self._forest.n_estimators = count

    def finish(self) -> None:
        """Does nothing: only arrays are saved."""

    def trees(self) -> Trees:
        import treelite

        return trees_from(treelite.sklearn.import_model(self._forest))

    def model(self) -> bytes:
        return b""
