"""DeepFM and DCN-v2 compute their formulas, and a warm run cannot change their structure."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from pipelines.models import dcn, deepfm
from pipelines.models.neural.model import NeuralModel
from pipelines.models.tables import Table
from shared.contracts.families import DcnParams, DeepFmParams
from shared.domain.errors import Invalid
from tests.support.feature_graphs import of_keys
from tests.support.neural_model import any_weights

NUMBERS: tuple[tuple[str, int | None], ...] = (("price", None), ("photo", 2))
ROWS = {
    "user": np.array([2, 8], np.int32),
    "item": np.array([0, 6], np.int32),
    "city": np.array([1, 3], np.int32),
    "price": np.array([0.5, -1], np.float32),
    "photo": np.array([[0.1, 0.2], [-0.3, 2]], np.float32),
}


def tables(width: int) -> tuple[Table, ...]:
    return tuple(Table(name, size, width, None) for name, size in (("user", 9), ("item", 7), ("city", 5)))


def vectors_of(weights: Any) -> list[Any]:
    return [weights[f"table_{name}/embeddings"][ROWS[name]] for name in ("user", "item", "city")]


def layers(weights: Any, rows: Any, count: int) -> Any:
    for at in range(count):
        rows = np.maximum(rows @ weights[f"hidden_{at}/kernel"] + weights[f"hidden_{at}/bias"], 0)
    return rows


def check(architecture: Any, weights: Any, logits: Any) -> None:
    scores = NeuralModel(architecture, weights).score({name: ROWS[name] for name in architecture.features})
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-logits[:, 0])), rtol=1e-4)


def test_deepfm_adds_weights_pairs_and_hidden_layers() -> None:
    architecture = deepfm.architecture_of(tables(5), DeepFmParams(layers=(6, 4), width=4), NUMBERS)
    weights = any_weights(architecture)
    vectors, numbers = vectors_of(weights), np.concatenate([ROWS["price"][:, None], ROWS["photo"]], axis=1)
    parts = [vector[:, 1:] for vector in vectors]
    wide = sum(vector[:, :1] for vector in vectors) + numbers @ weights["linear/kernel"] + weights["linear/bias"]
    machine = sum((one * other).sum(axis=1, keepdims=True) for one, other in combinations(parts, 2))
    deep = layers(weights, np.concatenate([*parts, numbers], axis=1), 2) @ weights["deep/kernel"] + weights["deep/bias"]
    check(architecture, weights, wide + machine + deep)


@pytest.mark.parametrize("crosses", [1, 3])
def test_a_cross_layer_multiplies_the_inputs_with_a_linear_layer_and_adds_what_it_took(crosses: int) -> None:
    architecture = dcn.architecture_of(tables(4), DcnParams(layers=(6, 4), width=4, crosses=crosses), NUMBERS)
    weights = any_weights(architecture)
    first = np.concatenate([*vectors_of(weights), ROWS["price"][:, None], ROWS["photo"]], axis=1)
    rows = first
    for at in range(crosses):
        rows = first * (rows @ weights[f"cross_{at}/kernel"] + weights[f"cross_{at}/bias"]) + rows
    both = np.concatenate([rows, layers(weights, first, 2)], axis=1)
    check(architecture, weights, both @ weights["score/kernel"] + weights["score/bias"])


def test_a_warm_run_keeps_the_structure_of_its_parent() -> None:
    graph = of_keys(9, 7)
    parent = dcn.plan(graph, DcnParams(layers=(6,), crosses=2), None)
    assert dcn.plan(graph, DcnParams(layers=(6,), crosses=2), parent) == parent
    with pytest.raises(Invalid, match=r"model.params.crosses: 3 is not the parent's 2"):
        dcn.plan(graph, DcnParams(layers=(6,)), parent)
    machine = deepfm.plan(graph, DeepFmParams(layers=(6,)), None)
    assert deepfm.plan(graph, DeepFmParams(layers=(6,)), machine) == machine
    with pytest.raises(Invalid, match=r"model.params.width: 7 is not the parent's 15"):
        deepfm.plan(graph, DeepFmParams(layers=(6,), width=7), machine)
