"""A user's vector from all of the user's likes, with recent ones among them: the least-squares step of the training, with fixed items.

In the served unit the equations of a user are solved by the conjugate gradient method in double precision, from the trained vector on, with
the mean equations of all users as preconditioner: without recent likes no step is made, with a few likes a few steps suffice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.onnx_builder import OnnxBuilder, tensor_info
from pipelines.models.dot_product import product
from pipelines.models.external_weights import ExternalWeights
from pipelines.models.recent_items import pairs_of, with_recent
from pipelines.models.user_history import ITEMS, LIKED, NEW, USER, WEIGHTS, UserHistory, each_user
from pipelines.training.als import AlsTerms, Factors
from pipelines.training.likes import Ints

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
_NEAR, _SMALLEST = 1e-12, 1e-18
"""Squares of the relative and of the absolute error at which a solution is good."""


@dataclass(frozen=True)
class UserSolver:
    factors: Factors
    terms: AlsTerms
    history: UserHistory
    """The likes of the training."""

    @property
    def _shared(self) -> Doubles:
        """Returns the part of the equations that all users share."""
        items = self.factors.items.astype(np.float64)
        shared: Doubles = self.terms.unobserved * (items.T @ items)
        return shared

    @property
    def _base(self) -> float:
        """Returns the regularisation of a user without likes."""
        met = np.count_nonzero(np.abs(self.factors.items).max(axis=1, initial=0))
        return float(self.terms.regularisation * self.terms.unobserved * met)

    def vectors(self, users: Ints, recent: NDArray[np.int32]) -> Floats:
        """Returns a vector for each row: the trained one for rows without new likes."""
        history, changed = self.history.with_recent(users, recent)
        vectors, shared = self.factors.users[users], self._shared
        for row in np.flatnonzero(changed).tolist():
            items = self.factors.items[history.likes.of(row)].astype(np.float64)
            weights = np.ones(len(items))
            if history.likes.weights is not None:
                weights = history.likes.weights[history.likes.start[row] : history.likes.start[row + 1]].astype(np.float64)
            ridge = self._base + self.terms.regularisation * weights.sum()
            left = shared + items.T @ (items * weights[:, None]) + ridge * np.eye(items.shape[1])
            vectors[row] = np.linalg.solve(left, weights @ items)
        return vectors

    def lower(self, name: str, user: str, item: str, beside: ExternalWeights, width: int) -> Any:
        """Returns the ONNX model with the name `name`, which reads lists of `width` recent items."""
        build = OnnxBuilder(beside.tensor)
        for column in (user, item):
            build.input(column, "INT32", "N")
        rows = pairs_of(build, build.cast(user, "INT64"), width)
        begin = build.node("Compress", rows, with_recent(build)), product(build, user, item, self.factors)
        build.node("Identity", each_user(build, self.history, rows, item, self._lower_scores, begin, recent=True), output="score")
        return build.model(name, tensor_info("score", "FLOAT", "N"))

    def _lower_scores(self, turn: OnnxBuilder) -> str:
        """Solves left @ vector = right for the user of this iteration; returns a score for each of ITEMS."""
        width, shared = self.factors.items.shape[1], self._shared
        items = turn.initializer("items/vectors", self.factors.items)
        liked = turn.cast(turn.node("Gather", items, LIKED), "DOUBLE")
        weights = turn.cast(WEIGHTS, "DOUBLE") if self.history.likes.weights is not None else ""
        total = turn.node("ReduceSum", weights, keepdims=0) if weights else turn.cast(turn.node("Size", LIKED), "DOUBLE")
        ridge = turn.node("Mul", total, turn.constant(self.terms.regularisation * np.eye(width)))
        common = turn.node("Add", turn.initializer("mf/shared", shared + self._base * np.eye(width)), ridge)

        def left(step: OnnxBuilder, vector: str) -> str:
            explained = _product(step, liked, vector)
            explained = step.node("Mul", explained, weights) if weights else explained
            of_likes = step.node("ReduceSum", step.node("Mul", liked, step.column(explained)), step.constant([0]), keepdims=0)
            return step.node("Add", _product(step, common, vector), of_likes)

        def conditioned(step: OnnxBuilder, vector: str) -> str:
            mean = self._base + self.terms.regularisation * float(np.mean(self.history.likes.totals))
            return _product(step, step.initializer("mf/inverse", np.linalg.inv(shared + mean * np.eye(width))), vector)

        weighted = turn.node("Mul", liked, turn.column(weights)) if weights else liked
        right = turn.node("ReduceSum", weighted, turn.constant([0]), keepdims=0)
        begun = turn.cast(turn.node("Gather", turn.initializer("users/vectors", self.factors.users), USER), "DOUBLE")
        rest = turn.node("Sub", right, left(turn, begun))
        direction = conditioned(turn, rest)
        near = turn.node("Mul", turn.node("MatMul", right, conditioned(turn, right)), turn.constant(np.float64(_NEAR)))
        near = turn.node("Add", near, turn.constant(np.float64(_SMALLEST)))
        far = turn.node("Greater", turn.node("MatMul", rest, direction), near)
        begins = turn.node("And", far, turn.node("Greater", turn.node("Size", NEW), turn.constant(0)))
        step = turn.body("step/")
        after, goes_on = _step(step, width, near, left, conditioned)
        first = turn.node("Concat", begun, rest, direction, direction, axis=0)
        state = turn.loop(turn.constant(4 * width), first, step, after, 4 * width, dtype="DOUBLE", when=(begins, goes_on))
        vector = turn.cast(turn.node("Slice", state, turn.constant([0]), turn.constant([width])), "FLOAT")
        return _product(turn, turn.node("Gather", items, ITEMS), vector)


def _step(step: OnnxBuilder, width: int, near: str, left: Any, conditioned: Any) -> tuple[str, str]:
    """Adds one step of the conjugate gradient method; returns the state after it (solution, rest, conditioned rest, direction) and whether
    to go on. Few nodes matter: each takes longer than its arithmetic."""
    parts = ("step/solution", "step/rest", "step/steep", "step/direction")
    step.node("Split", "step/state", step.constant([width] * len(parts)), output=parts, axis=0)
    solution, rest, steep, direction = parts
    error = step.node("MatMul", rest, steep)
    turned = left(step, direction)
    length = step.node("Div", error, step.node("MatMul", direction, turned))
    solution = step.node("Add", solution, step.node("Mul", direction, length))
    rest = step.node("Sub", rest, step.node("Mul", turned, length))
    steep = conditioned(step, rest)
    error_after = step.node("MatMul", rest, steep)
    direction = step.node("Add", steep, step.node("Mul", direction, step.node("Div", error_after, error)))
    return step.node("Concat", solution, rest, steep, direction, axis=0), step.node("Greater", error_after, near)


def _product(build: OnnxBuilder, matrix: str, vector: str) -> str:
    """Multiplies a matrix by a vector; ONNX Runtime's `MatMul` takes up to ten times as long for one column."""
    return build.node("ReduceSum", build.node("Mul", matrix, vector), build.constant([1]), keepdims=0)
