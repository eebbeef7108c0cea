"""The model: widths by the rule, pooling without padding, and warm tables that keep what they know."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipelines.models.deep import layers_of
from pipelines.models.family import MODEL
from pipelines.models.mlp import architecture_of, plan
from pipelines.models.neural.architecture import Architecture, load_architecture
from pipelines.models.neural.model import NeuralModel, load_neural
from pipelines.models.neural.weights import begin, grow
from pipelines.models.tables import Table, padded, plan_tables, width_by_rule
from shared.contracts.families import MlpParams
from shared.domain.errors import Invalid
from tests.support.feature_graphs import of_keys


def _tables(users: int = 6, width: int = 4) -> tuple[Table, ...]:
    return (Table("userId", users, width, None), Table("genres", 5, width, 3))


def _model(*layers: int, tables: tuple[Table, ...] | None = None) -> Architecture:
    return architecture_of(tables or _tables(), MlpParams(layers=layers))


@pytest.mark.requirement("T-07")
def test_the_width_follows_from_the_cardinality() -> None:
    widths = {162_542: 512, 56_662: 512, 21: 16, 2: 16, 4_002: 166}
    assert {cardinality: width_by_rule(cardinality) for cardinality in widths} == widths


@pytest.mark.requirement("G-22")
def test_a_width_by_rule_is_padded_to_whole_cache_lines_and_a_chosen_one_stays() -> None:
    assert [padded(width) for width in (16, 17, 166, 512)] == [16, 32, 176, 512]
    graph = of_keys(4_000, 40)
    assert [one.width for one in plan_tables(graph, None)] == [176, 16]
    assert [one.width for one in plan_tables(graph, 10)] == [10, 10]


@pytest.mark.requirement("T-08", "T-09")
def test_the_notebooks_model_is_embeddings_three_hidden_layers_and_a_sigmoid() -> None:
    architecture = _model(128, 128, 128)
    shapes = architecture.shapes
    assert shapes["table_userId/embeddings"] == (6, 4)
    assert [shapes[f"hidden_{n}/kernel"] for n in range(3)] == [(8, 128), (128, 128), (128, 128)]
    rows = {"userId": np.array([2, 3], np.int32), "genres": np.array([[2, 3, 0], [0, 0, 0]], np.int32)}
    scores = NeuralModel(architecture, begin(architecture, 1)).score(rows)
    assert scores.shape == (2,) and ((scores > 0) & (scores < 1)).all()


@pytest.mark.requirement("T-08")
@pytest.mark.parametrize("pooling", ["mean", "sum"])
def test_multi_hot_values_are_pooled_and_padding_does_not_count(pooling: str) -> None:
    tables = (_tables()[0], Table("genres", 5, 4, 3, pooling))  # type: ignore[arg-type]
    architecture = _model(8, tables=tables)
    genres = [[2, 0, 0], [0, 2, 0], [2, 2, 0], [2, 2, 2], [2, 3, 0], [3, 2, 0]]
    scores = NeuralModel(architecture, begin(architecture, 1)).score(
        {"userId": np.full(6, 2, np.int32), "genres": np.array(genres, np.int32)}
    )
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-6)
    np.testing.assert_allclose(scores[4], scores[5], rtol=1e-6)
    assert abs(scores[4] - scores[0]) > 1e-7
    assert (abs(scores[2:4] - scores[0]) < 1e-7).all() == (pooling == "mean")


def test_a_pooling_without_a_column_to_pool_is_refused() -> None:
    with pytest.raises(
        Invalid, match=r"model\.params: 'pooling' has no effect, because no feature has several codes per row: leave it out"
    ):
        plan(of_keys(9, 9), MlpParams(pooling="sum"), None)


def test_a_spec_that_comes_to_its_stage_with_every_default_written_out_says_nothing_in_vain() -> None:
    plan(of_keys(9, 9), MlpParams.model_validate_json(MlpParams().model_dump_json()), None)


def test_a_saved_model_is_read_back_the_same(tmp_path: Path) -> None:
    architecture = architecture_of(_tables(), MlpParams(layers=(8, 4), batch_norm=True, dropout=0.1), (("price", None), ("photo", 3)))
    model = NeuralModel(architecture, begin(architecture, 3))
    files = model.save(tmp_path)
    again = load_neural(lambda name: files[name])
    rows = {"userId": np.arange(5, dtype=np.int32), "genres": np.arange(15, dtype=np.int32).reshape(5, 3) % 5}
    rows |= {"price": np.arange(5, dtype=np.float32), "photo": np.ones((5, 3), np.float32)}
    np.testing.assert_array_equal(model.score(rows), again.score(rows))
    assert again.architecture == architecture and layers_of(architecture) == (8, 4)


def test_a_model_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """As 0.1.0 wrote it: the layers' widths, and no network."""
    architecture = architecture_of(_tables(), MlpParams(layers=(8, 4)), (("price", None),))
    model = NeuralModel(architecture, begin(architecture, 3))
    files = model.save(tmp_path)
    tables = [{"column": one.column, "cardinality": one.cardinality, "width": one.width, "length": one.length} for one in _tables()]
    said = {"version": 1, "family": "mlp", "tables": tables, "layers": [8, 4], "numbers": [["price", None]]}
    files[MODEL].write_text(json.dumps(said))
    assert load_architecture(files[MODEL]) == architecture
    grown = grow(architecture, load_neural(lambda name: files[name]).weights)
    assert all((grown[path] == one).all() for path, one in model.weights.items())


def test_a_model_of_a_later_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / MODEL).write_text('{"version": 4, "family": "mlp"}')
    with pytest.raises(Invalid, match="version 4 is newer than 3, the newest version of this release"):
        load_architecture(tmp_path / MODEL)


def test_weights_begin_the_same_by_seed_and_another_table_changes_none_of_them() -> None:
    first, again, other = (begin(_model(8), seed) for seed in (1, 1, 2))
    assert all((first[path] == again[path]).all() for path in first)
    assert (first["table_userId/embeddings"] != other["table_userId/embeddings"]).any()
    more = begin(_model(8, tables=(Table("year", 3, 4, None), *_tables())), 1)
    np.testing.assert_array_equal(more["table_userId/embeddings"], first["table_userId/embeddings"])


@pytest.mark.requirement("G-09")
def test_a_grown_table_keeps_its_rows_and_new_rows_begin_near_the_mean_of_the_known() -> None:
    parent = begin(_model(8), 1)
    grown = grow(_model(8, tables=_tables(users=9)), parent)
    old, new = parent["table_userId/embeddings"], grown["table_userId/embeddings"]
    np.testing.assert_array_equal(new[:6], old)
    known = old[2:]
    assert (np.abs(new[6:] - known.mean(axis=0)) < 0.3 * known.std(axis=0)).all() and len(np.unique(new[6:], axis=0)) == 3
    random = grow(_model(8, tables=_tables(users=9)), parent, "random", 1)["table_userId/embeddings"]
    np.testing.assert_array_equal(random, begin(_model(8, tables=_tables(users=9)), 1)["table_userId/embeddings"])
    np.testing.assert_array_equal(grown["hidden_0/kernel"], parent["hidden_0/kernel"])


@pytest.mark.parametrize(
    "changed",
    [_model(9), _model(8, tables=_tables(width=5)), architecture_of(_tables(), MlpParams(layers=(8,), batch_norm=True)), _model(8, 8)],
)
def test_a_warm_start_into_another_shape_is_refused(changed: Architecture) -> None:
    with pytest.raises(Invalid, match="start a full run"):
        grow(changed, begin(_model(8), 1))
    with pytest.raises(Invalid, match="start a full run"):
        grow(_model(8), begin(changed, 1))


@pytest.mark.parametrize(
    ("params", "said"),
    [({"layers": (9,)}, r"layers: \[9\] is not the parent's \[8\]"), ({"pooling": "sum"}, "sum is not the parent's mean")],
)
def test_a_warm_run_with_other_parameters_is_refused(params: dict[str, object], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        plan(of_keys(9, 9), MlpParams.model_validate({"layers": (8,)} | params), _model(8))


@pytest.mark.requirement("T-13")
@pytest.mark.parametrize(("users", "size"), [(1_100_000, r"weights take 2\.3 GB"), (100, None)])
def test_a_model_too_large_for_memory_is_refused_before_training(
    short_of_memory: Callable[[int], None], users: int, size: str | None
) -> None:
    short_of_memory(2_000_000_000)
    graph = of_keys(users, users, "userId", "movieId")
    if size is None:
        assert layers_of(plan(graph, MlpParams(), None)) == (128, 128, 128)
        return
    with pytest.raises(Invalid, match=size):
        plan(graph, MlpParams(width=256), None)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_a_models_size_is_known_before_it_is_built(batch_norm: bool) -> None:
    architecture = architecture_of(_tables(), MlpParams(layers=(8, 4), batch_norm=batch_norm))
    assert architecture.size == sum(weight.nbytes for weight in begin(architecture, 1).values())
