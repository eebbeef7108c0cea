"""A user as the items that the user likes, looked up by user code: for families that score an item by a sum over liked items.

Users without likes and unknown users like the code NULL, where a family keeps its scores for unknown users.

In the served unit a loop goes over the distinct users of a batch. So nothing is padded, there is no limit on a user's likes, and a call
costs its users' likes times their scored items. A request for one user takes one iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.arrays import read_arrays, write_arrays
from pipelines.features.columns import NULL
from pipelines.features.onnx_builder import OnnxBuilder, tensor_info
from pipelines.models.external_weights import ExternalWeights
from pipelines.models.family import Fetch
from pipelines.training.likes import Ints, LikePairs, LikesByRow, Positions

Floats = NDArray[np.float32]
FILE = "known.npz"
LIKED, ITEMS = "turn/liked", "turn/items"
"""Names in an iteration: the codes that the user likes, and the codes to score for the user. No column name contains '/'."""


@dataclass(frozen=True)
class UserHistory:
    """The codes of the items that each user code likes, at least one for each."""

    likes: LikesByRow

    @property
    def size(self) -> int:
        """Bytes in the served graph."""
        return self.likes.start.nbytes + self.likes.others.nbytes

    def scores(self, users: Ints, items: Ints, score_user: Callable[[Positions, Ints], Floats]) -> Floats:
        """Scores the rows user by user; `score_user` scores items for a user with these likes."""
        order = np.argsort(users, kind="stable")
        distinct, first = np.unique(users[order], return_index=True)
        scores = np.empty(len(users), np.float32)
        for user, rows in zip(distinct.tolist(), np.split(order, first)[1:], strict=True):
            scores[rows] = score_user(self.likes.of(user), items[rows])
        return scores


def user_history_of(pairs: LikePairs) -> UserHistory:
    likes = pairs.by_user()
    lengths = likes.lengths
    liked = np.insert(likes.others.astype(np.int32), likes.start[:-1][lengths == 0], NULL)
    return UserHistory(LikesByRow(np.concatenate([[0], np.cumsum(np.maximum(lengths, 1))]), liked))


def save_user_history(history: UserHistory, folder: Path) -> dict[str, Path]:
    return {FILE: write_arrays(folder / FILE, {"start": history.likes.start, "liked": history.likes.others})}


def load_user_history(fetch: Fetch) -> UserHistory:
    likes = read_arrays(fetch(FILE))
    return UserHistory(LikesByRow(likes["start"], likes["liked"]))


def lower(history: UserHistory, user: str, item: str, score: Callable[[OnnxBuilder], str], beside: ExternalWeights | None = None) -> Any:
    """Returns the ONNX model; `score` adds nodes to the loop that make a number for each of `ITEMS` from `LIKED`."""
    build = OnnxBuilder(beside.tensor if beside is not None else None)
    for column in (user, item):
        build.input(column, "INT32", "N")
    build.node("Unique", build.cast(user, "INT64"), output=("users/distinct", "", "users/place"), sorted=1)
    turn, first = build.body("turn/"), build.constant([0])
    start, liked = build.initializer("known/start", history.likes.start), build.initializer("known/liked", history.likes.others)
    code = turn.node("Gather", "users/distinct", "turn/number")
    begin, end = (turn.node("Gather", start, at) for at in (code, turn.node("Add", code, build.constant(1))))
    turn.node("Slice", liked, turn.node("Unsqueeze", begin, first), turn.node("Unsqueeze", end, first), output=LIKED)
    rows = turn.node("Squeeze", turn.node("NonZero", turn.node("Equal", "users/place", "turn/number")), first)
    turn.node("Gather", item, rows, output=ITEMS)
    after = turn.node("ScatterElements", "turn/state", rows, score(turn), axis=0)
    none = build.node("ConstantOfShape", build.node("Shape", user))
    build.node("Identity", build.loop(build.node("Size", "users/distinct"), none, turn, after, "N"), output="score")
    return build.model("sums_over_likes", tensor_info("score", "FLOAT", "N"))
