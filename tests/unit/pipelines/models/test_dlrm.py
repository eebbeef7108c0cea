"""DLRM: inner products of every two vectors, numbers among them as one, and what a warm run can't change of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import onnxruntime
import pytest

from pipelines.models.dlrm import architecture_of, plan
from pipelines.models.neural.model import NeuralModel
from pipelines.models.neural.network import Interact
from pipelines.models.tables import Table
from shared.contracts.families import DlrmParams
from shared.domain.errors import Invalid
from tests.support.exported_units import Small, small
from tests.support.feature_graphs import of_keys
from tests.support.neural_model import any_weights

SMALL = {"width": 4, "layers": (6, 5), "bottom": (3,)}
TABLES = (Table("user", 9, 4, None), Table("item", 7, 4, None), Table("genres", 5, 4, 3))
NUMBERS: tuple[tuple[str, int | None], ...] = (("price", None), ("photo", 2))
ROWS = {
    "user": np.array([2, 8], np.int32),
    "item": np.array([0, 6], np.int32),
    "genres": np.array([[2, 4, 0], [0, 0, 0]], np.int32),
    "price": np.array([0.5, -1], np.float32),
    "photo": np.array([[0.1, 0.2], [-0.3, 2]], np.float32),
}


def said(**params: Any) -> DlrmParams:
    return DlrmParams.model_validate(SMALL | params)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return small(tmp_path_factory.mktemp("small"))


@pytest.mark.requirement("G-19")
@pytest.mark.parametrize("itself", [False, True])
@pytest.mark.parametrize("numbers", [NUMBERS, ()])
def test_the_logit_is_what_layers_make_of_inner_products_and_of_the_numbers(itself: bool, numbers: Any) -> None:
    architecture = architecture_of(TABLES, said(itself=itself), numbers)
    weights = any_weights(architecture)
    found = NeuralModel(architecture, weights).score({name: ROWS[name] for name in architecture.features})

    def layers(rows: Any, name: str, count: int) -> Any:
        for at in range(count):
            rows = np.maximum(rows @ weights[f"{name}_{at}/kernel"] + weights[f"{name}_{at}/bias"], 0)
        return rows

    for row in range(2):
        genres = [weights["table_genres/embeddings"][code] for code in ROWS["genres"][row] if code]
        vectors = [weights[f"table_{name}/embeddings"][ROWS[name][row]] for name in ("user", "item")]
        vectors.append(np.mean(genres, axis=0) if genres else np.zeros(4))
        bottom = np.zeros(0)
        if numbers:
            bottom = layers(np.array([ROWS["price"][row], *ROWS["photo"][row]]), "~bottom", 2)
            vectors.insert(0, bottom)
        products = [one @ other for one, other in combinations(vectors, 2)] + [one @ one for one in vectors if itself]
        assert len(products) == architecture.network.widths(architecture.features)["pairs"]
        given = np.concatenate([bottom, _ordered(products, len(vectors), itself)])
        logit = layers(given, "hidden", 2) @ weights["score/kernel"] + weights["score/bias"]
        assert found[row] == pytest.approx(1 / (1 + np.exp(-logit[0])), rel=1e-4)


def _ordered(products: list[Any], count: int, itself: bool) -> Any:
    """As the node has them: each vector with those before it, and with itself."""
    square = dict(zip(combinations(range(count), 2), products, strict=False))
    square |= {(at, at): one for at, one in enumerate(products[len(square) :])}
    return np.array([square[other, one] for one in range(count) for other in range(one + itself)])


def test_each_two_vectors_meet_once() -> None:
    assert Interact("a", ()).places(3) == [3, 6, 7]
    assert Interact("a", (), itself=True).places(3) == [0, 3, 4, 6, 7, 8]
    with pytest.raises(Invalid, match="network node 'a': inputs must have the same width, got 4, 5"):
        Interact("a", ("b", "c")).width([4, 5])


def test_features_may_be_called_as_its_nodes_are() -> None:
    names = {"user": "pairs", "item": "features", "genres": "hidden_0"}
    tables = tuple(replace(one, column=names[one.column]) for one in TABLES)
    other = architecture_of(tables, said(), (("score", None), ("norm_0", 2)))
    plain = architecture_of(TABLES, said(), NUMBERS)
    weights = any_weights(plain)
    renamed = weights | {f"table_{after}/embeddings": weights[f"table_{before}/embeddings"] for before, after in names.items()}
    rows = {names.get(name, {"price": "score", "photo": "norm_0"}.get(name, name)): column for name, column in ROWS.items()}
    model = NeuralModel(other, renamed)
    np.testing.assert_array_equal(model.score(rows), NeuralModel(plain, weights).score(ROWS))
    session = onnxruntime.InferenceSession(model.lower().SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, rows)[0], model.score(rows), atol=1e-6)


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({"layers": (9,)}, r"params\.layers: \[9\] is not the parent's \[128, 64\]"),
        ({"bottom": (9,)}, r"params\.bottom: \[9\] is not the parent's \[64, 32\]"),
        ({"bottom": ()}, r"params\.bottom: \[\] is not the parent's \[64, 32\]"),
        ({"width": 8}, r"params\.width: 8 is not the parent's 16"),
        ({"itself": True}, r"params\.itself: True is not the parent's False"),
        ({"pooling": "sum"}, r"params\.pooling: sum is not the parent's mean"),
    ],
)
def test_a_warm_run_of_another_structure_is_refused(world: Small, params: dict[str, Any], fault: str) -> None:
    parent = plan(world.graph, DlrmParams(), None)
    with pytest.raises(Invalid, match=f"{fault}: a warm run cannot change it; start a full run"):
        plan(world.graph, DlrmParams.model_validate(params), parent)


def test_what_would_have_no_effect_is_refused() -> None:
    with pytest.raises(Invalid, match=r"model\.params: 'bottom' has no effect, because no feature is a number: leave it out"):
        plan(of_keys(9, 9), DlrmParams(bottom=(4,)), None)
    with pytest.raises(Invalid, match=r"model\.params: 'pooling' has no effect"):
        plan(of_keys(9, 9), DlrmParams(pooling="sum"), None)
    plan(of_keys(9, 9), DlrmParams.model_validate_json(DlrmParams().model_dump_json()), None)


@pytest.mark.requirement("T-13")
def test_a_model_too_large_for_memory_is_refused_before_training(short_of_memory: Callable[[int], None]) -> None:
    short_of_memory(2_000_000_000)
    with pytest.raises(Invalid, match=r"weights take 2\.3 GB"):
        plan(of_keys(1_100_000, 1_100_000), DlrmParams(width=256), None)
