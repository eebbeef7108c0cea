"""EASE: the closed form against plain algebra, taste found, strangers, sizes and memory that are told before."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import psutil
import pytest

from pipelines.models import ease as family
from pipelines.models.ease import Ease, EaseModel
from pipelines.models.families import load_model
from pipelines.models.family import MODEL
from pipelines.training import ease, sparse
from pipelines.training.ease import EaseEquations, solve
from pipelines.training.likes import LikePairs
from shared.contracts.models import Model
from shared.domain.errors import Invalid
from tests.support.feature_graphs import of_keys
from tests.support.taste_data import ITEMS, USERS, ones, pairs, recall, task


def trained(folder: Path, liked: LikePairs, **params: object) -> EaseModel:
    model = Ease().train(task(folder, liked, "ease", **params)).model
    assert isinstance(model, EaseModel)
    return model


def dense(liked: LikePairs, regularisation: float) -> np.ndarray:
    """The closed form by plain algebra."""
    inverse = np.linalg.inv(ones(liked).T @ ones(liked) + regularisation * np.eye(liked.item_count))
    weights: np.ndarray = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    return weights


@pytest.mark.parametrize("cells", [sparse.CELLS, 100])
@pytest.mark.parametrize(("precision", "near"), [(np.float64, 1e-7), (np.float32, 1e-4)])
def test_the_weights_are_the_closed_form(monkeypatch: pytest.MonkeyPatch, cells: int, precision: type, near: float) -> None:
    """However small the blocks."""
    monkeypatch.setattr(sparse, "CELLS", cells)
    weights = solve((ones(pairs()).T @ ones(pairs())).astype(precision), 7.0)
    assert weights.dtype == np.float32
    np.testing.assert_allclose(weights, dense(pairs(), 7.0), atol=near)


@pytest.mark.parametrize("cells", [sparse.CELLS, 100])
@pytest.mark.parametrize(("exact", "near"), [(ease.EXACT, 5e-7), (0, 1e-4)])
@pytest.mark.parametrize(("users", "items"), [(60, 40), (40, 40), (25, 40), (60, 90)])
@pytest.mark.parametrize("regularisation", [1.0, 400.0])
def test_weights_and_scores_are_the_closed_form_from_either_side(
    monkeypatch: pytest.MonkeyPatch, cells: int, exact: int, near: float, users: int, items: int, regularisation: float
) -> None:
    """With fewer users than items, the users' equations give the weights of the items' equations; also with rows without likes."""
    monkeypatch.setattr(sparse, "CELLS", cells)
    monkeypatch.setattr(ease, "EXACT", exact)
    liked = pairs(users=users, items=items)
    liked = liked.take(np.flatnonzero((liked.users != 3) & (liked.items != 5)))
    equations, expected = EaseEquations(liked), dense(liked, regularisation)
    assert equations.by_users == (users < items)
    weights = equations.weights(regularisation)
    assert weights.dtype == np.float32
    np.testing.assert_allclose(weights, expected, atol=near)
    some = np.array([7, 3, 7, 0])
    np.testing.assert_allclose(equations.scores(regularisation)(some), ones(liked)[some] @ expected, atol=20 * near)


def test_no_other_weights_foretell_likes_better() -> None:
    """Each column is the best there is of its regression without the item itself."""
    liked = pairs()
    likes, weights = ones(liked), solve(ones(liked).T @ ones(liked), 5.0).astype(np.float64)

    def loss(tried: np.ndarray) -> float:
        return float(((likes - likes @ tried) ** 2).sum() + 5 * (tried**2).sum())

    random = np.random.default_rng(1)
    for _ in range(20):
        other = weights + 0.01 * random.standard_normal(weights.shape)
        np.fill_diagonal(other, 0)
        assert loss(other) > loss(weights)


@pytest.mark.requirement("G-17")
def test_it_finds_the_tastes_of_users_in_likes_that_it_never_saw(tmp_path: Path) -> None:
    liked = pairs()
    cut = len(liked) * 4 // 5
    shown, held = liked.take(slice(0, cut)), liked.take(slice(cut, None))
    scores = trained(tmp_path, shown).every(np.arange(USERS) + 2)[:, 2:]
    assert recall(scores, held, hidden=shown) > 0.7  # ten of thirty-two at random would be a third


@pytest.mark.parametrize("in_order", [True, False])
def test_the_regularisation_is_one_that_ranks_held_out_likes_best(tmp_path: Path, in_order: bool) -> None:
    model = trained(tmp_path, replace(pairs(users=200), in_order=in_order))
    assert model.regularisation in family.STRENGTHS
    assert json.loads(model.save(tmp_path)[MODEL].read_text())["regularisation"] == model.regularisation
    few = trained(tmp_path, pairs().take(slice(0, 50)))
    assert few.regularisation == family.UNJUDGED


@pytest.mark.requirement("G-09")
def test_a_warm_run_solves_anew_over_every_like_so_far_as_strongly_as_its_parent(tmp_path: Path) -> None:
    everything = pairs()
    old, new = everything.take(slice(0, 300)), everything.take(slice(300, None))
    files = trained(tmp_path / "parent", old, regularisation=3.0).save(tmp_path)
    pl.DataFrame({"user": old.users, "item": old.items, "label": 1, "before": 1}).write_parquet(tmp_path / "history.parquet")
    given = replace(task(tmp_path / "warm", new, "ease", lambda name: files[name]), history=tmp_path / "history.parquet")
    warm = Ease().train(given).model
    assert isinstance(warm, EaseModel)
    full = trained(tmp_path / "full", everything, regularisation=3.0)
    assert warm.regularisation == 3.0
    np.testing.assert_allclose(warm.weights, full.weights, atol=1e-6)


def test_a_saved_model_is_read_back_the_same(tmp_path: Path) -> None:
    model = trained(tmp_path, pairs(), regularisation=3.0)
    files = model.save(tmp_path)
    again = load_model(lambda name: files[name])
    assert isinstance(again, EaseModel)
    np.testing.assert_array_equal(again.weights, model.weights)
    np.testing.assert_array_equal(again.every(np.arange(5)), model.every(np.arange(5)))
    assert [(one.column, one.cardinality, one.width) for one in again.tables] == [("item", ITEMS + 2, ITEMS + 2)]


def test_what_it_would_take_is_told_before_anything_is_solved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = task(tmp_path, pairs(), "ease")
    for users, need in ((60, "1.6"), (30_000, "3.2")):
        with pytest.raises(Invalid, match=rf"20,002 items need {need} GB, but 1\.0 GB are available: choose a larger min_count"):
            Ease().train(replace(given, graph=of_keys(users, 20_000), memory=1_000_000_000))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 10_000}))
    with pytest.raises(Invalid, match=r"but 0\.0 GB are available"):
        Ease().train(given)


def test_numbers_too_short_for_so_little_regularisation_are_no_result() -> None:
    counts = np.full((50, 50), 1e6, np.float32)
    with pytest.raises(FloatingPointError, match="a regularisation of 1e-06 is too small"):
        solve(counts, 1e-6)


def test_settings_of_training_have_no_effect_and_are_refused() -> None:
    with pytest.raises(ValueError, match="'epochs' has no effect: ease is solved in closed form, without steps"):
        Model.model_validate({"family": "ease", "train": {"epochs": 9}})


def test_too_few_likes_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        trained(tmp_path, pairs().take(slice(0, 50)))
    assert "regularisation: default used, too few positives to choose it value=100" in caplog.messages
