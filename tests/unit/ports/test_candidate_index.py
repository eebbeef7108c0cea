"""The CandidateIndex suite on the exact index and on the one that export builds; and the file that lies between export and gateway."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pipelines.export import neighbours
from services.index.exact import ExactIndex
from services.index.opening import OpenIndexes
from services.index.quantised import QuantisedIndex
from shared.domain.errors import BadData
from shared.serving.index_file import MAGIC
from shared.testing.index_suite import Array, Build, CandidateIndexSuite, some

KEYS, ITEMS = np.arange(600), some(600, width=16)


def build_index(vectors: Array, seed: int) -> bytes:
    return neighbours.build_index(vectors, some(8, width=vectors.shape[1], seed=9), 100, seed).content


@pytest.fixture(scope="module")
def built() -> bytes:
    """An index of `ITEMS`."""
    return build_index(ITEMS, 1)


class TestExactIndex(CandidateIndexSuite):
    @pytest.fixture
    def build(self) -> Build:
        return lambda keys, vectors: OpenIndexes().open(keys, vectors, None)


class TestQuantisedIndex(CandidateIndexSuite):
    @pytest.fixture
    def build(self) -> Build:
        return lambda keys, vectors: OpenIndexes().open(keys, vectors, build_index(vectors, 1))


def test_an_empty_catalogue_has_nothing_near() -> None:
    rows, scores = ExactIndex(np.empty(0, np.int64), np.empty((0, 4), np.float32)).nearest(some(2, width=4), 5)
    assert rows.shape == scores.shape == (2, 0)


def test_many_queries_are_answered_in_parts_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = some(20, width=16, seed=2)
    whole = ExactIndex(KEYS, ITEMS).nearest(queries, 10)[0]
    monkeypatch.setattr("services.index.exact.CELLS", 1300)
    assert_array_equal(ExactIndex(KEYS, ITEMS).nearest(queries, 10)[0], whole)


@pytest.mark.requirement("G-01")
def test_the_built_index_finds_nearly_all_of_a_large_catalogue_and_scores_it_exactly() -> None:
    """Vectors as factorisation leaves them: few strong directions, lengths that differ."""
    random = np.random.default_rng(7)
    shape = (1 + np.arange(32)) ** -0.5
    items = (random.standard_normal((30_000, 32)) * shape * np.exp(0.5 * random.standard_normal((30_000, 1)))).astype(np.float32)
    queries = (random.standard_normal((20, 32)) * shape).astype(np.float32)
    keys = np.arange(30_000)
    built = neighbours.build_index(items, queries, 500, 1)
    assert built.recall >= neighbours.RECALL
    index = OpenIndexes().open(keys, items, built.content)
    assert isinstance(index, QuantisedIndex)
    rows, scores = index.nearest(queries, 500)
    exact, _ = ExactIndex(keys, items).nearest(queries, 500)
    assert np.mean([len(np.intersect1d(one, other)) / 500 for one, other in zip(rows, exact, strict=True)]) > 0.97
    assert_allclose(scores, np.take_along_axis(queries @ items.T, rows, axis=1), rtol=1e-4, atol=1e-5)
    assert (np.diff(scores, axis=1) <= 0).all()
    for k in (1, 10, 900):  # fewer than what it was tried with are found as surely, more in proportion
        few, wanted = index.nearest(queries, k)[0], ExactIndex(keys, items).nearest(queries, k)[0]
        assert np.mean([len(np.intersect1d(one, other)) / k for one, other in zip(few, wanted, strict=True)]) > 0.97


def test_what_is_weighed_is_as_little_as_finds_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    items, queries = some(5_000, width=16), some(16, width=16, seed=3)
    few = neighbours.build_index(items, queries, 50, 1)
    monkeypatch.setattr(neighbours, "RECALL", 1.0)
    many = neighbours.build_index(items, queries, 50, 1)
    assert (few.weighed, few.recall) < (many.weighed, many.recall)


def _flipped(at: int) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        damaged = bytearray(content)
        damaged[at] ^= 1
        return bytes(damaged)

    return flip


DAMAGES: list[tuple[str, Callable[[bytes], bytes], str]] = [
    ("empty", lambda _: b"", "not a candidate index"),
    ("first byte of the magic", _flipped(0), "not a candidate index"),
    ("first byte of the header", _flipped(len(MAGIC)), "the header is damaged"),
    ("another byte of the header", _flipped(len(MAGIC) + 5), "the header is damaged"),
    ("cut in the header", lambda content: content[: len(MAGIC) + 2], "the header is damaged"),
    ("last byte", _flipped(-1), "the content is damaged; export it again"),
    ("cut in the content", lambda content: content[:-100], "the content is damaged; export it again"),
    ("longer", lambda content: content + b"more", "the content is damaged; export it again"),
]


def test_a_damaged_file_is_one_clear_error(built: bytes, subtests: pytest.Subtests) -> None:
    for name, damage, message in DAMAGES:
        with subtests.test(name):
            with pytest.raises(BadData, match=message) as caught:
                OpenIndexes().open(KEYS, ITEMS, damage(built))
            assert str(caught.value).startswith("candidates.index: ")
            assert "\n" not in str(caught.value)


def test_an_index_of_other_vectors_is_refused(built: bytes, subtests: pytest.Subtests) -> None:
    for name, others in (("one item less", ITEMS[:-1]), ("narrower", ITEMS[:, :8].copy()), ("negated", -ITEMS)):
        with subtests.test(name), pytest.raises(BadData, match="built from 600 other vectors, not from these"):
            OpenIndexes().open(np.arange(len(others)), others, built)


def test_without_the_library_candidates_are_found_exactly_and_it_is_said(
    built: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with caplog.at_level(logging.WARNING):
        assert isinstance(OpenIndexes().open(KEYS, ITEMS, built), ExactIndex)
    assert "faiss is not installed" in caplog.text


def test_equal_vectors_and_seeds_give_equal_files() -> None:
    assert build_index(ITEMS, 3) == build_index(ITEMS, 3)
