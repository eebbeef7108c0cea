"""Sequences of the items that each user liked, in the order of time: the input of the families that learn what comes next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import FIRST, NULL
from pipelines.models.family import Task
from pipelines.training.likes import LikesByRow
from shared.domain.errors import Invalid


def sequences_of(task: Task, rows: Path, before: tuple[LikesByRow, float] | None) -> LikesByRow:
    """Returns the known items that each user code liked, the oldest first, repeats included.

    `before` holds the parent's sequences and the time of its newest row: rows up to that time are in them already.
    """
    graph = task.graph
    users, items = (graph.key(column).state.cardinality for column in (graph.user, graph.item))
    likes = (
        pl.scan_parquet(rows)
        .filter(pl.col("label") > 0)
        .sort("time", maintain_order=True)
        .select("user_code", "item_row", "time")
        .collect()
    )
    of, liked_items = likes["user_code"].to_numpy(), task.items.columns[graph.item][likes["item_row"].to_numpy()]
    if before is not None:
        theirs, until = before
        has_sequence = np.zeros(users, bool)
        has_sequence[: len(theirs.lengths)] = theirs.lengths > 0
        new = (likes["time"].to_numpy() > until) | ~has_sequence[of]
        of = np.concatenate([np.repeat(np.arange(len(theirs.lengths)), theirs.lengths), of[new]])
        liked_items = np.concatenate([theirs.others, liked_items[new]])
    is_known = (of >= FIRST) & (liked_items >= FIRST) & (liked_items < items)
    of, liked_items = of[is_known], liked_items[is_known].astype(np.int32)
    if not len(of):
        raise Invalid(
            f"model.family: '{task.model.family}' learns from positives of known users and items, but none exist: lower min_count"
        )
    order = np.argsort(of, kind="stable")
    return LikesByRow(np.concatenate([[0], np.cumsum(np.bincount(of, minlength=users))]), liked_items[order])


def newest_of(sequences: LikesByRow, length: int) -> NDArray[np.int32]:
    """Returns [users, length]: the newest items of each user, the oldest first, padded with NULL at the end."""
    counts = np.minimum(sequences.lengths, length)
    there = np.arange(length)[None, :] < counts[:, None]
    newest = np.full(there.shape, NULL, np.int32)
    places = (sequences.start[1:] - counts)[:, None] + np.arange(length)[None, :]
    newest[there] = sequences.others[places[there]]
    return newest


def as_likes(rows: NDArray[np.int32]) -> LikesByRow:
    there = rows != NULL
    return LikesByRow(np.concatenate([[0], np.cumsum(there.sum(axis=1))]), rows[there])
