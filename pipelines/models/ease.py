"""The family `ease`: a weight for each pair of items, solved in closed form.

A user's score for an item is the sum of the weights from the items that the user likes. The model stores each user's likes at training
time, by code (`pipelines.models.user_history`); users without likes and unknown users get the mean score of the users with likes. Weights
are dense: memory and the served graph grow with the square of the number of items, time with the cube of the number of items or of users,
whichever is smaller. So a catalogue that is too large is refused before anything is solved. A warm run solves again, over all likes known
so far.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import psutil
from numpy.typing import NDArray

from pipelines.features.columns import NULL
from pipelines.features.onnx_builder import OnnxBuilder
from pipelines.features.reading import Reads
from pipelines.inputs.tables import Codes
from pipelines.models.family import MODEL, Fetch, Fitted, Task
from pipelines.models.like_pairs import liked_pairs, metrics_of_likes
from pipelines.models.tables import Table, check_size
from pipelines.models.user_history import ITEMS, LIKED, Floats, HistoryModel, load_user_history, save_user_history, user_history_of
from pipelines.training.ease import EaseEquations, memory_needed
from pipelines.training.likes import Ints, LikePairs, Positions
from pipelines.training.regularisation_search import best, climb, hold_out_likes
from pipelines.training.sparse import sparse
from shared.contracts.families import EaseParams
from shared.domain.errors import Invalid

WEIGHTS = "weights.npy"
STRENGTHS = (1.0, 3.0, 10.0, 30.0, 60.0, 100.0, 200.0, 400.0, 700.0, 1000.0, 1500.0, 2500.0, 5000.0)
BEGIN, UNJUDGED = 400.0, 100.0
MOST_INT32 = 2**31 - 1


@dataclass(frozen=True)
class EaseModel(HistoryModel):
    """Implements Trained, ScoresAll and ReadsRecentItems."""

    meaning: ClassVar[str] = "affinity of the user to the item: about 1 for items that match all positives, about 0 for unrelated items"

    weights: Floats
    """[items, items]: from the liked item to the scored item. The row of code NULL holds the scores of unknown users."""
    regularisation: float

    @property
    def tables(self) -> tuple[Table, ...]:
        return (Table(self.item, len(self.weights), len(self.weights), None),)

    def save(self, folder: Path) -> dict[str, Path]:
        described, weights = folder / MODEL, folder / WEIGHTS
        facts = {"user": self.user, "item": self.item, "regularisation": self.regularisation}
        described.write_text(json.dumps({"version": 1, "family": Ease.name} | facts, indent=1))
        np.save(weights, self.weights, allow_pickle=False)
        return {MODEL: described, WEIGHTS: weights} | save_user_history(self.user_history, folder)

    def score(self, columns: Codes) -> Floats:
        def score_user(liked: Positions, items: Ints) -> Floats:
            scores: Floats = self.weights[np.ix_(liked, items)].sum(axis=0)
            return scores

        return self.user_history.scores(columns[self.user].astype(np.int64), columns[self.item].astype(np.int64), score_user)

    def every(self, users: NDArray[np.int32]) -> Floats:
        scores: Floats = sparse(self.user_history.likes.rows(users), len(self.weights)) @ self.weights
        return scores

    def score_nodes(self, turn: OnnxBuilder) -> str:
        large, first = self.weights.size > MOST_INT32, turn.constant([0])
        liked, items = (turn.cast(codes, "INT64") if large else codes for codes in (LIKED, ITEMS))
        width = turn.constant(np.array(len(self.weights), np.int64 if large else np.int32))
        places = turn.node("Add", turn.node("Mul", turn.column(liked), width), turn.node("Unsqueeze", items, first))
        weights = turn.initializer("ease/weights", self.weights.reshape(-1))
        return turn.node("ReduceSum", turn.node("Gather", weights, places), first, keepdims=0)


class Ease:
    """Implements Family."""

    name = "ease"
    reads: Reads = "keys"

    def train(self, task: Task) -> Fitted:
        params = task.model.params
        assert isinstance(params, EaseParams)
        started, graph = time.monotonic(), task.graph
        users, items = (graph.key(column).state.cardinality for column in (graph.user, graph.item))
        _check_memory(users, items, task.memory)
        pairs = liked_pairs(task)
        user_history = user_history_of(pairs)
        check_size(graph, 4 * items**2 + user_history.size, "a larger min_count, or another family", task.memory)
        parent = json.loads(task.parent(MODEL).read_text())["regularisation"] if task.parent is not None else None
        strength = params.regularisation or parent or _choose(pairs, task.model.train.seed, task.log)
        weights = EaseEquations(pairs).weights(strength)
        weights[NULL] = _of_strangers(pairs, weights)
        metrics = metrics_of_likes(len(pairs), time.monotonic() - started, float(items**2))
        return Fitted(EaseModel(graph.user, graph.item, user_history, weights, strength), metrics, {"regularisation": strength})

    def load(self, fetch: Fetch) -> EaseModel:
        value = json.loads(fetch(MODEL).read_text())
        weights = np.load(fetch(WEIGHTS), allow_pickle=False)
        return EaseModel(value["user"], value["item"], load_user_history(fetch, len(weights)), weights, value["regularisation"])


def _check_memory(users: int, items: int, limit: int | None) -> None:
    """Raises Invalid if the arrays of the solver do not fit."""
    need, there = memory_needed(users, items), psutil.virtual_memory().available if limit is None else limit
    if need > there:
        raise Invalid(
            f"model.family: 'ease' has a weight for each pair of items: {items:,} items need {need / 1e9:.1f} GB, but {there / 1e9:.1f} GB"
            " are available: choose a larger min_count, more memory (resources.train.memory), or itemknn or mf"
        )


def _choose(pairs: LikePairs, seed: int, log: logging.Logger) -> float:
    holdout = hold_out_likes(pairs, seed)
    if holdout is None:
        log.info("regularisation: default used, too few positives to choose it value=%g", UNJUDGED)
        return UNJUDGED
    equations = EaseEquations(holdout.before)
    return best(climb(STRENGTHS, BEGIN, lambda strength: holdout.ndcg(equations.scores(strength))), "regularisation", log)


def _of_strangers(pairs: LikePairs, weights: Floats) -> Floats:
    """Returns the scores of unknown users: the mean of the scores of users with likes."""
    liked = np.bincount(pairs.items, minlength=pairs.item_count) / len(np.unique(pairs.users))
    scores: Floats = liked.astype(np.float32) @ weights
    return scores
