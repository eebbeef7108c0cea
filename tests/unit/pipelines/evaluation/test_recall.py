"""Which share of what users liked is retrieved: by popularity, by a model's vectors, and by the files of a served version."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipelines.evaluation import recall as module
from pipelines.evaluation.recall import Retrieve, by_files, by_model, by_popularity, recall
from pipelines.models.family import Embeddings
from pipelines.models.popularity_baseline import Popularity

POPULARITY = Popularity(np.array([10, 20, 30]), np.array([1.0, 3.0, 2.0]), np.array([1, 3, 2]))
VECTORS = np.array([[1, 0], [0, 1], [0.6, 0.6]], np.float32)
QUERIES = np.array([[9, 9], [9, 9], [1, 0.1], [0.1, 1]], np.float32)
"""By code of the user. The first two codes are of users that training does not know."""
CODES = {5: 2, 6: 3, 7: 1}


def model(embeddings: Embeddings | None) -> Any:
    return SimpleNamespace(embeddings=lambda columns: embeddings)


def pairs() -> Any:
    users = SimpleNamespace(of=lambda keys: {"user": np.array([CODES[key] for key in keys.tolist()])})
    return SimpleNamespace(users=users, items=SimpleNamespace(columns={}), graph=SimpleNamespace(user="user"))


def asked(retrieve: Retrieve, users: list[int], count: int) -> list[list[int]]:
    return [rows.tolist() for rows in retrieve(np.array(users), count)]


def test_a_model_retrieves_by_its_vectors_and_popular_items_for_unknown_users(monkeypatch: pytest.MonkeyPatch) -> None:
    retrieve = by_model(model(Embeddings(VECTORS, QUERIES)), pairs(), POPULARITY, np.array([5, 7, 6]))
    assert retrieve is not None
    for cells in (1, 7, 1 << 22):
        monkeypatch.setattr(module, "CELLS", cells)
        assert asked(retrieve, [8, 6, 5, 7], 2) == [[1, 2], [1, 2], [0, 2], [1, 2]]
    assert asked(by_popularity(POPULARITY), [7, 8], 2) == [[1, 2], [1, 2]]
    assert asked(retrieve, [7], 3) == [[1, 2, 0]]


def test_a_model_without_vectors_does_not_retrieve() -> None:
    assert by_model(model(None), pairs(), POPULARITY, np.array([5])) is None


def test_a_served_version_does_not_find_items_that_it_does_not_know(tmp_path: Path) -> None:
    np.savez(tmp_path / "items.npz", items=np.array([30, 10]), vectors=np.array([[0.5, 0], [1, 0]], np.float32))
    np.savez(tmp_path / "users.npz", users=np.array([5]), vectors=np.array([[2, 0]], np.float32))
    retrieve = by_files(tmp_path / "items.npz", tmp_path / "users.npz", POPULARITY)
    assert asked(retrieve, [5], 3) == [[0, 2, 1]]
    assert asked(retrieve, [6], 1) == [[1]]


def test_recall_is_the_share_of_liked_items_among_the_candidates() -> None:
    users = (SimpleNamespace(user=5, targets=np.array([1, 0])), SimpleNamespace(user=6, targets=np.array([2])))
    cases: Any = SimpleNamespace(users=users, keys=np.array([5, 6]), owners=np.array([0, 0, 1]))
    assert recall(by_popularity(POPULARITY), cases, 1).mean == 1 / 3
    assert recall(by_popularity(POPULARITY), cases, 2).mean == 2 / 3
    assert recall(by_popularity(POPULARITY), cases, 3).mean == 1
