"""Sums over what a user likes: training's own scores, the whole catalogue at once, and the served graph are one and the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pipelines.features.columns import FIRST
from pipelines.models.ease import Ease, EaseModel
from pipelines.models.families import FAMILIES
from pipelines.models.itemknn import ItemKnn, ItemKnnModel
from pipelines.models.user_history import user_history_of
from pipelines.training.likes import LikePairs
from shared.domain.errors import Invalid
from tests.support.taste_data import ITEMS, USERS, pairs, task

Model = EaseModel | ItemKnnModel
SUMS = ("ease", "itemknn")


@pytest.fixture(scope="module")
def liked() -> LikePairs:
    """User 5 likes nothing, and nobody likes item 7."""
    every = pairs()
    return every.take(np.flatnonzero((every.users != 5) & (every.items != 7)))


@pytest.fixture(scope="module", params=SUMS)
def model(request: pytest.FixtureRequest, liked: LikePairs, tmp_path_factory: pytest.TempPathFactory) -> Model:
    fitted = FAMILIES[request.param].train(task(tmp_path_factory.mktemp("task"), liked, request.param))
    assert isinstance(fitted.model, EaseModel | ItemKnnModel)
    return fitted.model


@pytest.fixture(scope="module")
def served(model: Model) -> Callable[[dict[str, Any]], Any]:
    graph = model.lower()
    onnx.checker.check_model(graph, full_check=True)
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda columns: session.run(["score"], columns)[0]


def codes(users: Any, items: Any) -> dict[str, Any]:
    return {"user": np.array(users, np.int32), "item": np.array(items, np.int32)}


@pytest.mark.requirement("T-13", "G-17")
@settings(max_examples=60, deadline=None)
@given(rows=some.lists(some.tuples(some.integers(0, USERS + 1), some.integers(0, ITEMS + 1)), max_size=60))
def test_pairs_in_any_order_score_the_same_in_training_all_at_once_and_served(
    model: Model, served: Callable[[dict[str, Any]], Any], rows: list[tuple[int, int]]
) -> None:
    columns = codes([user for user, _ in rows], [item for _, item in rows])
    scores = model.score(columns)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(served(columns), scores, atol=1e-5)
    np.testing.assert_allclose(model.every(np.arange(USERS + FIRST))[columns["user"], columns["item"]], scores, atol=1e-5)


def test_strangers_and_who_likes_nothing_are_answered_as_the_mean_of_the_others(model: Model) -> None:
    scores = model.every(np.arange(USERS + FIRST))
    others = np.delete(scores, [0, 1, 5 + FIRST], axis=0)
    for code in (0, 1, 5 + FIRST):
        np.testing.assert_allclose(scores[code], others.mean(axis=0), atol=1e-5)
    assert scores[0].std() > 0
    assert not scores[:, [0, 1, 7 + FIRST]].any()


def test_a_user_may_like_everything_and_a_batch_may_hold_everybody(tmp_path: Path) -> None:
    user, item = (side.ravel() for side in np.meshgrid(np.arange(USERS), np.arange(ITEMS), indexing="ij"))
    kept = (user == 0) | (item % 7 == user % 7)
    liked = LikePairs(user[kept], item[kept], USERS, ITEMS)
    for family in (Ease(), ItemKnn()):
        model = family.train(task(tmp_path, liked, family.name)).model
        session = onnxruntime.InferenceSession(model.lower().SerializeToString(), providers=["CPUExecutionProvider"])
        columns = codes(user + FIRST, item + FIRST)
        np.testing.assert_allclose(session.run(["score"], columns)[0], model.score(columns), atol=1e-5)


def test_of_each_code_one_like_is_known_at_least(liked: LikePairs) -> None:
    history = user_history_of(liked)
    for user in range(USERS):
        expected = np.sort(liked.items[liked.users == user]).tolist()
        assert history.likes.of(user).tolist() == (expected or [0])
    assert history.likes.rows(np.array([3, 5, 3])).others.tolist() == [*history.likes.of(3), 0, *history.likes.of(3)]
    assert history.size == history.likes.others.nbytes + 8 * (USERS + 1)


def test_of_one_user_or_one_item_there_is_a_model_of_finite_numbers(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """There is nothing to tell tastes by, and nothing that fails."""
    for number, (family, (users, items)) in enumerate(product(["ease", "itemknn", "mf"], [(1, 1), (1, 30), (30, 1), (2, 2)])):
        with subtests.test(family=family, users=users, items=items):
            folder = tmp_path / str(number)
            folder.mkdir()
            user, item = (side.ravel() for side in np.meshgrid(np.arange(users), np.arange(items), indexing="ij"))
            model = FAMILIES[family].train(task(folder, LikePairs(user, item, users, items), family)).model
            columns = codes(user + FIRST, item + FIRST)
            session = onnxruntime.InferenceSession(model.lower().SerializeToString(), providers=["CPUExecutionProvider"])
            scores = session.run(["score"], columns)[0]
            assert np.isfinite(scores).all()
            np.testing.assert_allclose(scores, model.score(columns), atol=1e-5)


def test_without_a_like_there_is_nothing_to_learn_from(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for family in ("ease", "itemknn", "mf"):
        message = f"model.family: '{family}' learns from positives of known users and items, but none exist"
        with subtests.test(family=family), pytest.raises(Invalid, match=message):
            FAMILIES[family].train(task(tmp_path, pairs().take(slice(0, 0)), family))
