"""Vectors that come as they are go through a layer norm of their own: each modality by itself, before it stands beside the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from pipelines.models import dcn, deepfm, dlrm, mlp, two_tower, wide_deep
from pipelines.models.deep import level
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.model import NeuralModel
from pipelines.models.neural.network import Dense, Join, LayerNorm, Network
from pipelines.models.neural.weights import begin
from pipelines.models.tables import Table
from shared.contracts.families import DcnParams, DeepFmParams, DlrmParams, MlpParams, TwoTowerParams, WideDeepParams
from shared.domain.errors import Invalid
from tests.support.exported_units import Small, small
from tests.support.feature_graphs import of_keys
from tests.support.neural_model import any_weights

FAMILIES: dict[str, tuple[Any, Any]] = {
    "mlp": (mlp.plan, MlpParams),
    "dlrm": (dlrm.plan, DlrmParams),
    "wide_deep": (wide_deep.plan, WideDeepParams),
    "deepfm": (deepfm.plan, DeepFmParams),
    "dcn": (dcn.plan, DcnParams),
    "two_tower": (two_tower.plan, TwoTowerParams),
}
VECTOR = "movieId_vector"
"""Of three numbers: the one of the small world."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return small(tmp_path_factory.mktemp("small"))


def _norms(architecture: Architecture) -> list[LayerNorm]:
    return [one for one in architecture.network.nodes if isinstance(one, LayerNorm)]


@pytest.mark.requirement("G-15")
def test_a_vector_is_levelled_once_and_nothing_looks_at_it_as_it_was(subtests: pytest.Subtests, world: Small) -> None:
    for family, (plan, params) in FAMILIES.items():
        with subtests.test(family=family):
            architecture = plan(world.graph, params(), None)
            (norm,) = _norms(architecture)
            assert norm.of == (VECTOR,) and architecture.shapes[f"{norm.name}/gamma"] == (3,)
            assert [one for one in architecture.network.nodes if VECTOR in one.of] == [norm]
            assert any(norm.name in one.of for one in architecture.network.nodes)
            assert not _norms(plan(world.graph, params(layer_norm=False), None))


@pytest.mark.requirement("G-15")
def test_what_has_no_effect_and_what_is_not_the_parents_is_refused(subtests: pytest.Subtests, world: Small) -> None:
    for family, (plan, params) in FAMILIES.items():
        with subtests.test(family=family):
            with pytest.raises(Invalid, match=r"'layer_norm' has no effect, because the model takes no vector: leave it out"):
                plan(of_keys(6, 5), params(layer_norm=False), None)
            assert not _norms(plan(of_keys(6, 5), params(), None))
            parent = plan(world.graph, params(), None)
            assert plan(world.graph, params(), parent) == parent
            with pytest.raises(Invalid, match=r"layer_norm: False is not the parent's True: a warm run cannot change it; start a full run"):
                plan(world.graph, params(layer_norm=False), parent)


@pytest.mark.requirement("G-15")
def test_each_modality_counts_alike_whatever_its_size_and_a_missing_one_has_the_bias_alone() -> None:
    network = Network((LayerNorm("level", ("photo",)), Dense("score", ("level",), 1, "linear")))
    architecture = Architecture("mlp", (), (("photo", 3),), network, "linear")
    weights = any_weights(architecture)
    gamma, beta, kernel, bias = (weights[one].astype(np.float64) for one in ("level/gamma", "level/beta", "score/kernel", "score/bias"))
    photos = np.array([[1, 2, 3], [0.4, -0.1, 0.2], [0, 0, 0]], np.float32)
    from_mean = photos - photos.mean(axis=1, keepdims=True)
    rows = from_mean / np.sqrt((from_mean**2).mean(axis=1, keepdims=True) + 1e-6)
    found = NeuralModel(architecture, weights).score({"photo": photos})
    np.testing.assert_allclose(found, ((rows * gamma + beta) @ kernel + bias)[:, 0], rtol=1e-4)
    np.testing.assert_allclose(found[2], (beta @ kernel + bias)[0], rtol=1e-5)
    larger = NeuralModel(architecture, weights).score({"photo": photos[:2] * 1000 + 7})
    np.testing.assert_allclose(larger, found[:2], rtol=1e-3)


def test_a_feature_may_be_called_as_a_node_is() -> None:
    """Until a node has that name it is the feature's."""
    network = Network((Join("photo", ("user", "photo")), Dense("score", ("photo",), 1, "linear")))
    architecture = level(_with_vector(network), ["photo"])
    assert [one.of for one in architecture.network.nodes] == [("photo",), ("user", "~level_photo"), ("photo",)]


@pytest.mark.requirement("G-15", "T-13")
def test_a_row_that_is_almost_flat_is_the_same_in_the_served_graph() -> None:
    network = Network((Join("all", ("user", "photo")), Dense("score", ("all",), 1, "linear")))
    architecture = level(_with_vector(network), ["photo"])
    weights = begin(architecture, 3)
    photos = np.full((40, 3), 0.57735, np.float32) + np.random.default_rng(1).normal(0, 1e-6, (40, 3)).astype(np.float32)
    columns = {"user": np.zeros(40, np.int32), "photo": photos}
    model = NeuralModel(architecture, weights)
    session = onnxruntime.InferenceSession(model.lower().SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, columns)[0], model.score(columns), atol=1e-6)


def _with_vector(network: Network) -> Architecture:
    return Architecture("mlp", (Table("user", 5, 4, None),), (("photo", 3),), network)
