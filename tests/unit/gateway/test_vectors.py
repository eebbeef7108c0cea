"""What a loaded version retrieves: exactly its nearest items, nothing for strangers, and one clear error for files that don't fit."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from pipelines.export.neighbours import build_index
from services.gateway.loaded_version import LoadedVersion, load_unit
from services.index.exact import ExactIndex
from services.index.opening import OpenIndexes
from services.index.quantised import QuantisedIndex
from shared.domain.errors import Unavailable
from shared.ports import Version
from shared.telemetry import metrics
from shared.testing.records import LINEAGE
from tests.support.gateway_world import Artifacts

ITEMS = np.array([30, 10, 20, 40], np.int64)
VECTORS = np.array([[1, 0], [0, 1], [2, 1], [0, 0]], np.float32)
USERS = np.array([5, 7], np.int64)
QUERIES = np.array([[1, 0], [0, 3]], np.float32)
INPUTS = [{"name": "user", "dtype": "int64", "side": "user"}, {"name": "item", "dtype": "int64", "side": "item"}]


def npz(**arrays: np.ndarray[Any, Any]) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def npy(array: np.ndarray[Any, Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def load(**changed: bytes | None) -> LoadedVersion:
    contents: dict[str, bytes | None] = {
        "signature.json": json.dumps({"user": "user", "item": "item", "inputs": INPUTS}).encode(),
        "catalogue.npz": npz(item=ITEMS),
        "popular.npy": npy(ITEMS),
        "users.npy": npy(USERS),
        "embeddings.npz": npz(items=ITEMS, vectors=VECTORS),
        "queries.npz": npz(users=USERS, vectors=QUERIES),
    }
    contents |= {name.replace("__", "."): content for name, content in changed.items()}
    artifacts = Artifacts()
    files = {name: artifacts.keep(content) for name, content in contents.items() if content is not None}
    version = Version("films", 1, "r1", "", files, {}, LINEAGE, None, datetime(2026, 1, 1, tzinfo=UTC))
    return load_unit(version, artifacts, OpenIndexes())  # type: ignore[arg-type]


def keys(rows: Any) -> list[int] | None:
    return None if rows is None else ITEMS[rows].tolist()


@pytest.mark.requirement("G-01")
def test_a_users_nearest_items_come_first_equal_ones_by_key() -> None:
    unit = load()
    assert keys(unit.retrieve(5, 2)) == [20, 30]
    assert keys(unit.retrieve(5, 10)) == [20, 30, 10, 40]
    assert keys(unit.retrieve(7, 3)) == [10, 20, 30]


def test_several_users_are_answered_at_once_and_strangers_get_nothing() -> None:
    unit = load()
    assert [keys(rows) for rows in unit.retrieve_many([7, 6, 5, 7, 99], 2)] == [[10, 20], None, [20, 30], [10, 20], None]
    assert unit.retrieve(6, 2) is None
    assert unit.retrieve_many([6], 2) == [None]
    assert unit.retrieve_many([], 2) == []


def test_likeness_is_the_angle_not_the_length_and_no_item_is_like_itself() -> None:
    unit = load()
    assert keys(unit.similar(30, 2)) == [20, 10]
    assert keys(unit.similar(20, 9)) == [30, 10]
    assert keys(unit.similar(40, 2)) == []
    assert unit.similar(50, 2) is None


@pytest.mark.parametrize("absent", ["embeddings__npz", "queries__npz"])
def test_a_version_without_vectors_retrieves_nothing(absent: str) -> None:
    unit = load(**{absent: None})
    assert (unit.vectors, unit.retrieve(5, 2), unit.similar(30, 2), unit.retrieve_many([5, 7], 2)) == (None, None, None, [None, None])


INVALID_VECTORS = [
    ("embeddings__npz", b"no archive", r"embeddings\.npz: cannot be read"),
    ("embeddings__npz", npz(items=ITEMS), r"embeddings\.npz: cannot be read"),
    ("embeddings__npz", npz(items=ITEMS, vectors=VECTORS.astype(float)), "expected one int64 'items' and one float32 vector per row"),
    ("embeddings__npz", npz(items=ITEMS, vectors=VECTORS[:3]), "expected one int64 'items' and one float32 vector per row"),
    ("embeddings__npz", npz(items=ITEMS[::-1], vectors=VECTORS), "embeddings.npz and catalogue.npz have different items"),
    ("embeddings__npz", npz(items=ITEMS, vectors=VECTORS * np.float32(np.nan)), "vectors contain NaN or infinite values"),
    ("queries__npz", npz(users=USERS, vectors=QUERIES[:, :1]), "does not fit embeddings.npz"),
    ("queries__npz", npz(users=USERS[::-1], vectors=QUERIES), "does not fit embeddings.npz"),
    ("queries__npz", npz(users=np.array([object()] * 2), vectors=QUERIES), r"queries\.npz: cannot be read"),
]


def test_vectors_that_could_not_be_served_are_refused_in_one_line(subtests: pytest.Subtests) -> None:
    for name, content, said in INVALID_VECTORS:
        with subtests.test(name=name, said=said):
            with pytest.raises(Unavailable, match=said) as caught:
                load(**{name: content})
            assert str(caught.value).startswith("version 1 of films: ")


def test_the_index_that_export_built_is_used() -> None:
    unit = load(candidates__index=build_index(VECTORS, QUERIES, 2, 1).content)
    assert unit.vectors is not None
    assert isinstance(unit.vectors.index, QuantisedIndex)
    assert keys(unit.retrieve(5, 2)) == [20, 30]


@pytest.mark.parametrize("content", [build_index(VECTORS, QUERIES, 2, 1).content[:-1], b"no index", b""])
def test_without_an_index_that_can_be_used_candidates_are_found_exactly_and_counted(
    content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    before = metrics.UNUSABLE.labels("films")._value.get()
    unit = load(candidates__index=content)
    assert unit.vectors is not None
    assert isinstance(unit.vectors.index, ExactIndex)
    assert keys(unit.retrieve(5, 2)) == [20, 30]
    assert metrics.UNUSABLE.labels("films")._value.get() == before + 1
    (said,) = caplog.messages
    assert said.startswith("index: unusable, slower exact search is used recommender=films version=1 error=candidates.index: ")
