"""A user as the items that the user likes, looked up by user code: for families that score an item by a sum over liked items.

Users without likes and unknown users like the code NULL, where a family keeps its scores for unknown users.

In the served unit a loop goes over the distinct users of a batch. So nothing is padded, there is no limit on a user's likes, and a call
costs its users' likes times their scored items. A request for one user takes one iteration. Items that a user liked recently, which the
request brings, are added to the user's stored likes: a set, so an item counts once. An item that nobody liked in training tells nothing,
so it is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pipelines.arrays import read_arrays, write_arrays
from pipelines.features.columns import FIRST, NULL
from pipelines.features.onnx_builder import OnnxBuilder, tensor_info
from pipelines.inputs.tables import Codes
from pipelines.models.external_weights import ExternalWeights, LowersExternalWeights
from pipelines.models.family import Fetch
from pipelines.models.recent_items import pairs_of, parts_of
from pipelines.training.likes import Ints, LikePairs, LikesByRow, Positions

Floats = NDArray[np.float32]
FILE = "known.npz"
LIKED, WEIGHTS, NEW, USER, ITEMS = "turn/liked", "turn/weights", "turn/new", "turn/user", "turn/items"
"""Names in an iteration: the codes that the user likes, their weights if the history has any, those of them that only the request brings,
the user's code, and the codes to score for the user. No column name contains '/'."""


@dataclass(frozen=True)
class UserHistory:
    """The codes of the items that each user code likes, at least one for each."""

    likes: LikesByRow
    item_count: int
    """Number of item codes."""

    @cached_property
    def telling(self) -> NDArray[np.bool_]:
        """Whether anybody liked the item in training, by code."""
        telling = np.bincount(self.likes.others, minlength=self.item_count) > 0
        telling[:FIRST] = False
        return telling

    @property
    def size(self) -> int:
        """Bytes in the served graph."""
        return sum(array.nbytes for array in (self.likes.start, self.likes.others, self.likes.weights) if array is not None)

    def scores(self, users: Ints, items: Ints, score_user: Callable[[Positions, Ints], Floats]) -> Floats:
        """Scores the rows user by user; `score_user` scores items for a user with these likes."""
        order = np.argsort(users, kind="stable")
        distinct, first = np.unique(users[order], return_index=True)
        scores = np.empty(len(users), np.float32)
        for user, rows in zip(distinct.tolist(), np.split(order, first)[1:], strict=True):
            scores[rows] = score_user(self.likes.of(user), items[rows])
        return scores

    def with_recent(self, users: Ints, recent: NDArray[np.int32]) -> tuple[UserHistory, NDArray[np.bool_]]:
        """Returns the likes of these rows: the user's, then the row's new items, with weight 1; and which rows have new items."""
        stored = self.likes.rows(users)
        likes: list[Positions] = []
        weights: list[Floats] = []
        changed = np.zeros(len(users), bool)
        for row, items in enumerate(recent):
            own, part = stored.of(row), slice(stored.start[row], stored.start[row + 1])
            new = np.setdiff1d(items[self.telling[items]], own)
            changed[row] = len(new) > 0
            stays = own != NULL if len(new) else np.ones(len(own), bool)
            likes.append(np.concatenate([own[stays], new]))
            if stored.weights is not None:
                weights.append(np.concatenate([stored.weights[part][stays], np.ones(len(new), np.float32)]))
        start = np.concatenate([[0], np.cumsum([len(liked) for liked in likes])]).astype(np.int64)
        joined = np.concatenate([*likes, np.empty(0, np.int32)]).astype(np.int32)
        none = np.empty(0, np.float32)
        likes_of_rows = LikesByRow(start, joined, None if stored.weights is None else np.concatenate([*weights, none]))
        return UserHistory(likes_of_rows, self.item_count), changed


@dataclass(frozen=True)
class HistoryModel(LowersExternalWeights):
    """Base class of the models whose score is a sum over the user's liked items; implements what they share of Trained and
    ReadsRecentItems."""

    recent_use: ClassVar[str] = "recent likes are added to the user's likes"

    user: str
    item: str
    user_history: UserHistory

    def score(self, columns: Codes) -> Floats:
        raise NotImplementedError

    def score_nodes(self, turn: OnnxBuilder) -> str:
        """Adds nodes to the loop that make a number for each of `ITEMS` from `LIKED`."""
        raise NotImplementedError

    def score_recent(self, columns: Codes, recent: NDArray[np.int32]) -> Floats:
        users = columns[self.user].astype(np.int64)
        history, _ = self.user_history.with_recent(users, recent)
        return replace(self, user_history=history).score({self.user: np.arange(len(users), dtype=np.int32), self.item: columns[self.item]})

    def lower_beside(self, beside: ExternalWeights) -> Any:
        return lower(self.user_history, self.user, self.item, self.score_nodes, beside)

    def lower_recent(self, beside: ExternalWeights, width: int) -> Any:
        return lower(self.user_history, self.user, self.item, self.score_nodes, beside, width)

    def embeddings(self, codes: Codes) -> None:
        """Returns None: the score is not one inner product, so there are no embeddings to search."""


def user_history_of(pairs: LikePairs, weighted: bool = False) -> UserHistory:
    """Returns the history; `weighted`: with the weights of the likes, if there are any."""
    likes = pairs.by_user()
    return history_of(likes if weighted else replace(likes, weights=None), pairs.item_count)


def history_of(likes: LikesByRow, item_count: int) -> UserHistory:
    """Returns the history of these likes by user code; users without likes get the code NULL with weight 1."""
    lengths = likes.lengths
    without = likes.start[:-1][lengths == 0]
    liked = np.insert(likes.others.astype(np.int32), without, NULL)
    weights = None if likes.weights is None else np.insert(likes.weights, without, 1)
    return UserHistory(LikesByRow(np.concatenate([[0], np.cumsum(np.maximum(lengths, 1))]), liked, weights), item_count)


def save_user_history(history: UserHistory, folder: Path) -> dict[str, Path]:
    arrays = {"start": history.likes.start, "liked": history.likes.others}
    return {FILE: write_arrays(folder / FILE, arrays if history.likes.weights is None else {**arrays, "weights": history.likes.weights})}


def load_user_history(fetch: Fetch, item_count: int) -> UserHistory:
    likes = read_arrays(fetch(FILE))
    return UserHistory(LikesByRow(likes["start"], likes["liked"], likes.get("weights")), item_count)


def lower(
    history: UserHistory,
    user: str,
    item: str,
    score: Callable[[OnnxBuilder], str],
    beside: ExternalWeights | None = None,
    recent: int | None = None,
) -> Any:
    """Returns the ONNX model; `score` adds nodes to the loop that make a number for each of `ITEMS` from `LIKED`. `recent`: the length of
    the lists of recent items, if the model reads them."""
    build = OnnxBuilder(beside.tensor if beside is not None else None)
    for column in (user, item):
        build.input(column, "INT32", "N")
    rows = build.cast(user, "INT64")
    if recent is not None:
        rows = pairs_of(build, rows, recent)
    none = build.node("ConstantOfShape", build.node("Shape", rows))
    build.node("Identity", each_user(build, history, rows, item, score, (rows, none), recent is not None), output="score")
    return build.model("sums_over_likes", tensor_info("score", "FLOAT", "N"))


def each_user(
    build: OnnxBuilder,
    history: UserHistory,
    rows: str,
    item: str,
    score: Callable[[OnnxBuilder], str],
    begin: tuple[str, str],
    recent: bool,
) -> str:
    """Adds a loop that scores the rows of one user in each iteration; returns the scores of all rows.

    `rows` has a number for each row: the user's code, or with recent items the number by `pairs_of`. `begin`: the numbers to score, repeats
    allowed, and the scores that all other rows keep."""
    numbers, scores = begin
    users, _ = build.distinct(numbers, "users")
    turn, first = build.body("turn/"), build.constant([0])
    number = turn.node("Gather", users, "turn/number")
    user, items = parts_of(turn, number) if recent else (number, "")
    turn.node("Identity", user, output=USER)
    start = build.initializer("known/start", history.likes.start)
    bounds = [turn.node("Unsqueeze", turn.node("Gather", start, at), first) for at in (USER, turn.node("Add", USER, build.constant(1)))]
    liked = turn.node("Slice", build.initializer("known/liked", history.likes.others), *bounds)
    weights = ""
    if history.likes.weights is not None:
        weights = turn.node("Slice", build.initializer("known/weights", history.likes.weights), *bounds)
    if recent:
        telling = build.initializer("known/telling", history.telling)
        liked, weights = _join_recent(turn, liked, weights, items, telling)
    turn.node("Identity", liked, output=LIKED)
    if weights:
        turn.node("Identity", weights, output=WEIGHTS)
    of_user = turn.node("Squeeze", turn.node("NonZero", turn.node("Equal", rows, number)), first)
    turn.node("Gather", item, of_user, output=ITEMS)
    after = turn.node("ScatterElements", "turn/state", of_user, score(turn), axis=0)
    return build.loop(build.node("Size", users), scores, turn, after, "N")


def _join_recent(turn: OnnxBuilder, liked: str, weights: str, recent: str, telling: str) -> tuple[str, str]:
    """Same as `UserHistory.with_recent`, for one row: returns the likes and their weights."""
    const = turn.constant
    items = turn.cast(turn.node("Unique", turn.cast(recent, "INT64"), output=("turn/recent",), sorted=1), "INT32")
    equal = turn.cast(turn.node("Equal", turn.column(items), turn.node("Unsqueeze", liked, const([0]))), "INT32")
    absent = turn.node("Less", turn.node("ReduceMax", equal, axes=[1], keepdims=0), const(np.int32(1)))
    turn.node("Compress", items, turn.node("And", absent, turn.node("Gather", telling, items)), output=NEW)
    stays = turn.node("Or", turn.node("Greater", liked, const(np.int32(NULL))), turn.node("Equal", turn.node("Size", NEW), const(0)))
    liked = turn.node("Concat", turn.node("Compress", liked, stays), NEW, axis=0)
    if weights:
        ones = turn.node("Expand", const(np.ones(1, np.float32)), turn.node("Shape", NEW))
        weights = turn.node("Concat", turn.node("Compress", weights, stays), ones, axis=0)
    return liked, weights
