"""Vectors by gradient: the slopes are those of the loss, a sample stands for the catalogue, equal seeds give equal vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipelines.training import mf_contrastive
from pipelines.training.als import Floats
from pipelines.training.likes import Ints, LikePairs
from pipelines.training.mf_contrastive import Adam, Contrast, ContrastiveTask, begin_parts

SOFTMAX, LOGISTIC = ContrastiveTask("softmax", 5, 0.01), ContrastiveTask("logistic", 5, 0.002)
ITEMS = 7
LIKED = np.array([[0, 0, 1], [1, 4, 2]])
"""Of two users: rows and places."""


def loss_of(aim: ContrastiveTask, scores: Floats) -> float:
    """As the module's first lines have it, pair by pair."""
    total = 0.0
    for user in range(2):
        mine = LIKED[1][LIKED[0] == user]
        others = np.delete(scores[user].astype(float), mine)
        for score in scores[user, mine].astype(float):
            if aim.loss == "softmax":
                total -= score - np.log(np.exp(score) + aim.negatives * np.exp(others).mean())
            else:
                total += np.log1p(np.exp(-score)) + aim.negatives * np.log1p(np.exp(others)).mean()
    return float(total)


def slopes_of(aim: ContrastiveTask, scores: Floats) -> tuple[Floats, float]:
    lengths: Ints = np.bincount(LIKED[0])
    return mf_contrastive._slopes(aim, scores.copy(), LIKED[0], LIKED[1], lengths, np.ones(ITEMS, np.float32), ITEMS)


@pytest.mark.parametrize("aim", [SOFTMAX, LOGISTIC])
def test_the_slopes_are_those_of_the_loss(aim: ContrastiveTask) -> None:
    scores = np.random.default_rng(1).standard_normal((2, ITEMS)).astype(np.float32)
    slopes, loss = slopes_of(aim, scores)
    assert loss == pytest.approx(loss_of(aim, scores), rel=1e-5)
    for place in np.ndindex(scores.shape):
        more, less = scores.astype(float), scores.astype(float)
        more[place], less[place] = more[place] + 1e-4, less[place] - 1e-4
        assert slopes[place] == pytest.approx((loss_of(aim, more) - loss_of(aim, less)) / 2e-4, abs=1e-4)


@pytest.mark.parametrize("aim", [SOFTMAX, LOGISTIC])
def test_scores_beyond_all_measure_leave_numbers(aim: ContrastiveTask) -> None:
    scores = np.zeros((2, ITEMS), np.float32)
    scores[0, 0], scores[1, 2] = 3000, -3000
    slopes, loss = slopes_of(aim, scores)
    assert np.isfinite(slopes).all()
    assert np.isfinite(loss)


def worlds(users: int = 60, items: int = 40, groups: int = 4) -> LikePairs:
    """Users like the items of their own group, nearly always."""
    random = np.random.default_rng(1)
    user, item = (side.ravel() for side in np.meshgrid(np.arange(users), np.arange(items), indexing="ij"))
    liked = random.random(len(user)) < np.where(user % groups == item % groups, 0.7, 0.03)
    return LikePairs(user[liked], item[liked], users, items)


def trained(pairs: LikePairs, aim: ContrastiveTask, epochs: int = 40, seed: int = 1) -> tuple[list[float], Floats]:
    """The losses, and the score of each user and item."""
    parts = begin_parts(pairs, 8, aim.blend, seed)
    training = Contrast(pairs, parts, aim, 0.02, epochs, seed)
    losses = [training.epoch() for _ in range(epochs)]
    factors = parts.factors(pairs.by_user())
    return losses, factors.users @ factors.items.T


def told_apart(pairs: LikePairs, scores: Floats, groups: int = 4) -> float:
    """How often an item of the user's own group, not liked yet, stands above another group's."""
    liked = np.zeros(scores.shape, bool)
    liked[pairs.users, pairs.items] = True
    right = []
    for user in range(pairs.user_count):
        own = np.arange(pairs.item_count) % groups == user % groups
        right += (scores[user, own & ~liked[user]][:, None] > scores[user, ~own & ~liked[user]]).ravel().tolist()
    return float(np.mean(right))


@pytest.mark.parametrize("aim", [SOFTMAX, LOGISTIC, replace(SOFTMAX, blend=True), replace(LOGISTIC, blend=True)])
def test_what_a_user_would_like_stands_above_the_rest(aim: ContrastiveTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole catalogue in every step, or a sample of it."""
    monkeypatch.setattr(mf_contrastive, "USERS", 16)
    pairs = worlds()
    losses, scores = trained(pairs, aim)
    assert losses[-1] < losses[0]
    assert told_apart(pairs, scores) > 0.9  # by chance it would be 0.5
    monkeypatch.setattr(mf_contrastive, "SAMPLE", 12)
    assert told_apart(pairs, trained(pairs, aim)[1]) > 0.9


def test_equal_seeds_give_equal_vectors_and_others_do_not() -> None:
    first, second, third = (trained(worlds(), SOFTMAX, 3, seed)[1] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, third)


def test_a_sample_holds_every_like_and_weighs_as_much_as_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mf_contrastive, "SAMPLE", 10)
    pairs = worlds()
    training = Contrast(pairs, begin_parts(pairs, 4, False, 1), SOFTMAX, 0.01, 1, 1)
    for _ in range(5):
        columns, places, weights = training._columns(pairs.items[:30])
        np.testing.assert_array_equal(columns[places], pairs.items[:30])  # type: ignore[index]
        assert weights.sum() == pytest.approx(pairs.item_count)
        assert np.count_nonzero(weights) == 10


def test_an_item_is_as_high_for_everybody_as_it_is_popular_before_anything_is_learned() -> None:
    pairs = worlds()
    level = begin_parts(pairs, 4, False, 1).level
    counts = np.bincount(pairs.items, minlength=pairs.item_count)
    np.testing.assert_array_equal(np.argsort(level, kind="stable"), np.argsort(counts, kind="stable"))


def test_a_row_that_is_met_late_steps_as_boldly_as_one_met_first() -> None:
    values = np.zeros((2, 3), np.float32)
    adam, gradient = Adam(values), np.ones((1, 3), np.float32)
    for _ in range(50):
        adam.step(np.array([0]), gradient, 0.01)
    adam.step(np.array([1]), gradient, 0.01)
    np.testing.assert_allclose(values[1], -0.01, rtol=1e-4)


def test_the_level_is_a_column_like_the_others() -> None:
    pairs = worlds()
    parts = begin_parts(pairs, 8, False, 1)
    factors = parts.factors(pairs.by_user())
    assert factors.items[:, -1].std() == pytest.approx(factors.items[:, :-1].std(), rel=1e-3)
    shown = parts.own @ parts.items.T + parts.level
    np.testing.assert_allclose(factors.users @ factors.items.T, shown - parts.level.mean(), atol=1e-4)
