"""The smallest family of trees: boosted stumps over numbers that may be missing and codes as categories."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pipelines.features.graph import IR_VERSION, OPSET
from pipelines.features.reading import Reads
from pipelines.inputs.batches import Batches
from pipelines.inputs.tables import Codes
from pipelines.models.family import MODEL, Fetch, Fitted, Task
from pipelines.models.tables import Table

Truth = NDArray[np.bool_]
RATE = 0.5


@dataclass(frozen=True)
class Stump:
    """Adds `left` to the score of a row where its feature says so, `right` elsewhere."""

    feature: str
    at: float
    """A number: up to here. A code: this one, or among a row's codes."""
    code: bool
    missing: bool
    """Whether missing numbers are on the left."""
    left: float
    right: float
    width: int | None = None
    """Of a feature with several codes a row."""

    def takes(self, values: NDArray[Any]) -> Truth:
        if self.code:
            same: Truth = values == self.at
            return same if same.ndim == 1 else same.any(axis=1)
        found: Truth = np.where(np.isnan(values), self.missing, values <= np.float32(self.at))
        return found


@dataclass(frozen=True)
class Stumps:
    """Implements Trained."""

    meaning: ClassVar[str] = "how likely it is liked, as a sum of stumps"

    stumps: tuple[Stump, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        return ()

    def save(self, folder: Path) -> dict[str, Path]:
        path = folder / MODEL
        path.write_text(json.dumps({"family": Family.name, "stumps": [asdict(one) for one in self.stumps]}))
        return {MODEL: path}

    def score(self, columns: Codes) -> NDArray[np.float32]:
        parts = [np.where(one.takes(columns[one.feature]), np.float32(one.left), np.float32(one.right)) for one in self.stumps]
        return np.sum(parts, axis=0, dtype=np.float32)

    def lower(self) -> Any:
        from onnx import TensorProto, helper, numpy_helper

        weights: list[Any] = []
        nodes: list[Any] = []

        def constant(value: Any) -> str:
            weights.append(numpy_helper.from_array(np.asarray(value), f"c{len(weights)}"))
            return str(weights[-1].name)

        def node(kind: str, *inputs: str, **more: Any) -> str:
            nodes.append(helper.make_node(kind, list(inputs), [f"t{len(nodes)}"], name=f"n{len(nodes)}", **more))
            return f"t{len(nodes) - 1}"

        parts = []
        for one in self.stumps:
            if one.code:
                takes = node("Equal", one.feature, constant(np.int32(one.at)))
                if one.width is not None:
                    takes = node(
                        "Cast", node("ReduceMax", node("Cast", takes, to=TensorProto.INT32), axes=[1], keepdims=0), to=TensorProto.BOOL
                    )
            else:
                below = node("LessOrEqual", one.feature, constant(np.float32(one.at)))
                takes = node("Or", below, node("IsNaN", one.feature)) if one.missing else below
            parts.append(node("Where", takes, constant(np.float32(one.left)), constant(np.float32(one.right))))
        nodes.append(helper.make_node("Sum", parts, ["score"], name="score"))
        inputs = []
        for one in {one.feature: one for one in self.stumps}.values():
            shape: list[Any] = ["N"] if one.width is None else ["N", one.width]
            inputs.append(helper.make_tensor_value_info(one.feature, TensorProto.INT32 if one.code else TensorProto.FLOAT, shape))
        graph = helper.make_graph(nodes, "stumps", inputs, [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["N"])], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="eyas")

    def embeddings(self, codes: Codes) -> None:
        """None: a sum of stumps is no inner product."""


class Family:
    """Implements pipelines.models.family.Family."""

    name = "stumps"
    reads: Reads = "trees"

    def train(self, task: Task) -> Fitted:
        started = time.monotonic()
        batches = Batches(
            task.rows, task.graph, task.items, task.users, 100_000, 0, task.model.train.seed, unknown_users=0, unknown_items=0
        )
        (batch,) = batches.epoch(0)
        rest, stumps = batch.labels.astype(np.float64), []
        single = [one for one in task.graph.features if one.width is None or one.kind == "code"]
        for _ in range(12):
            tried = (found for one in single for found in _stumps(one.name, one.kind == "code", batch.columns[one.name], rest))
            _, best = min(tried, key=lambda one: one[0])
            stumps.append(best)
            rest -= np.where(best.takes(batch.columns[best.feature]), best.left, best.right)
        model = Stumps(tuple(stumps))
        return Fitted(model, {"train.seconds": time.monotonic() - started}, {"features": sorted({one.feature for one in stumps})})

    def load(self, fetch: Fetch) -> Stumps:
        return Stumps(tuple(Stump(**one) for one in json.loads(fetch(MODEL).read_text())["stumps"]))


def _stumps(name: str, code: bool, values: NDArray[Any], rest: NDArray[np.float64]) -> Iterator[tuple[float, Stump]]:
    """What each of them leaves, in squares."""
    there = values if code else values[~np.isnan(values)]
    width = values.shape[1] if values.ndim == 2 else None
    places = np.unique(there) if code else np.unique(np.quantile(there, np.linspace(0.1, 0.9, 9), method="lower"))
    for at in places.tolist():
        for missing in (False,) if code else (False, True):
            takes = Stump(name, at, code, missing, 0, 0).takes(values)
            if takes.any() and not takes.all():
                left, right = RATE * rest[takes].mean(), RATE * rest[~takes].mean()
                yield float(((rest - np.where(takes, left, right)) ** 2).sum()), Stump(name, at, code, missing, left, right, width)
