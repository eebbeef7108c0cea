"""The family `itemknn`: a user's score for an item is the summed nearness of the item's nearest neighbours that the user likes.

Neighbours are items that the same users like (`pipelines.training.itemknn`). The model stores each user's likes at training time, by code
(`pipelines.models.user_history`); unknown users get the mean of users with likes. Time grows with the pairs of items that users like;
memory and the served graph grow with items times neighbours, so catalogues may be large. A warm run counts again, over all likes so far.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pipelines.arrays import read_arrays, write_arrays
from pipelines.features.columns import NULL
from pipelines.features.onnx_builder import OnnxBuilder
from pipelines.features.reading import Reads
from pipelines.inputs.tables import Codes
from pipelines.models.family import MODEL, Fetch, Fitted, Task
from pipelines.models.like_pairs import liked_pairs, metrics_of_likes
from pipelines.models.tables import Table, check_size
from pipelines.models.user_history import ITEMS, LIKED, Floats, HistoryModel, load_user_history, save_user_history, user_history_of
from pipelines.training.itemknn import Nearness, Neighbours, find_neighbours
from pipelines.training.likes import Ints, LikePairs, LikesByRow, Positions
from pipelines.training.sparse import sparse
from shared.contracts.families import ItemKnnParams

NEIGHBOURS = "neighbours.npz"


@dataclass(frozen=True)
class ItemKnnModel(HistoryModel):
    """Implements Trained, ScoresAll and ReadsRecentItems."""

    meaning: ClassVar[str] = "similarity of the user's positives to the item: a sum over its nearest neighbours, only for comparison"

    near: Neighbours
    """Neighbours by item code; the last column is the code NULL, which unknown users like."""

    @property
    def tables(self) -> tuple[Table, ...]:
        items, count = self.near.items.shape
        return (Table(self.item, items, 2 * count, None),)

    def save(self, folder: Path) -> dict[str, Path]:
        described = folder / MODEL
        described.write_text(json.dumps({"version": 1, "family": ItemKnn.name, "user": self.user, "item": self.item}, indent=1))
        neighbours = write_arrays(folder / NEIGHBOURS, {"items": self.near.items, "nearness": self.near.nearness})
        return {MODEL: described, NEIGHBOURS: neighbours} | save_user_history(self.user_history, folder)

    def score(self, columns: Codes) -> Floats:
        likes = np.zeros(len(self.near.items), np.float32)

        def score_user(liked: Positions, items: Ints) -> Floats:
            likes[liked] = 1
            scores: Floats = (likes[self.near.items[items]] * self.near.nearness[items]).sum(axis=1)
            likes[liked] = 0
            return scores

        return self.user_history.scores(columns[self.user].astype(np.int64), columns[self.item].astype(np.int64), score_user)

    def every(self, users: NDArray[np.int32]) -> Floats:
        scores: Floats = (sparse(self.user_history.likes.rows(users), len(self.near.items)) @ self._from_liked).toarray()
        return scores

    @cached_property
    def _from_liked(self) -> Any:
        """The nearness matrix by liked item, cached because the transposition takes longer than the scores of a few users."""
        items, count = self.near.items.shape
        near = sparse(LikesByRow(np.arange(items + 1) * count, self.near.items.reshape(-1)), items, self.near.nearness.reshape(-1))
        return near.T.tocsr()

    def score_nodes(self, turn: OnnxBuilder) -> str:
        none = turn.initializer("itemknn/none", np.zeros(len(self.near.items), np.float32))
        yes = turn.node("Expand", turn.constant(np.ones(1, np.float32)), turn.node("Shape", LIKED))
        likes = turn.node("ScatterElements", none, LIKED, yes, axis=0)
        there = turn.node("Gather", likes, turn.node("Gather", turn.initializer("itemknn/items", self.near.items), ITEMS))
        near = turn.node("Mul", there, turn.node("Gather", turn.initializer("itemknn/nearness", self.near.nearness), ITEMS))
        return turn.node("ReduceSum", near, turn.constant([1]), keepdims=0)


class ItemKnn:
    """Implements Family."""

    name = "itemknn"
    reads: Reads = "keys"

    def train(self, task: Task) -> Fitted:
        params = task.model.params
        assert isinstance(params, ItemKnnParams)
        started, graph = time.monotonic(), task.graph
        pairs = liked_pairs(task)
        user_history = user_history_of(pairs)
        count = min(params.neighbours, pairs.item_count - 1)
        check_size(graph, 8 * pairs.item_count * (count + 1) + user_history.size, "fewer neighbours or a larger min_count", task.memory)
        near = find_neighbours(pairs, Nearness(count, params.shrink, params.damping, params.pull), NULL)
        metrics = metrics_of_likes(len(pairs), time.monotonic() - started, float(np.count_nonzero(near.nearness)))
        return Fitted(ItemKnnModel(graph.user, graph.item, user_history, _with_strangers(near, pairs)), metrics)

    def load(self, fetch: Fetch) -> ItemKnnModel:
        value = json.loads(fetch(MODEL).read_text())
        near = Neighbours(**read_arrays(fetch(NEIGHBOURS)))
        return ItemKnnModel(value["user"], value["item"], load_user_history(fetch, len(near.items)), near)


def _with_strangers(near: Neighbours, pairs: LikePairs) -> Neighbours:
    """Adds the code NULL as a neighbour of each item, with the mean nearness that the item's neighbours have to users."""
    liked = np.bincount(pairs.items, minlength=pairs.item_count) / len(np.unique(pairs.users))
    mean = (liked[near.items] * near.nearness).sum(axis=1, keepdims=True).astype(np.float32)
    nobody = np.full_like(near.items[:, :1], NULL)
    return Neighbours(np.concatenate([near.items, nobody], axis=1), np.concatenate([near.nearness, mean], axis=1))
