"""A user as the items that the user likes, looked up by user code: for families that score an item by a sum over liked items.

Users without likes and unknown users like the code NULL, where a family keeps its scores for unknown users.

In the served unit a loop goes over the distinct users of a batch. So nothing is padded, there is no limit on a user's likes, and a call
costs its users' likes times their scored items. A request for one user takes one iteration.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import NULL
from pipelines.features.graph import IR_VERSION, OPSET
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
    path = folder / FILE
    with path.open("wb") as stream:
        np.savez(stream, start=history.likes.start, liked=history.likes.others)
    return {FILE: path}


def load_user_history(fetch: Fetch) -> UserHistory:
    with np.load(fetch(FILE), allow_pickle=False) as stored:
        return UserHistory(LikesByRow(stored["start"], stored["liked"]))


@dataclass
class LoopBody:
    """Builds the body of the loop: nodes, and the arrays that they read."""

    arrays: dict[str, NDArray[Any]]
    nodes: list[Any] = field(default_factory=list)

    def node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        output = output or f"turn/{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=f"turn/{kind}_{len(self.nodes)}", **attributes))
        return output

    def array(self, name: str, values: Any) -> str:
        self.arrays[name] = np.asarray(values)
        return name


def lower(
    history: UserHistory,
    user: str,
    item: str,
    arrays: Mapping[str, NDArray[Any]],
    score: Callable[[LoopBody], str],
    beside: ExternalWeights | None = None,
) -> Any:
    """Returns the ONNX model; `score` adds nodes that make a number for each of `ITEMS`, from `LIKED` and `arrays`."""
    from onnx import TensorProto, helper

    def tensor(name: str, kind: int, *shape: str) -> Any:
        return helper.make_tensor_value_info(name, kind, list(shape))

    turn = LoopBody(dict(arrays) | {"known/start": history.likes.start, "known/liked": history.likes.others})
    first, unit = turn.array("known/first_axis", np.array([0], np.int64)), turn.array("known/one", np.array(1, np.int64))
    code = turn.node("Gather", "users/distinct", "turn/number")
    begin, end = (turn.node("Gather", "known/start", at) for at in (code, turn.node("Add", code, unit)))
    turn.node("Slice", "known/liked", turn.node("Unsqueeze", begin, first), turn.node("Unsqueeze", end, first), output=LIKED)
    rows = turn.node("Squeeze", turn.node("NonZero", turn.node("Equal", "users/place", "turn/number")), first)
    turn.node("Gather", item, rows, output=ITEMS)
    turn.node("ScatterElements", "turn/scores", rows, score(turn), output="turn/scores_then", axis=0)
    turn.node("Identity", "turn/more", output="turn/more_then")
    body = helper.make_graph(
        turn.nodes,
        "of_a_user",
        [tensor("turn/number", TensorProto.INT64), tensor("turn/more", TensorProto.BOOL), tensor("turn/scores", TensorProto.FLOAT, "N")],
        [tensor("turn/more_then", TensorProto.BOOL), tensor("turn/scores_then", TensorProto.FLOAT, "N")],
    )
    nodes = [
        helper.make_node("Cast", [user], ["users/wide"], name="users/wide", to=TensorProto.INT64),
        helper.make_node("Unique", ["users/wide"], ["users/distinct", "", "users/place"], name="users/distinct", sorted=1),
        helper.make_node("Size", ["users/distinct"], ["users/count"], name="users/count"),
        helper.make_node("Shape", [user], ["scores/shape"], name="scores/shape"),
        helper.make_node("ConstantOfShape", ["scores/shape"], ["scores/none"], name="scores/none"),
        helper.make_node("Loop", ["users/count", "", "scores/none"], ["score"], name="each_user", body=body),
    ]
    beside = beside or ExternalWeights(sys.maxsize)
    weights = [beside.tensor(array, name) for name, array in turn.arrays.items()]
    inputs = [tensor(column, TensorProto.INT32, "N") for column in (user, item)]
    graph = helper.make_graph(nodes, "sums_over_likes", inputs, [tensor("score", TensorProto.FLOAT, "N")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="eyas")
