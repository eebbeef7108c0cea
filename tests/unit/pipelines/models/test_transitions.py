"""Transitions: counts against a plain loop; the next item of users in a known order; saved, served and warm models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import polars as pl
import pytest

from pipelines.features.columns import FIRST, NULL
from pipelines.features.operators.base import RECENT, RECENT_LIST
from pipelines.models.external_weights import ExternalWeights
from pipelines.models.families import load_model
from pipelines.models.transitions import Transitions, TransitionsModel, newest_items
from pipelines.training.likes import LikesByRow
from pipelines.training.transitions import count_transitions, strongest
from tests.support.sequence_data import ITEMS, STEPS, USERS, ahead, pairs
from tests.support.taste_data import task

EVERYBODY = np.arange(FIRST, USERS + FIRST, dtype=np.int32)


def trained(folder: Path, liked: Any = None, **more: Any) -> TransitionsModel:
    model = Transitions().train(task(folder, liked or pairs(), "transitions", **more)).model
    assert isinstance(model, TransitionsModel)
    return model


@pytest.mark.parametrize(("window", "damping"), [(1, 0.0), (3, 0.5), (50, 1.0)])
def test_counts_are_those_of_a_plain_loop(window: int, damping: float) -> None:
    random = np.random.default_rng(window)
    parts = [random.integers(2, 9, size) for size in (0, 1, 5, 12, 2)]
    sequences = LikesByRow(np.concatenate([[0], np.cumsum([len(part) for part in parts])]), np.concatenate(parts))
    expected = np.zeros((9, 9))
    for part in parts:
        for place, before in enumerate(part):
            for distance, after in enumerate(part[place + 1 : place + 1 + window], 1):
                expected[before, after] += 1 / distance
    expected *= np.maximum(1, np.bincount(sequences.others, minlength=9))[:, None] ** -damping
    strengths = count_transitions(sequences, 9, window, damping)
    np.testing.assert_allclose(strengths.toarray(), expected, rtol=1e-6)
    followers = strongest(strengths, 3)
    np.testing.assert_allclose(followers.strengths, -np.sort(-expected)[:, :3], rtol=1e-6)


def test_a_users_newest_items_weigh_most_and_an_item_counts_by_its_newest_place() -> None:
    sequences = LikesByRow(np.array([0, 0, 4, 5]), np.array([5, 6, 5, 7, 8]))
    history = newest_items(sequences, 9, 3, 1.0)
    assert history.likes.of(0).tolist() == [NULL]
    assert history.likes.of(1).tolist() == [6, 5, 7]
    np.testing.assert_allclose(history.likes.weights, [1, 1 / 3, 1 / 2, 1, 1])


@pytest.mark.requirement("G-17")
def test_it_predicts_the_next_item_of_users_who_walk_in_a_known_order(tmp_path: Path) -> None:
    model = trained(tmp_path)
    assert (model.every(EVERYBODY)[:, FIRST:].argmax(axis=1) == ahead()).all()


@pytest.mark.requirement("G-17", "T-12")
def test_the_served_graph_and_a_saved_model_score_as_training_does(tmp_path: Path) -> None:
    model = trained(tmp_path, followers=7)
    users, items = (
        side.ravel().astype(np.int32) for side in np.meshgrid(np.arange(USERS + FIRST), np.arange(ITEMS + FIRST), indexing="ij")
    )
    columns = {"user": users, "item": items}
    scores = model.score(columns)
    np.testing.assert_allclose(model.every(np.arange(USERS + FIRST, dtype=np.int32)).ravel(), scores, atol=1e-6)
    (served,) = onnxruntime.InferenceSession(model.lower().SerializeToString()).run(["score"], columns)
    np.testing.assert_allclose(served, scores, atol=1e-6)
    files = model.save(tmp_path)
    np.testing.assert_array_equal(load_model(lambda name: files[name]).score(columns), scores)


@pytest.mark.requirement("U-14")
def test_an_item_of_the_request_counts_as_the_newest(tmp_path: Path) -> None:
    model = trained(tmp_path)
    recent = np.array([[9, 0, 0]], np.int32)
    columns = {"user": np.full(ITEMS, NULL, np.int32), "item": np.arange(FIRST, ITEMS + FIRST, dtype=np.int32)}
    scores = model.score_recent(columns, np.repeat(recent, ITEMS, axis=0))
    assert scores.argmax() + FIRST == 10
    unit = onnxruntime.InferenceSession(model.lower_recent(ExternalWeights(), 3).SerializeToString())
    served = unit.run(["score"], {**columns, RECENT: recent, RECENT_LIST: np.zeros(ITEMS, np.int64)})
    np.testing.assert_allclose(served[0], scores, atol=1e-6)


@pytest.mark.requirement("G-09")
def test_a_warm_run_continues_the_parents_sequences(tmp_path: Path) -> None:
    files = trained(tmp_path).save(tmp_path)
    more = pairs(steps=2, shift=STEPS)
    warm_task = replace(task(tmp_path / "warm", more, "transitions"), parent=lambda name: files[name])
    pl.read_parquet(warm_task.rows).with_columns(pl.col("time") + 10_000).write_parquet(warm_task.rows)
    warm, full = Transitions().train(warm_task).model, trained(tmp_path / "full", pairs(steps=STEPS + 2))
    assert isinstance(warm, TransitionsModel)
    np.testing.assert_allclose(warm.every(EVERYBODY), full.every(EVERYBODY), rtol=1e-5)
