"""Matrix factorisation: exact against the equations, taste found, places for strangers, warm runs that forget nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import polars as pl
import pytest
from pydantic import ValidationError

from pipelines.models.families import load_model
from pipelines.models.family import MODEL, Task
from pipelines.models.mf import VECTORS, Mf, MfModel
from pipelines.training import als
from pipelines.training.als import AlsTerms, begin, sweeps
from pipelines.training.als_choice import STRENGTHS, UNJUDGED, choose_strength
from pipelines.training.likes import LikePairs
from pipelines.training.mf_contrastive import Contrast
from pipelines.training.regularisation_search import FEWEST
from shared.contracts.families import MfParams
from shared.domain.errors import Invalid
from tests.support import taste_data
from tests.support.feature_graphs import of_keys
from tests.support.taste_data import ITEMS, LOG, USERS, pairs, recall

LOSSES = pytest.mark.parametrize("loss", ["als", "softmax", "logistic"])


def task(folder: Path, liked: LikePairs, parent: object = None, **params: object) -> Task:
    slow = {"regularisation": 0.002, "learning_rate": 0.05, "blend": False} if params.get("loss") == "logistic" else {}
    return taste_data.task(folder, liked, "mf", parent, **{"width": 8, "regularisation": 0.01} | slow | params)


def trained(given: Task) -> MfModel:
    model = Mf().train(given).model
    assert isinstance(model, MfModel)
    return model


def found(model: MfModel, liked: LikePairs, hidden: LikePairs | None = None) -> float:
    return recall(model.every(np.arange(liked.user_count) + 2)[:, 2:], liked, hidden)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("cells", [als.CELLS, 64])
@pytest.mark.parametrize("width", [3, 8, 40])
def test_each_user_is_the_exact_solution_of_its_equation(monkeypatch: pytest.MonkeyPatch, width: int, cells: int, weighted: bool) -> None:
    """However small the batches, which sum a long row in pieces; with more and with fewer likes than numbers in a vector."""
    monkeypatch.setattr(als, "CELLS", cells)
    liked, terms = pairs(), AlsTerms(0.2, 0.05)
    if weighted:
        liked = replace(liked, weights=np.random.default_rng(3).uniform(0.1, 9, len(liked)).astype(np.float32))
    factors = begin(USERS, ITEMS, width, 1)
    items = factors.items.copy()
    next(sweeps(liked, factors, terms, 1))
    rated = np.zeros((USERS, ITEMS))
    rated[liked.users, liked.items] = 1 if liked.weights is None else liked.weights
    for user in range(USERS):
        vectors, weights = items[rated[user] > 0].astype(float), rated[user][rated[user] > 0]
        strength = terms.regularisation * (weights.sum() + terms.unobserved * ITEMS)
        left = (vectors.T * weights) @ vectors + terms.unobserved * items.T.astype(float) @ items + strength * np.eye(width)
        np.testing.assert_allclose(factors.users[user], np.linalg.solve(left, weights @ vectors), rtol=2e-3, atol=2e-4)


@pytest.mark.requirement("U-04")
def test_weights_of_purchases_rank_held_out_purchases_higher(tmp_path: Path) -> None:
    """Each user buys in one group of items and clicks anywhere: with weights, the model follows the purchases."""
    random, users, items, groups = np.random.default_rng(5), 200, 80, 4
    bought = [random.permutation(np.arange(user % groups, items, groups))[:9] for user in range(users)]
    clicked = [random.permutation(np.setdiff1d(np.arange(items), bought[user]))[:14] for user in range(users)]
    hidden = LikePairs(np.repeat(np.arange(users), 3), np.concatenate([some[6:] for some in bought]), users, items)
    codes = np.concatenate([user * items + np.concatenate([bought[user][:6], clicked[user]]) for user in range(users)])
    weights = np.tile(np.repeat([10.0, 1.0], [6, 14]), users).astype(np.float32)
    order = random.permutation(len(codes))
    flat = LikePairs(codes[order] // items, codes[order] % items, users, items)
    hits = {}
    for name, liked in {"flat": flat, "weighted": replace(flat, weights=weights[order])}.items():
        scores = trained(task(tmp_path / name, liked)).every(np.arange(users) + 2)[:, 2:]
        hits[name] = recall(scores, hidden, flat)
    assert hits["weighted"] > hits["flat"] + 0.15


def test_sweeps_lower_the_loss_and_equal_seeds_give_equal_vectors() -> None:
    liked, terms = pairs(), AlsTerms(0.1, 0.001)
    first, second = begin(USERS, ITEMS, 8, 3), begin(USERS, ITEMS, 8, 3)
    losses = list(sweeps(liked, first, terms, 6))
    list(sweeps(liked, second, terms, 6))
    assert losses[0] > losses[-1] > 0
    np.testing.assert_array_equal(first.users, second.users)


@LOSSES
@pytest.mark.requirement("G-18")
def test_it_finds_the_tastes_of_users_in_likes_that_it_never_saw(tmp_path: Path, loss: str) -> None:
    liked = pairs()
    cut = len(liked) * 4 // 5
    shown, held = liked.take(slice(0, cut)), liked.take(slice(cut, None))
    assert found(trained(task(tmp_path, shown, loss=loss)), held, hidden=shown) > 0.7  # ten of thirty-two at random would be a third


def test_strangers_are_the_mean_of_the_known_and_unknown_items_are_nothing(tmp_path: Path) -> None:
    liked = pairs()
    silent = liked.take(np.flatnonzero((liked.users != 5) & (liked.items != 7)))
    factors = trained(task(tmp_path, silent)).factors
    known = np.delete(factors.users[2:], 5, axis=0)
    for code in (0, 1, 7):
        np.testing.assert_allclose(factors.users[code], known.mean(axis=0), rtol=1e-4, atol=1e-6)
    assert not factors.items[[0, 1, 9]].any()
    assert factors.items[2:].any(axis=1).sum() == ITEMS - 1


def test_by_gradient_an_unknown_item_stands_below_all_others_and_a_stranger_is_the_mean(tmp_path: Path) -> None:
    factors = trained(task(tmp_path, pairs(), loss="softmax", blend=True)).factors
    np.testing.assert_allclose(factors.users[:2], np.repeat(factors.users[2:].mean(axis=0, keepdims=True), 2, axis=0), rtol=1e-4)
    assert (factors.items[:2, -1] == factors.items[2:, -1].min()).all()
    assert not factors.items[:2, :-1].any()


@LOSSES
@pytest.mark.requirement("G-18", "T-13")
def test_the_lowered_model_and_the_vectors_give_its_scores(tmp_path: Path, loss: str) -> None:
    given = task(tmp_path, pairs(), loss=loss)
    model = trained(given)
    columns = {"user": np.array([0, 1, 2, 9], np.int32), "item": np.array([2, 3, 1, 11], np.int32)}
    session = onnxruntime.InferenceSession(model.lower().SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["score"], columns)[0], model.score(columns), atol=1e-6)
    found = model.embeddings(given.items.columns)
    np.testing.assert_allclose(found.queries[9] @ found.vectors[9], model.score(columns)[3], atol=1e-6)


@LOSSES
def test_a_saved_model_is_read_back_the_same(tmp_path: Path, loss: str) -> None:
    model = trained(task(tmp_path, pairs(), loss=loss))
    files = model.save(tmp_path)
    again = load_model(lambda name: files[name])
    assert isinstance(again, MfModel)
    np.testing.assert_array_equal(again.factors.users, model.factors.users)
    assert (again.user, again.item, again.regularisation, again.meaning) == ("user", "item", model.regularisation, model.meaning)


@LOSSES
@pytest.mark.requirement("G-09", "G-18")
def test_a_warm_run_keeps_its_parents_tastes_learns_new_users_and_ends_where_a_full_one_does(tmp_path: Path, loss: str) -> None:
    everything = pairs(users=USERS + 20)
    old, new = (everything.take(np.flatnonzero(side)) for side in (everything.users < USERS, everything.users >= USERS))
    files = trained(task(tmp_path / "parent", replace(old, user_count=USERS), loss=loss)).save(tmp_path)
    pl.DataFrame({"user": everything.users, "item": everything.items, "label": 1, "before": 1}).write_parquet(tmp_path / "history.parquet")
    given = replace(task(tmp_path / "warm", new, lambda name: files[name], loss=loss), history=tmp_path / "history.parquet")
    fitted = Mf().train(given)
    warm, full = fitted.model, trained(task(tmp_path / "full", everything, loss=loss))
    assert isinstance(warm, MfModel)
    assert warm.factors.users.shape == (USERS + 22, 8 if loss == "als" else 9)
    assert len(fitted.facts["losses"]) == (MfParams().sweeps if loss == "als" else MfParams().epochs) // 3
    assert min(found(warm, old), found(warm, new)) > 0.95 * found(full, everything) > 0.5


def test_a_warm_run_can_not_change_the_width(tmp_path: Path) -> None:
    files = trained(task(tmp_path, pairs())).save(tmp_path)
    with pytest.raises(Invalid, match=r"model\.params\.width: 16 is not the parent's 8: a warm run cannot change it; start a full run"):
        Mf().train(task(tmp_path, pairs(), lambda name: files[name], width=16))


def test_a_warm_run_can_not_change_the_loss(tmp_path: Path) -> None:
    files = trained(task(tmp_path, pairs())).save(tmp_path)
    with pytest.raises(Invalid, match=r"model\.params\.loss: 'softmax' is not the parent's 'als': a warm run cannot change it"):
        Mf().train(task(tmp_path, pairs(), lambda name: files[name], loss="softmax"))


def test_a_rate_that_breaks_the_loss_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contrast, "epoch", lambda training: math.nan)
    with pytest.raises(Invalid, match=r"model\.params\.learning_rate: the loss is not finite in epoch 1; 0\.5 is too high"):
        Mf().train(task(tmp_path, pairs(), loss="softmax", learning_rate=0.5))


@pytest.mark.parametrize(("params", "idle"), [({"blend": False}, "blend"), ({"loss": "softmax", "sweeps": 3}, "sweeps")])
def test_what_has_no_effect_with_a_loss_is_refused(params: dict[str, object], idle: str) -> None:
    with pytest.raises(ValidationError, match=f"params: '{idle}' has no effect with loss"):
        MfParams(**params)  # type: ignore[arg-type]


@pytest.mark.requirement("T-13")
def test_a_model_too_large_for_memory_is_refused_before_training(short_of_memory: Callable[[int], None], tmp_path: Path) -> None:
    short_of_memory(2_000_000_000)
    given = task(tmp_path, pairs(), width=1024)
    large = of_keys(600_000, 40)
    with pytest.raises(Invalid, match=r"weights take 2\.5 GB"):
        Mf().train(replace(given, graph=large))


def test_without_a_like_there_is_nothing_to_learn_from(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="learns from positives of known users and items, but none exist"):
        Mf().train(task(tmp_path, pairs().take(slice(0, 0))))


def test_the_regularisation_is_the_one_that_ranks_the_newest_likes_best(tmp_path: Path) -> None:
    liked = pairs()
    assert choose_strength(liked, 8, 0.1, 1, LOG) in STRENGTHS
    assert choose_strength(liked.take(slice(0, FEWEST)), 8, 0.1, 1, LOG) == UNJUDGED
    model = trained(task(tmp_path, liked, regularisation=None))
    assert json.loads(model.save(tmp_path)[MODEL].read_text())["regularisation"] == model.regularisation
    assert (tmp_path / VECTORS).exists()
