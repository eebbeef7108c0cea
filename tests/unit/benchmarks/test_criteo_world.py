"""The click benchmark: its generated world, and the best possible AUC."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import criteo
from benchmarks.criteo import Shape, World
from benchmarks.learning import auc

SMALL = Shape(sizes=(30, 20, 25, 40), numbers=2, pairs=3, rate=0.25, alone=0.4, together=2.0, counted=0.3)


def test_an_auc_is_the_share_of_pairs_in_the_right_order() -> None:
    scores, labels = np.array([0.1, 0.4, 0.4, 0.8, 0.3]), np.array([0, 0, 1, 1, 1])
    right = [(one > other) + (one == other) / 2 for one in scores[labels == 1] for other in scores[labels == 0]]
    assert auc(scores, labels) == pytest.approx(np.mean(right))
    assert auc(np.zeros(5), labels) == 0.5 and auc(labels, labels) == 1


def test_the_best_possible_auc_is_what_sampled_labels_say_of_the_true_chances() -> None:
    rows = World(SMALL, 1).draw(200_000, 5)
    assert auc(rows.chance, rows.labels) == pytest.approx(rows.bayes, abs=0.005)
    drawn = [auc(rows.chance, np.random.default_rng(seed).random(len(rows)) < rows.chance) for seed in range(5)]
    assert np.mean(drawn) == pytest.approx(rows.bayes, abs=0.002)
    assert 0.75 < rows.bayes < 0.95 and rows.labels.mean() == pytest.approx(0.25, abs=0.01)


def test_nothing_but_the_chances_reaches_the_limit() -> None:
    rows = World(SMALL, 1).draw(50_000, 5)
    noise = np.random.default_rng(1).normal(0, 0.05, len(rows))
    assert auc(rows.chance + noise, rows.chance) < rows.bayes - 0.001
    assert auc(noise, rows.chance) == pytest.approx(0.5, abs=0.01)


def test_one_seed_draws_the_world_and_another_its_rows() -> None:
    one, again, other = (World(SMALL, seed) for seed in (1, 1, 2))
    rows, same = one.draw(500, 3), again.draw(500, 3)
    assert all((rows.columns[name] == same.columns[name]).all() for name in rows.columns) and (rows.labels == same.labels).all()
    assert (rows.chance != other.draw(500, 3).chance).any() and (rows.columns["c0"] != one.draw(500, 4).columns["c0"]).any()


def test_crosses_of_the_planted_pairs_are_codes_within_their_buckets() -> None:
    data = criteo.draw(SMALL, 1_000, 1)
    with_pairs = criteo.crossed(data)
    crosses = [name for name in with_pairs.train.columns if name.startswith("x")]
    assert len(crosses) == 3 and all(with_pairs.train.columns[name].max() < criteo.BUCKETS + 2 for name in crosses)
    assert {table.column: table.width for table in criteo.of_wide_deep(with_pairs).tables} == dict.fromkeys(
        data.world.names, 17
    ) | dict.fromkeys(crosses, 1)
