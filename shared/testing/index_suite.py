"""Conformance suite of CandidateIndex: on small catalogues, approximate indexes must be exact too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shared.ports import CandidateIndex

Array = np.ndarray[Any, Any]
Build = Callable[[Array, Array], CandidateIndex]


def some(count: int, width: int = 8, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


class CandidateIndexSuite:
    @pytest.fixture
    def build(self) -> Build:
        """Returns a function that builds an index of keys and vectors."""
        raise NotImplementedError

    @pytest.mark.requirement("G-01")
    @pytest.mark.parametrize("k", [1, 7, 100])
    def test_it_finds_the_best_of_a_small_catalogue_exactly(self, build: Build, k: int) -> None:
        items, queries = some(700), some(9, seed=2)
        rows, scores = build(np.arange(700), items).nearest(queries, k)
        expected = np.argsort(-(queries @ items.T), axis=1)[:, :k]
        np.testing.assert_array_equal(rows, expected)
        np.testing.assert_allclose(scores, np.take_along_axis(queries @ items.T, expected, axis=1), rtol=1e-5, atol=1e-6)

    def test_equal_scores_are_ordered_by_key_whatever_the_rows(self, build: Build) -> None:
        keys = np.random.default_rng(3).permutation(500)
        items = np.repeat(np.array([[1, 0], [0, 0]], np.float32), 250, axis=0)
        rows, scores = build(keys, items).nearest(np.array([[2, 5], [-1, 0]], np.float32), 300)
        for nearest, first in zip(rows, (np.arange(250), np.arange(250, 500)), strict=True):
            other = np.setdiff1d(np.arange(500), first)
            wanted = [*first[np.argsort(keys[first])], *other[np.argsort(keys[other])][:50]]
            assert nearest.tolist() == wanted
        assert scores[0].tolist() == [2.0] * 250 + [0.0] * 50

    @pytest.mark.parametrize("k", [40, 41, 10_000])
    def test_asked_for_more_than_there_is_it_gives_all_items_in_order(self, build: Build, k: int) -> None:
        rows, scores = build(np.arange(40), some(40)).nearest(some(2), k)
        assert [sorted(nearest) for nearest in rows.tolist()] == [list(range(40))] * 2
        assert (np.diff(scores, axis=1) <= 0).all()

    def test_a_batch_answers_as_its_queries_would_one_by_one(self, build: Build) -> None:
        index, queries = build(np.arange(900), some(900)), some(33, seed=5)
        together = index.nearest(queries, 20)[0]
        np.testing.assert_array_equal(together, np.concatenate([index.nearest(query[None], 20)[0] for query in queries]))

    def test_nothing_is_found_where_nothing_is_asked(self, build: Build) -> None:
        index = build(np.arange(30), some(30))
        assert index.nearest(some(3), 0)[0].shape == (3, 0)
        assert index.nearest(some(3)[:0], 5)[0].shape == (0, 5)
