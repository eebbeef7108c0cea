"""The click benchmark: a family that multiplies finds the planted interactions."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import criteo
from benchmarks.criteo import Shape, World

SMALL = Shape(sizes=(30, 20, 25, 40), numbers=2, pairs=3, rate=0.25, alone=0.4, together=2.0, counted=0.3)


@pytest.mark.requirement("G-19")
def test_dlrm_finds_what_values_say_together_where_sums_of_values_do_not() -> None:
    data = criteo.draw(SMALL, 30_000, 1)
    aucs = {
        name: criteo.train(data, architecture_of(data), 1, 12, 0.01).auc
        for name, architecture_of in (("additive", criteo.additive), ("dlrm", criteo.of_dlrm))
    }
    assert data.test.bayes > aucs["dlrm"] > aucs["additive"] + 0.08
    assert aucs["dlrm"] > data.test.bayes - 0.05


def test_the_whole_world_has_39_columns_and_popular_values() -> None:
    whole = World(Shape(), 1)
    rows = whole.draw(20_000, 1)
    assert len(rows.columns) == 39 and rows.labels.mean() == pytest.approx(0.1, abs=0.02)
    for name, size in zip(whole.names, whole.shape.sizes, strict=True):
        counts = np.bincount(rows.columns[name], minlength=size + 2)
        assert len(counts) == size + 2 and not counts[:2].any() and counts[2] == counts.max()
