"""A transformer over users' sequences: it says what comes next; the same scores wherever they are computed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import polars as pl
import pytest
from pydantic import ValidationError

from pipelines.features.columns import FIRST, NULL, UNKNOWN
from pipelines.models.attention import plain
from pipelines.models.attention.item_features import item_vectors
from pipelines.models.attention.shape import Shape, begin
from pipelines.models.families import load_model
from pipelines.models.family import MODEL, ScoresAll
from pipelines.models.neural.weights import WEIGHTS
from pipelines.models.session import (
    FEWEST_WINDOWS,
    MOST_WINDOWS,
    QUERIES,
    SEQUENCES,
    Session,
    SessionModel,
    SessionOfKeys,
    as_likes,
    newest_of,
    queries_of,
    sequences_at_once,
    sequences_of,
)
from shared.contracts.families import SessionParams
from shared.domain.errors import EyasError, Invalid
from tests.support.sequence_data import ITEMS, USERS, by_user, pairs, task


@pytest.fixture(scope="module")
def model() -> SessionModel:
    """Weights of no training, and what they make of the sequences of users who walk on."""
    shape, random = Shape(ITEMS + FIRST, 16, 1, 2, 8, "next", 4.0), np.random.default_rng(5)
    weights = {path: (one + random.normal(0, 0.3, one.shape)).astype(np.float32) for path, one in begin(shape, 3).items()}
    newest = newest_of(by_user(pairs()), shape.length)
    return SessionOfKeys("user", "item", shape, weights, as_likes(newest), queries_of(shape, weights, newest), 400.0)


def met() -> dict[str, Any]:
    """Every pair of codes, those of nobody and nothing among them."""
    users, items = np.meshgrid(np.arange(USERS + FIRST), np.arange(ITEMS + FIRST), indexing="ij")
    return {"user": users.ravel().astype(np.int32), "item": items.ravel().astype(np.int32)}


@pytest.mark.requirement("G-20", "T-12")
def test_scores_are_the_same_pair_by_pair_of_all_at_once_by_vectors_and_as_served(model: SessionModel) -> None:
    columns = met()
    scores = model.score(columns)
    assert isinstance(model, ScoresAll)
    np.testing.assert_allclose(model.every(np.arange(USERS + FIRST, dtype=np.int32)).ravel(), scores, atol=1e-4)
    unit = onnxruntime.InferenceSession(model.lower().SerializeToString())
    (served,) = unit.run(None, columns)
    np.testing.assert_allclose(served, scores, atol=1e-5)
    found = model.embeddings({"item": np.arange(ITEMS + FIRST, dtype=np.int32)})
    np.testing.assert_allclose((found.queries @ found.vectors.T).ravel(), scores, atol=1e-4)


@pytest.mark.requirement("G-20")
def test_whoever_is_not_known_is_the_empty_sequence_and_what_is_not_known_stands_last(model: SessionModel) -> None:
    empty = plain.states(model.shape, model.weights, np.zeros((1, 1), np.int32))[0]
    np.testing.assert_allclose(model.queries[[NULL, UNKNOWN]], np.stack([empty, empty]), atol=1e-6)
    vectors = item_vectors(model.weights)
    assert (vectors[:FIRST, :-1] == 0).all() and (vectors[:FIRST, -1] == vectors[FIRST:, -1].min()).all()


def test_a_sequence_is_in_the_order_of_times_and_of_equal_times_in_that_of_the_rows(tmp_path: Path) -> None:
    given = task(tmp_path)
    rows = {"user": [5, 5, 5, 5, 5], "time": [2.0, 1.0, 2.0, 1.0, 0.0], "label": [1, 1, 1, 1, 0], "item_row": [7, 3, 2, 9, 1]}
    frame = pl.DataFrame(rows | {"user_code": [7] * 5, "item": rows["item_row"]}).cast({"user_code": pl.Int32, "item_row": pl.Int32})
    frame.write_parquet(tmp_path / "few.parquet")
    found = sequences_of(given, tmp_path / "few.parquet", None)
    assert (found.of(7) - FIRST).tolist() == [3, 9, 7, 2], "what wasn't liked is left out"
    assert newest_of(found, 3)[7].tolist() == [11, 9, 4] and newest_of(found, 6)[7].tolist() == [5, 11, 9, 4, 0, 0]


def test_what_is_kept_scores_as_what_was_trained(model: SessionModel, tmp_path: Path) -> None:
    files = model.save(tmp_path)
    assert set(files) == {MODEL, WEIGHTS, QUERIES, SEQUENCES}
    found = load_model(lambda name: files[name])
    np.testing.assert_array_equal(found.score(met()), model.score(met()))
    assert found.tables == model.tables


DAMAGE: dict[str, Callable[[Path], object]] = {
    "queries of another width": lambda folder: np.save(folder / QUERIES, np.zeros((USERS + FIRST, 3), np.float32)),
    "queries of other users": lambda folder: np.save(folder / QUERIES, np.zeros((5, 16), np.float32)),
    "another shape": lambda folder: _described(folder, width=8),
    "more blocks": lambda folder: _described(folder, blocks=2),
}


def _described(folder: Path, **more: Any) -> None:
    said = json.loads((folder / MODEL).read_text())
    said["transformer"] |= more
    (folder / MODEL).write_text(json.dumps(said))


@pytest.mark.requirement("N-05")
@pytest.mark.parametrize("what", DAMAGE)
def test_files_that_are_not_of_one_model_are_told(model: SessionModel, tmp_path: Path, what: str) -> None:
    model.save(tmp_path)
    DAMAGE[what](tmp_path)
    with pytest.raises(EyasError, match=r"does not match model.json: the files are of different models"):
        load_model(lambda name: tmp_path / name)


@pytest.mark.requirement("N-05")
@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"heads": 3}, "width 64 is not a multiple of heads, 3"),
        ({"mask": 0.5}, "'mask' has no effect with objective 'next'"),
        ({"length": 0}, "greater than or equal to 1"),
        ({"objective": "both"}, "'next' or 'masked'"),
    ],
)
def test_parameters_that_cant_be_are_refused(params: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        SessionParams.model_validate(params)


@pytest.mark.requirement("G-25", "N-05")
def test_a_step_that_does_not_fit_is_refused_before_the_training() -> None:
    short, long = SessionParams(length=49), SessionParams(length=999)
    assert sequences_at_once(None, short, 100_000).size == MOST_WINDOWS
    assert sequences_at_once(None, short, 1_000).size == FEWEST_WINDOWS
    assert sequences_at_once(None, long, 100_000).size == 33
    assert sequences_at_once(7, long).size == 7
    with pytest.raises(Invalid, match=r"attention of 4,096 sequences of 1,000 places takes 32.8 GB several times over"):
        sequences_at_once(4096, long)


def test_likes_of_nobody_known_are_refused(tmp_path: Path) -> None:
    given = task(tmp_path)
    pl.read_parquet(given.rows).with_columns(user_code=pl.lit(UNKNOWN, pl.Int32)).write_parquet(given.rows)
    with pytest.raises(Invalid, match="'session' learns from positives of known users and items, but none exist"):
        Session().train(given)
