"""The best of many scores are those of a sort, however many there are and however many are equal."""

from __future__ import annotations

import numpy as np
import pytest

from shared.serving.nearest import best


@pytest.mark.parametrize("count", [1, 7, 1_000, 70_000, 140_003])
@pytest.mark.parametrize("values", [1, 5, 10**6])
def test_the_best_are_those_of_a_sort_by_score_and_key(count: int, values: int) -> None:
    random = np.random.default_rng(count + values)
    scores, keys = random.integers(0, values, count).astype(np.float32), random.permutation(count)
    wanted = np.lexsort((keys, -scores))
    for k in (0, 1, 10, 300, 5_000, count):
        assert best(scores, keys, k).tolist() == wanted[:k].tolist()
