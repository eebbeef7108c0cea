"""The family `transitions`: which items follow the user's newest items, counted in the sequences of all users.

A user's score for an item is the sum, over the user's newest items, of how strongly the item follows each of them
(`pipelines.training.transitions`), times a weight that falls with the number of newer items. Unknown users get the mean of all users. The
model keeps all sequences: a warm run continues them and counts again.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.arrays import read_arrays, write_arrays
from pipelines.features.columns import NULL
from pipelines.features.onnx_builder import OnnxBuilder
from pipelines.features.reading import Reads
from pipelines.inputs.tables import Codes
from pipelines.models.family import MODEL, Fetch, Fitted, Task
from pipelines.models.like_pairs import metrics_of_likes
from pipelines.models.tables import Table, check_size
from pipelines.models.user_history import (
    ITEMS,
    LIKED,
    WEIGHTS,
    Floats,
    HistoryModel,
    UserHistory,
    history_of,
    load_user_history,
    save_user_history,
)
from pipelines.models.user_sequences import sequences_of
from pipelines.training.likes import LikesByRow
from pipelines.training.sparse import sparse
from pipelines.training.transitions import Followers, count_transitions, strongest
from shared.contracts.families import TransitionsParams

FOLLOWERS, SEQUENCES = "followers.npz", "sequences.npz"


@dataclass(frozen=True)
class TransitionsModel(HistoryModel):
    """Implements Trained, ScoresAll and ReadsRecentItems."""

    meaning: ClassVar[str] = "strength with which the item follows the user's newest items: only for comparison"

    followers: Followers
    """By item code; the row of the code NULL has the mean of all users."""
    sequences: LikesByRow
    """By user code, the oldest item first."""
    until: float
    """Time of the newest training row."""

    @property
    def tables(self) -> tuple[Table, ...]:
        items, count = self.followers.items.shape
        return (Table(self.item, items, 2 * count, None),)

    def save(self, folder: Path) -> dict[str, Path]:
        described = folder / MODEL
        facts = {"version": 1, "family": Transitions.name, "user": self.user, "item": self.item, "until": self.until}
        described.write_text(json.dumps(facts, indent=1))
        sequences = {"start": self.sequences.start, "items": self.sequences.others}
        followers = {"items": self.followers.items, "strengths": self.followers.strengths}
        return {
            MODEL: described,
            SEQUENCES: write_arrays(folder / SEQUENCES, sequences),
            FOLLOWERS: write_arrays(folder / FOLLOWERS, followers),
            **save_user_history(self.user_history, folder),
        }

    def score(self, columns: Codes) -> Floats:
        users, items = columns[self.user].astype(np.int64), columns[self.item]
        order = np.argsort(users, kind="stable")
        distinct, first = np.unique(users[order], return_index=True)
        scores = np.empty(len(users), np.float32)
        for user, rows in zip(distinct, np.split(order, first)[1:], strict=True):
            scores[rows] = self.every(np.array([user], np.int32))[0, items[rows]]
        return scores

    def every(self, users: NDArray[np.int32]) -> Floats:
        likes = self.user_history.likes.rows(users)
        scores: Floats = (sparse(likes, len(self.followers.items), likes.weights) @ self._matrix).toarray()
        return scores

    @cached_property
    def _matrix(self) -> Any:
        return self.followers.matrix

    def score_nodes(self, turn: OnnxBuilder) -> str:
        items = turn.node("Gather", turn.initializer("transitions/items", self.followers.items), LIKED)
        strengths = turn.node("Gather", turn.initializer("transitions/strengths", self.followers.strengths), LIKED)
        strengths = turn.node("Mul", strengths, turn.column(WEIGHTS))
        none = turn.initializer("transitions/none", np.zeros(len(self.followers.items), np.float32))
        parts = (turn.node("Reshape", tensor, turn.constant([-1])) for tensor in (items, strengths))
        return turn.node("Gather", turn.node("ScatterElements", none, *parts, axis=0, reduction="add"), ITEMS)


class Transitions:
    """Implements Family."""

    name = "transitions"
    reads: Reads = "keys"

    def train(self, task: Task) -> Fitted:
        params = task.model.params
        assert isinstance(params, TransitionsParams)
        started, graph = time.monotonic(), task.graph
        items = graph.key(graph.item).state.cardinality
        count = min(params.followers, items)
        check_size(graph, 8 * items * count, "fewer followers or a larger min_count", task.memory)
        parent = self.load(task.parent) if task.parent is not None else None
        sequences = sequences_of(task, task.rows, (parent.sequences, parent.until) if parent is not None else None)
        history = newest_items(sequences, items, params.length, params.recency)
        strengths = count_transitions(sequences, items, params.window, params.damping)
        followers = strongest(strengths, count)
        _add_strangers(followers, sparse(history.likes, items, history.likes.weights), strengths)
        until = float(pl.scan_parquet(task.rows).select(pl.col("time").max()).collect().item())
        until = until if parent is None else max(until, parent.until)
        metrics = metrics_of_likes(len(sequences.others), time.monotonic() - started, float(np.count_nonzero(followers.strengths)))
        return Fitted(TransitionsModel(graph.user, graph.item, history, followers, sequences, until), metrics)

    def load(self, fetch: Fetch) -> TransitionsModel:
        value, arrays = json.loads(fetch(MODEL).read_text()), read_arrays(fetch(SEQUENCES))
        followers = Followers(**read_arrays(fetch(FOLLOWERS)))
        history = load_user_history(fetch, len(followers.items))
        sequences = LikesByRow(arrays["start"], arrays["items"])
        return TransitionsModel(value["user"], value["item"], history, followers, sequences, float(value["until"]))


def newest_items(sequences: LikesByRow, items: int, length: int, recency: float) -> UserHistory:
    """Returns each user's newest `length` items, each with the weight of its newest place; users without items like NULL."""
    lengths = sequences.lengths
    users = np.repeat(np.arange(len(lengths)), lengths)
    newer = np.repeat(sequences.start[1:], lengths) - 1 - np.arange(len(users))
    order = np.lexsort((newer, sequences.others, users))
    keys = users[order] * items + sequences.others[order]
    chosen = order[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
    chosen = np.sort(chosen[newer[chosen] < length])
    counts = np.bincount(users[chosen], minlength=len(lengths))
    weights = ((1 + newer[chosen]) ** np.float64(-recency)).astype(np.float32)
    likes = LikesByRow(np.concatenate([[0], np.cumsum(counts)]), sequences.others[chosen], weights)
    return history_of(likes, items)


def _add_strangers(followers: Followers, likes: Any, strengths: Any) -> None:
    """Writes the mean scores of users with items into the row of NULL, the highest ones."""
    weights = likes.sum(axis=0)
    weights[NULL] = 0
    mean = (weights @ strengths) / max(1, likes.shape[0])
    best = np.argsort(-mean, kind="stable")[: followers.items.shape[1]]
    followers.items[NULL], followers.strengths[NULL] = best, mean[best]
