"""Models that read what a user liked after the training: the served unit takes the user's recent items with each request."""

from __future__ import annotations

from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import FIRST
from pipelines.features.onnx_builder import OnnxBuilder
from pipelines.features.operators.base import RECENT, RECENT_LIST
from pipelines.inputs.tables import Codes
from pipelines.models.external_weights import ExternalWeights, LowersExternalWeights
from pipelines.models.family import Trained


@runtime_checkable
class UsesRecentItems(Protocol):
    @property
    def recent_use(self) -> str | None:
        """Describes for people what the model does with recent items; None if it reads none."""


@runtime_checkable
class ReadsRecentItems(UsesRecentItems, Trained, Protocol):
    """A model whose scores also follow from recent items. Without recent items, they are the scores of `Trained.score`."""

    def score_recent(self, columns: Codes, recent: NDArray[np.int32]) -> NDArray[np.float32]:
        """Returns a score for each row; `recent`: the codes of each row's recent items, the newest last, NULL behind them."""

    def lower_recent(self, beside: ExternalWeights, width: int) -> Any:
        """Lowers as `lower_beside` does, with the inputs RECENT and RECENT_LIST (pipelines.features.operators.base)."""


def reads_recent(model: Trained) -> TypeGuard[ReadsRecentItems]:
    return isinstance(model, ReadsRecentItems) and model.recent_use is not None


def lower_model(model: Trained, beside: ExternalWeights, width: int | None = None) -> Any:
    """Returns the model's ONNX graph, which hands large arrays to `beside` if it can; with `width`, it takes that many recent items if the
    model reads them."""
    if width is not None and reads_recent(model):
        return model.lower_recent(beside, width)
    return model.lower_beside(beside) if isinstance(model, LowersExternalWeights) else model.lower()


def pairs_of(build: OnnxBuilder, users: str, width: int) -> str:
    """Adds the inputs of recent items; returns an int64 number for each row, equal for rows with equal users and lists."""
    build.input(RECENT, "INT32", "L", width)
    number = build.input(RECENT_LIST, "INT64", "N")
    return build.node("Add", build.node("Mul", users, _count_of_lists(build)), number)


def parts_of(build: OnnxBuilder, pairs: str) -> tuple[str, str]:
    """Returns the user codes and the recent items of numbers of `pairs_of`."""
    lists = _count_of_lists(build)
    return build.node("Div", pairs, lists), build.node("Gather", RECENT, build.node("Mod", pairs, lists))


def with_recent(build: OnnxBuilder) -> str:
    """Returns for each row whether its list has an item that the model knows."""
    lists = build.node("GreaterOrEqual", build.node("ReduceMax", RECENT, axes=[1], keepdims=0), build.constant(np.int32(FIRST)))
    return build.node("Gather", lists, RECENT_LIST)


def _count_of_lists(build: OnnxBuilder) -> str:
    return build.node("Squeeze", build.node("Shape", RECENT, end=1), build.constant([0]))
