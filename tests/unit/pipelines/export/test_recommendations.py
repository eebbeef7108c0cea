"""A version's recommendations as a table: for each user what a plain search over all scores finds."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.export import recommendations
from pipelines.export.recommendations import Entities, RankingVectors, write_recommendations

LOG = logging.getLogger("test")
ITEMS = np.arange(10, 130, 10)


def scores(users: Any, rows: Any) -> Any:
    """Known beforehand, with ties."""
    return ((users * 7 + rows * 5) % 9).astype(np.float32)


def entities(keys: Any, ids: pl.Series | None = None) -> Entities:
    return Entities(keys, pl.Series(keys) if ids is None else ids)


def written(
    path: Path, users: Any, liked: set[tuple[int, int]], k: int, vectors: RankingVectors | None = None
) -> dict[int, list[tuple[int, int, float]]]:
    pairs = pl.DataFrame(
        {"user": [one for one, _ in liked], "item": [one for _, one in liked]}, schema={"user": pl.Int64, "item": pl.Int64}
    )
    count = write_recommendations(path, scores, entities(users), entities(ITEMS), pairs, k, vectors, LOG)
    table = pl.read_parquet(path)
    assert table.schema == {"user": pl.Int64, "place": pl.Int32, "item": pl.Int64, "score": pl.Float32}
    found: dict[int, list[tuple[int, int, float]]] = {}
    for user, place, item, score in table.iter_rows():
        found.setdefault(user, []).append((place, item, score))
    assert len(found) == count
    return found


def expected(user: int, liked: set[tuple[int, int]], k: int, rows: Any) -> list[tuple[int, int, float]]:
    open_ = [(-float(scores(np.array(user), np.array(row))), int(ITEMS[row])) for row in rows if (user, int(ITEMS[row])) not in liked]
    return [(place, item, -score) for place, (score, item) in enumerate(sorted(open_)[:k], 1)]


@pytest.mark.requirement("G-01")
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 50), max_size=12, unique=True),
    st.sets(st.tuples(st.integers(1, 50), st.sampled_from([*ITEMS.tolist(), 7]))),
    st.integers(1, 14),
    st.integers(1, 30),
)
def test_every_user_gets_the_best_that_they_have_not_liked(
    tmp_path_factory: pytest.TempPathFactory, users: list[int], liked: set[tuple[int, int]], k: int, pairs: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recommendations, "_PAIRS", pairs)
        found = written(tmp_path_factory.mktemp("out") / "r.parquet", np.array(users, np.int64), liked, k)
    wanted = {user: expected(user, liked, k, range(len(ITEMS))) for user in users}
    assert found == {user: some for user, some in wanted.items() if some}


def test_with_vectors_only_what_they_find_is_scored(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    users = np.array([3, 5, 8])
    vectors = RankingVectors(
        users, random.normal(size=(3, 4)).astype(np.float32), random.normal(size=(len(ITEMS), 4)).astype(np.float32), 5
    )
    found = written(tmp_path / "r.parquet", users, {(5, 10)}, 3, vectors)
    for place, user in enumerate(users.tolist()):
        rows = np.argsort(-(vectors.queries[place] @ vectors.items.T))[:5]
        assert found[user] == expected(user, {(5, 10)}, 3, rows)
