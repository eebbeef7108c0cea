"""Recent items in a model's scores: as if the training had known them, equal in the served graph, and nothing without them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from pipelines.features.columns import FIRST, NULL, UNKNOWN
from pipelines.features.operators.base import RECENT, RECENT_LIST
from pipelines.models.attention.item_features import item_vectors
from pipelines.models.attention.shape import Shape, begin
from pipelines.models.ease import EaseModel
from pipelines.models.external_weights import ExternalWeights
from pipelines.models.families import FAMILIES, load_model
from pipelines.models.family import Trained
from pipelines.models.itemknn import ItemKnnModel
from pipelines.models.mf import MfModel
from pipelines.models.recent_items import ReadsRecentItems, reads_recent
from pipelines.models.sequence_session import queries_of, scores_of
from pipelines.models.session import SessionModel, as_likes, newest_of
from pipelines.training.likes import LikePairs
from tests.support import sequence_data, taste_data
from tests.support.taste_data import ITEMS, USERS, pairs

Codes = NDArray[np.int32]
WIDTH = 6
CASES = pytest.mark.parametrize(("family", "weighted"), [("ease", False), ("itemknn", False), ("mf", False), ("mf", True)])
CHOICES: dict[str, dict[str, object]] = {
    "ease": {"regularisation": 50.0},
    "itemknn": {"neighbours": 20},
    "mf": {"width": 8, "regularisation": 0.01},
}


def trained(folder: Path, family: str, weighted: bool, liked: LikePairs | None = None) -> Any:
    liked = liked or pairs()
    if weighted:
        liked = replace(liked, weights=np.random.default_rng(3).uniform(0.1, 9, len(liked)).astype(np.float32))
    return FAMILIES[family].train(taste_data.task(folder, liked, family, **CHOICES[family])).model


def padded(*lists: list[int]) -> Codes:
    return np.array([[*items, *[NULL] * (WIDTH - len(items))] for items in lists], np.int32)


def everything(model: Any, user: int) -> dict[str, Codes]:
    """A user with all items."""
    items = np.arange(ITEMS + FIRST, dtype=np.int32)
    return {model.user: np.full(len(items), user, np.int32), model.item: items}


def scores(model: Any, user: int, recent: list[int]) -> NDArray[np.float32]:
    columns = everything(model, user)
    result: NDArray[np.float32] = model.score_recent(columns, np.repeat(padded(recent), len(columns[model.item]), axis=0))
    return result


def served(model: Any, columns: dict[str, Codes], lists: Codes, number: NDArray[np.int64]) -> NDArray[np.float32]:
    graph = model.lower_recent(ExternalWeights(sys.maxsize), WIDTH).SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    result: NDArray[np.float32] = session.run(["score"], {**columns, RECENT: lists, RECENT_LIST: number})[0]
    return result


@pytest.mark.requirement("U-14")
@CASES
def test_without_recent_items_scores_are_those_of_the_training(tmp_path: Path, family: str, weighted: bool) -> None:
    model = trained(tmp_path, family, weighted)
    own = int(model.user_history.likes.of(FIRST)[0]) if family != "mf" else int(model.solver.history.likes.of(FIRST)[0])
    for user in (UNKNOWN, FIRST, FIRST + 5):
        assert_allclose(scores(model, user, []), model.score(everything(model, user)), atol=1e-6)
    assert_array_equal(scores(model, FIRST, [own, UNKNOWN]), scores(model, FIRST, []), "nothing is new")


@pytest.mark.requirement("U-14")
@CASES
def test_the_served_graph_gives_the_scores_of_the_training(tmp_path: Path, family: str, weighted: bool) -> None:
    """Users with and without new items, unknown users, unknown items, repeats, and lists that several users share."""
    model, random = trained(tmp_path, family, weighted), np.random.default_rng(4)
    lists = padded([], [FIRST + 3], [FIRST + 3, UNKNOWN, FIRST + 1, FIRST + 3], [UNKNOWN], list(range(FIRST, FIRST + WIDTH)))
    number = np.sort(random.integers(0, len(lists), 300))
    users = random.choice([UNKNOWN, *range(FIRST, FIRST + 8)], 300).astype(np.int32)
    columns = {model.user: users, model.item: random.integers(0, ITEMS + FIRST, 300).astype(np.int32)}
    expected = model.score_recent(columns, lists[number])
    assert_allclose(served(model, columns, lists, number), expected, atol=5e-6)
    alone = {name: column[:1] for name, column in columns.items()}
    assert_allclose(served(model, alone, lists[number[:1]], np.zeros(1, np.int64)), expected[:1], atol=5e-6)
    assert_allclose(served(model, columns, padded([]), np.zeros(300, np.int64)), model.score(columns), atol=5e-6)


@pytest.mark.requirement("U-14")
@pytest.mark.parametrize("family", ["ease", "itemknn"])
def test_a_recent_item_counts_as_a_like_of_the_training(tmp_path: Path, family: str) -> None:
    """A stranger with all likes of a known user gets that user's scores, in any order; of a known user only new items count."""
    model = trained(tmp_path, family, weighted=False)
    assert isinstance(model, EaseModel | ItemKnnModel)
    user = next(code for code in range(FIRST, USERS + FIRST) if 1 < len(model.user_history.likes.of(code)) <= WIDTH)
    liked = model.user_history.likes.of(user).tolist()
    expected = model.score(everything(model, user))
    assert_allclose(scores(model, UNKNOWN, liked[::-1]), expected, rtol=1e-6)
    assert_array_equal(scores(model, user, liked[:1]), expected)
    assert not np.allclose(scores(model, user, [next(item for item in range(FIRST, ITEMS) if item not in liked)]), expected)


@pytest.mark.requirement("U-14")
@pytest.mark.parametrize("weighted", [False, True])
def test_the_vector_of_mf_solves_the_equations_of_the_training(tmp_path: Path, weighted: bool) -> None:
    """The equations are written anew, from the objective."""
    model = trained(tmp_path, "mf", weighted)
    assert isinstance(model, MfModel)
    assert model.solver is not None
    terms, items = model.solver.terms, model.factors.items.astype(float)
    liked = pairs() if not weighted else replace(pairs(), weights=np.random.default_rng(3).uniform(0.1, 9, len(pairs())).astype(np.float32))
    for user, recent in ((UNKNOWN, [FIRST + 2, FIRST + 7]), (FIRST + 4, [FIRST + 2, FIRST + 9])):
        own = liked.users + FIRST == user
        weight = np.zeros(len(items))
        weight[liked.items[own] + FIRST] = 1 if liked.weights is None else liked.weights[own]
        weight[[item for item in recent if not weight[item]]] = 1
        met = int((np.abs(items).max(axis=1) > 0).sum())
        strength = terms.regularisation * (weight.sum() + terms.unobserved * met)
        left = (items.T * (weight + terms.unobserved)) @ items + strength * np.eye(items.shape[1])
        expected = items @ np.linalg.solve(left, weight @ items)
        assert_allclose(scores(model, user, recent), expected, atol=5e-6)


@pytest.mark.requirement("U-14")
@CASES
def test_an_item_that_nobody_liked_in_training_changes_nothing(tmp_path: Path, family: str, weighted: bool) -> None:
    """It tells nothing: a stranger who liked it alone is still a stranger, and gets no order without meaning."""
    every = pairs()
    model = trained(tmp_path, family, weighted, every.take(np.flatnonzero(every.items != 7)))
    for user in (UNKNOWN, FIRST):
        assert_array_equal(scores(model, user, [FIRST + 7]), scores(model, user, []))
        assert_allclose(scores(model, user, [FIRST + 7, FIRST + 9]), scores(model, user, [FIRST + 9]), atol=1e-6)
    columns = everything(model, UNKNOWN)
    number = np.zeros(len(columns[model.item]), np.int64)
    assert_allclose(served(model, columns, padded([FIRST + 7]), number), scores(model, UNKNOWN, []), atol=5e-6)


@pytest.mark.requirement("U-14")
@CASES
def test_a_saved_model_reads_recent_items_after_it_is_loaded(tmp_path: Path, family: str, weighted: bool) -> None:
    model = trained(tmp_path, family, weighted)
    files = model.save(tmp_path)
    again: Trained = load_model(files.__getitem__)
    assert isinstance(again, ReadsRecentItems)
    assert reads_recent(again)
    for user in (UNKNOWN, FIRST):
        assert_array_equal(scores(again, user, [FIRST + 1, FIRST + 9]), scores(model, user, [FIRST + 1, FIRST + 9]))


@pytest.mark.requirement("U-14")
def test_an_mf_of_an_older_release_or_by_gradient_reads_none(tmp_path: Path) -> None:
    model = trained(tmp_path, "mf", weighted=False)
    assert not reads_recent(replace(model, solver=None))
    assert not reads_recent(
        FAMILIES["mf"].train(taste_data.task(tmp_path, pairs(), "mf", width=8, regularisation=0.01, loss="softmax")).model
    )


@pytest.mark.requirement("U-14", "G-20")
@pytest.mark.parametrize("objective", ["next", "masked"])
def test_session_reads_recent_items_behind_the_sequence_of_the_training(objective: Any) -> None:
    """Weights of no training: the scores equal those of a user whose known sequence ends with the recent items."""
    shape, random = Shape(sequence_data.ITEMS + FIRST, 16, 1, 2, 5, objective), np.random.default_rng(5)
    weights = {path: (array + random.normal(0, 0.3, array.shape)).astype(np.float32) for path, array in begin(shape, 3).items()}
    newest = newest_of(sequence_data.by_user(sequence_data.pairs()), shape.length)
    newest[-1, 3:] = NULL
    model = SessionModel("user", "item", shape, weights, as_likes(newest), queries_of(shape, weights, newest), 400.0)
    lists = padded([], [FIRST + 3], [UNKNOWN, FIRST + 3, UNKNOWN, FIRST + 1, FIRST + 3], [UNKNOWN], list(range(FIRST, FIRST + WIDTH)))
    number = np.sort(random.integers(0, len(lists), 200))
    columns = {
        "user": random.integers(0, len(newest), 200).astype(np.int32),
        "item": random.integers(0, shape.items, 200).astype(np.int32),
    }
    expected = model.score_recent(columns, lists[number])
    assert_allclose(served(model, columns, lists, number), expected, atol=2e-5)
    assert_allclose(served(model, columns, padded([]), np.zeros(200, np.int64)), model.score(columns), atol=2e-5)
    for row in np.flatnonzero(number == 2)[:5].tolist():
        own = newest[columns["user"][row]]
        ends = [*own[own != NULL].tolist(), FIRST + 3, FIRST + 1, FIRST + 3][-5:]
        sequence = np.array([ends + [NULL] * (5 - len(ends))], np.int32)
        assert_allclose(
            scores_of(shape, weights, sequence, item_vectors(weights)[columns["item"][row : row + 1]]), expected[row : row + 1], atol=1e-5
        )
