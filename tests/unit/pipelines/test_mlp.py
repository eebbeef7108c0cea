"""The model: widths by the rule, pooling without padding, and warm tables that keep what they know."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from pipelines.models.mlp import (
    Architecture,
    build,
    grow_weights,
    load_architecture,
    load_weights,
    plan,
    save_weights,
    scorer,
    set_weights,
    weights_of,
)
from pipelines.models.tables import Table, width_by_rule
from pipelines.training.fit import Progress
from shared.contracts.models import MlpParams, Training
from shared.domain.errors import Invalid
from tests.featured import of_keys


def _tables(users: int = 6, width: int = 4) -> tuple[Table, ...]:
    return (Table("userId", users, width, None), Table("genres", 5, width, 3))


def test_a_loss_that_is_no_number_stops_training_and_says_what_to_lower() -> None:
    progress = Progress(Training(), rows=10, log=logging.getLogger("test"))
    progress.epoch(0, {"loss": 0.5})
    with pytest.raises(Invalid, match=r"no longer a number in epoch 2; 0\.003 with adam is too high: lower it"):
        progress.epoch(1, {"loss": float("nan")})


@pytest.mark.requirement("T-07")
@pytest.mark.parametrize(("cardinality", "width"), [(162_542, 512), (56_662, 512), (21, 16), (2, 16), (4_002, 166)])
def test_the_width_follows_from_the_cardinality(cardinality: int, width: int) -> None:
    assert width_by_rule(cardinality) == width


@pytest.mark.requirement("T-08", "T-09")
def test_the_notebooks_model_is_embeddings_three_hidden_layers_and_a_sigmoid() -> None:
    model = build(Architecture(_tables(), (128, 128, 128)))
    shapes = {weight.path: tuple(weight.shape) for weight in model.weights}
    assert shapes["table_userId/embeddings"] == (6, 4)
    assert [shapes[f"hidden_{n}/kernel"] for n in range(3)] == [(8, 128), (128, 128), (128, 128)]
    scores = scorer(model)({"userId": np.array([2, 3], np.int32), "genres": np.array([[2, 3, 0], [0, 0, 0]], np.int32)})
    assert scores.shape == (2,) and ((scores > 0) & (scores < 1)).all()


@pytest.mark.requirement("T-08")
def test_multi_hot_values_are_averaged_and_padding_does_not_count() -> None:
    model = build(Architecture(_tables(), (8,)))
    genres = [[2, 0, 0], [2, 2, 0], [2, 2, 2], [2, 3, 0], [3, 2, 0]]
    scores = scorer(model)({"userId": np.full(5, 2, np.int32), "genres": np.array(genres, np.int32)})
    np.testing.assert_allclose(scores[:3], scores[0], rtol=1e-6)
    np.testing.assert_allclose(scores[3], scores[4], rtol=1e-6)
    assert abs(scores[3] - scores[0]) > 1e-7


def test_a_saved_model_is_built_again_the_same(tmp_path: Path) -> None:
    architecture = Architecture(_tables(), (8, 4))
    model = build(architecture)
    again = build(load_architecture(architecture.save(tmp_path / "model.json")))
    set_weights(again, load_weights(save_weights(model, tmp_path / "weights.npz")))
    rows = {"userId": np.arange(5, dtype=np.int32), "genres": np.arange(15, dtype=np.int32).reshape(5, 3) % 5}
    np.testing.assert_array_equal(scorer(model)(rows), scorer(again)(rows))


def test_a_grown_table_keeps_its_rows_and_new_rows_are_the_mean_of_the_known() -> None:
    parent = weights_of(build(Architecture(_tables(users=6), (8,))))
    grown = build(Architecture(_tables(users=9), (8,)))
    grow_weights(grown, parent)
    old, new = parent["table_userId/embeddings"], weights_of(grown)["table_userId/embeddings"]
    np.testing.assert_array_equal(new[:6], old)
    np.testing.assert_allclose(new[6:], np.repeat(old[2:].mean(axis=0, keepdims=True), 3, axis=0), rtol=1e-6)
    np.testing.assert_array_equal(weights_of(grown)["hidden_0/kernel"], parent["hidden_0/kernel"])


@pytest.mark.parametrize("changed", [Architecture(_tables(), (9,)), Architecture(_tables(width=5), (8,))])
def test_a_warm_start_into_another_shape_is_refused(changed: Architecture) -> None:
    parent = weights_of(build(Architecture(_tables(), (8,))))
    with pytest.raises(Invalid, match="start a full one"):
        grow_weights(build(changed), parent)


@pytest.mark.requirement("T-13")
@pytest.mark.parametrize(("users", "size"), [(1_100_000, r"weights take 2\.3 GB"), (100, None)])
def test_a_model_too_large_for_one_graph_is_refused_before_training(users: int, size: str | None) -> None:
    graph = of_keys(users, users, "userId", "movieId")
    if size is None:
        assert plan(graph, MlpParams(), None).layers == (128, 128, 128)
        return
    with pytest.raises(Invalid, match=size):
        plan(graph, MlpParams(width=256), None)


def test_a_models_size_is_known_before_it_is_built() -> None:
    architecture = Architecture(_tables(), (8, 4))
    assert architecture.size == 4 * sum(weight.size for weight in weights_of(build(architecture)).values())
