"""The softmax over a batch on TensorFlow: corrected by popularity, and without an item's own copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.frameworks.protocol import Framework
from pipelines.models.neural.losses import InBatch, Loss, log_chances
from pipelines.models.neural.step import LOGISTIC, NeuralStep, StepOptions
from pipelines.models.neural.weights import Weights, begin
from tests.support import neural_model

Made = Callable[..., NeuralStep]


@pytest.fixture(scope="module")
def framework() -> Framework:
    return load_framework("tensorflow")


@pytest.fixture
def made(framework: Framework) -> Made:
    def make(architecture: Architecture | None = None, weights: Weights | None = None, loss: Loss = LOGISTIC, **how: Any) -> NeuralStep:
        architecture = architecture or neural_model.mlp()
        return NeuralStep(framework, architecture, weights or begin(architecture, 7), StepOptions(**{"learning_rate": 0.02} | how), loss)

    return make


def _softmax(users: Any, items: Any, codes: Any, chances: Any) -> float:
    """Row by row, as it is written down: the own item's share among itself and the rows of other items."""
    losses = []
    for row, user in enumerate(users):
        others = [place for place in range(len(codes)) if codes[place] != codes[row]]
        shares = np.array([np.exp(user @ items[place]) / np.exp(float(chances[codes[place]])) for place in (row, *others)])
        losses.append(-np.log(shares[0] / shares.sum()))
    return float(np.mean(losses))


def _in_batch(users: Any, items: Any, codes: list[int], chances: Any) -> float:
    """As the step computes it."""
    targets = {
        "items": np.array(codes, np.int32),
        "chances": np.asarray(chances, np.float32)[codes],
        "weights": np.ones(len(codes), np.float32),
    }
    return float(neural_model.in_batch()([np.asarray(users, np.float32), np.asarray(items, np.float32)], targets))


@pytest.mark.requirement("G-01")
def test_the_softmax_over_a_batch_is_the_one_that_is_written_down_with_the_log_of_chances_taken_off(framework: Framework) -> None:
    random = np.random.default_rng(3)
    users, items, codes = random.standard_normal((9, 4)), random.standard_normal((9, 4)), [0, 1, 2, 3, 0, 0, 4, 1, 5]
    chances = np.log([0.5, 0.25, 0.1, 0.08, 0.05, 0.02])
    assert _in_batch(users, items, codes, chances) == pytest.approx(_softmax(users, items, codes, chances), rel=1e-5)
    plain = _softmax(users, items, codes, np.zeros(6))
    assert _in_batch(users, items, codes, np.zeros(6)) == pytest.approx(plain, rel=1e-5)
    assert abs(plain - _softmax(users, items, codes, chances)) > 0.05


@pytest.mark.requirement("G-01")
def test_rows_of_the_same_item_are_no_negatives_of_each_other(framework: Framework) -> None:
    users, items = np.eye(3), np.eye(3)[[0, 1, 0]]
    even = np.zeros(3)
    masked = np.mean([np.log(1 + np.exp(-1)), np.log(1 + 2 * np.exp(-1)), np.log(1 + 1)])
    assert _in_batch(users, items, [0, 1, 0], even) == pytest.approx(masked, rel=1e-5)
    unmasked = np.mean([np.log(2 + np.exp(-1)), np.log(1 + 2 * np.exp(-1)), np.log(2 + 1)])
    assert _in_batch(users, items, [0, 1, 2], even) == pytest.approx(unmasked, rel=1e-5)
    assert _in_batch(users, items, [1, 1, 1], even) == 0


@pytest.mark.requirement("G-01")
def test_with_chances_taken_off_what_is_learned_is_the_catalogues_own_distribution(made: Made) -> None:
    """Everybody likes items by one skewed distribution: corrected, the softmax of scores is that; uncorrected, scores say nothing of it."""
    random = np.random.default_rng(5)
    shares = 1.0 / (1 + np.arange(neural_model.ITEMS))
    shares /= shares.sum()
    counts = 1e6 * shares
    corrected = InBatch("user_vector", "item_vector", "item", log_chances(counts))
    uncorrected = replace(corrected, chances=np.zeros(neural_model.ITEMS, np.float32))
    found = []
    for loss in (corrected, uncorrected):
        architecture = neural_model.towers(normalise=False, temperature=0.1, layers=())
        step = made(architecture, begin(architecture, 7), loss, learning_rate=0.01)
        for _ in range(250):
            batch = neural_model.batch(0, 256)
            batch.columns.update(item=random.choice(neural_model.ITEMS, 256, p=shares).astype(np.int32), user=np.zeros(256, np.int32))
            for name in ("genres", "tags", "year", "price", "photo"):
                batch.columns[name][:] = 0
            step(batch)
        blank = {name: np.repeat(column[:1], neural_model.ITEMS, axis=0) for name, column in batch.columns.items()}
        scores = step.score(blank | {"item": np.arange(neural_model.ITEMS, dtype=np.int32)})
        found.append(float(np.polyfit(np.log(shares), scores, 1)[0]))
    assert 0.7 < found[0] < 1.4 and found[1] < 0.3
