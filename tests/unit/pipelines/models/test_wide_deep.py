"""Wide & Deep: weights added up beside hidden layers, one table for both, crosses as weights alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipelines.models.neural.fused import fuse
from pipelines.models.neural.model import NeuralModel
from pipelines.models.neural.weights import begin, grow
from pipelines.models.tables import Table
from pipelines.models.wide_deep import architecture_of, first_weights, plan
from shared.contracts.families import WideDeepParams
from shared.domain.errors import Invalid
from tests.support.exported_units import Small, small
from tests.support.feature_graphs import of_keys
from tests.support.neural_model import any_weights

TABLES = (Table("user", 9, 5, None), Table("genres", 5, 5, 3, "sum"), Table("user_x_genres", 6, 1, 3, "sum"))
NUMBERS: tuple[tuple[str, int | None], ...] = (("price", None), ("photo", 2))
ROWS = {
    "user": np.array([2, 8], np.int32),
    "genres": np.array([[2, 4, 0], [0, 0, 0]], np.int32),
    "user_x_genres": np.array([[5, 3, 0], [0, 0, 0]], np.int32),
    "price": np.array([0.5, -1], np.float32),
    "photo": np.array([[0.1, 0.2], [-0.3, 2]], np.float32),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return small(tmp_path_factory.mktemp("small"))


@pytest.mark.requirement("G-19")
@pytest.mark.parametrize("numbers", [NUMBERS, ()])
def test_the_logit_is_the_sum_of_weights_and_what_layers_make_of_the_rest(numbers: Any) -> None:
    architecture = architecture_of(TABLES, WideDeepParams(layers=(6, 5)), numbers)
    weights = any_weights(architecture)
    found = NeuralModel(architecture, weights).score({name: ROWS[name] for name in architecture.features})
    for row in range(2):
        user = weights["table_user/embeddings"][ROWS["user"][row]]
        genres = sum((weights["table_genres/embeddings"][code] for code in ROWS["genres"][row] if code), np.zeros(5))
        crossed = sum(float(weights["table_user_x_genres/embeddings"][code, 0]) for code in ROWS["user_x_genres"][row] if code)
        given = np.array([ROWS["price"][row], *ROWS["photo"][row]] if numbers else [])
        hidden = np.concatenate([user[1:], genres[1:], given])
        for at in range(2):
            hidden = np.maximum(hidden @ weights[f"hidden_{at}/kernel"] + weights[f"hidden_{at}/bias"], 0)
        logit = user[0] + genres[0] + crossed + (hidden @ weights["deep/kernel"] + weights["deep/bias"])[0]
        if numbers:
            logit += (given @ weights["linear/kernel"] + weights["linear/bias"])[0]
        assert found[row] == pytest.approx(1 / (1 + np.exp(-logit)), rel=1e-4)


def test_weights_of_values_begin_at_nothing_and_vectors_do_not() -> None:
    architecture = architecture_of(TABLES, WideDeepParams(layers=(6,)), NUMBERS)
    first, plain = first_weights(architecture, 3), begin(architecture, 3)
    for table in TABLES:
        one, other = (found[f"table_{table.column}/embeddings"] for found in (first, plain))
        assert not one[:, 0].any() and (one[:, 1:] == other[:, 1:]).all() and other[:, 0].any()
    np.testing.assert_array_equal(first["hidden_0/kernel"], plain["hidden_0/kernel"])


@pytest.mark.requirement("G-19", "G-22", "G-23")
def test_a_column_has_one_table_of_whole_lines_and_a_cross_weights_alone(world: Small) -> None:
    by_rule, chosen = (plan(world.graph, WideDeepParams(width=width), None) for width in (None, 7))
    crosses = [one for one in by_rule.tables if one.column == "year_x_hour"]
    assert [(one.width, one.cardinality) for one in crosses] == [(1, 52)]
    assert {one.width for one in by_rule.tables if one not in crosses} == {16}
    assert {one.width for one in chosen.tables if one.column != "year_x_hour"} == {8}
    assert len(fuse(by_rule.tables)) == 2
    assert by_rule.size == sum(one.nbytes for one in begin(by_rule, 1).values())


@pytest.mark.requirement("G-19")
@pytest.mark.parametrize("width", [None, 7])
def test_a_warm_run_has_its_parents_structure(world: Small, width: int | None) -> None:
    params = WideDeepParams(width=width)
    parent = plan(world.graph, params, None)
    again = plan(world.graph, params, parent)
    assert again == parent
    weights = first_weights(parent, 4)
    assert all((one == weights[path]).all() for path, one in grow(again, weights).items())


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({"layers": (9,)}, r"params\.layers: \[9\] is not the parent's \[128, 128, 128\]"),
        ({"width": 8}, r"params\.width: 8 is not the parent's 7"),
        ({"pooling": "mean"}, r"params\.pooling: mean is not the parent's sum"),
    ],
)
def test_a_warm_run_of_another_structure_is_refused(world: Small, params: dict[str, Any], fault: str) -> None:
    parent = plan(world.graph, WideDeepParams(width=7), None)
    with pytest.raises(Invalid, match=f"{fault}: a warm run cannot change it; start a full run"):
        plan(world.graph, WideDeepParams.model_validate(params), parent)


def test_what_would_have_no_effect_is_refused() -> None:
    with pytest.raises(Invalid, match=r"model\.params: 'pooling' has no effect"):
        plan(of_keys(9, 9), WideDeepParams(pooling="mean"), None)
    plan(of_keys(9, 9), WideDeepParams.model_validate_json(WideDeepParams().model_dump_json()), None)


@pytest.mark.requirement("T-13")
def test_a_model_too_large_for_memory_is_refused_before_training(short_of_memory: Callable[[int], None]) -> None:
    short_of_memory(2_000_000_000)
    with pytest.raises(Invalid, match=r"weights take 2\.3 GB"):
        plan(of_keys(1_100_000, 1_100_000), WideDeepParams(width=256), None)
