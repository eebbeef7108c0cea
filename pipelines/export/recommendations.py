"""Table of a version's best items for every known user, for uses without a server.

Items are those of an answer: candidates by vectors, if any, the served unit's scores, without items that the user has liked. Users are
processed in groups, so that memory doesn't grow with their number.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipelines.evaluation.scorers import Scorer
from shared.serving.nearest import best

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

_PAIRS = 200_000
"""Pairs scored at a time."""
_REPORT_EVERY = 5.0


@dataclass(frozen=True, eq=False)
class RankingVectors:
    users: Ints
    """Sorted."""
    queries: Floats
    items: Floats
    candidates: int


@dataclass(frozen=True, eq=False)
class Entities:
    """Users or items of the table: their sorted or catalogue-ordered keys, and the id of each key."""

    keys: Ints
    ids: pl.Series

    @property
    def type(self) -> pa.DataType:
        return pa.string() if self.ids.dtype == pl.String else pa.int64()

    def column(self, places: Ints) -> pa.Array:
        return self.ids.gather(places).to_arrow().cast(self.type)


def write_recommendations(
    path: Path,
    score: Scorer,
    users: Entities,
    items: Entities,
    liked: pl.DataFrame,
    k: int,
    vectors: RankingVectors | None,
    log: logging.Logger,
) -> int:
    """Writes the table; `liked`: pairs to leave out. Returns the number of users with items."""
    row_of = {int(item): row for row, item in enumerate(items.keys)}
    drops: Mapping[int, list[int]] = {
        user: [row_of[item] for item in liked_items if item in row_of]
        for user, liked_items in liked.group_by("user").agg("item").iter_rows()
    }
    served, reported_at = 0, time.monotonic()
    step = max(1, _PAIRS // max(1, min(len(items.keys), vectors.candidates if vectors else len(items.keys))))
    schema = pa.schema([("user", users.type), ("place", pa.int32()), ("item", items.type), ("score", pa.float32())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, len(users.keys), step):
            some = users.keys[start : start + step]
            parts = list(_of(score, some, items.keys, drops, k, vectors))
            if parts:
                rows_of_users, places, rows, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
                columns = [users.column(start + rows_of_users), pa.array(places), items.column(rows), pa.array(scores)]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            served += len(parts)
            if time.monotonic() - reported_at > _REPORT_EVERY:
                reported_at = time.monotonic()
                log.info("recommendations: computed users=%d of=%d", start + len(some), len(users.keys))
    return served


def _of(
    score: Scorer, users: Ints, items: Ints, drops: Mapping[int, list[int]], k: int, vectors: RankingVectors | None
) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yields for each user with items: the user's place among the users, the items' places in the answer, their rows, and their scores."""
    picks = [_without(rows, drops.get(int(user), ())) for user, rows in zip(users, _candidates(users, items, vectors), strict=True)]
    counts = [len(rows) for rows in picks]
    if not sum(counts):
        return
    scores = score(np.repeat(users, counts), np.concatenate(picks)).astype(np.float32)
    for user, (rows, own) in enumerate(zip(picks, np.split(scores, np.cumsum(counts)[:-1]), strict=True)):
        if len(rows):
            chosen = best(own, items[rows], k)
            count = len(chosen)
            yield np.full(count, user), np.arange(1, count + 1, dtype=np.int32), rows[chosen], own[chosen]


def _candidates(users: Ints, items: Ints, vectors: RankingVectors | None) -> Iterator[Ints]:
    every = np.arange(len(items))
    if vectors is None or vectors.candidates >= len(items):
        yield from (every for _ in users)
        return
    places = np.searchsorted(vectors.users, users)
    products = vectors.queries[places] @ vectors.items.T
    for row in products:
        yield np.asarray(best(row, items, vectors.candidates), dtype=np.int64)


def _without(rows: Ints, dropped: Any) -> Ints:
    return rows[~np.isin(rows, dropped)] if len(dropped) else rows
