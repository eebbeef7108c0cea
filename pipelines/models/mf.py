"""The family `mf`: matrix factorisation of who liked what. A vector for each user, one for each item; their inner product is the score.

Trained by implicit alternating least squares (`pipelines.training.als`): what wasn't liked counts a little against, so no negatives are
sampled. Codes without likes of their own have a place too: an unknown user, or one who liked nothing yet, is the mean of those who did; an
unknown item, or one that nobody liked, is zero. A warm run goes on from the parent's vectors over every like known so far, its parent's
included: solving a user from the newest likes alone would forget the rest.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import FIRST, UNKNOWN
from pipelines.features.graph import IR_VERSION, OPSET
from pipelines.features.reading import Reads
from pipelines.loaders.tables import Codes
from pipelines.models.family import MODEL, Embeddings, Fetch, Fitted, Task
from pipelines.models.tables import Table, check_size
from pipelines.training.als import Factors, Floats, Pairs, Terms, begin, sweeps
from pipelines.training.choice import choose_strength
from shared.contracts.models import MfParams
from shared.domain.errors import Invalid

VECTORS = "vectors.npz"


@dataclass(frozen=True)
class MfModel:
    """Implements Trained."""

    meaning: ClassVar[str] = "how surely the user likes the item: about 1 for what was liked, about 0 for what means nothing to the user"

    user: str
    item: str
    factors: Factors
    """By code."""
    regularisation: float

    @property
    def tables(self) -> tuple[Table, ...]:
        sides = ((self.user, self.factors.users), (self.item, self.factors.items))
        return tuple(Table(name, len(vectors), vectors.shape[1], None) for name, vectors in sides)

    def save(self, folder: Path) -> dict[str, Path]:
        described, vectors = folder / MODEL, folder / VECTORS
        facts = {"user": self.user, "item": self.item, "regularisation": self.regularisation}
        described.write_text(json.dumps({"version": 1, "family": Mf.name} | facts, indent=1))
        with vectors.open("wb") as stream:
            np.savez(stream, users=self.factors.users, items=self.factors.items)
        return {MODEL: described, VECTORS: vectors}

    def score(self, columns: Codes) -> NDArray[np.float32]:
        return self.factors.scores(columns[self.user].astype(np.int64), columns[self.item].astype(np.int64))

    def lower(self) -> Any:
        from onnx import TensorProto, helper, numpy_helper

        inputs = [helper.make_tensor_value_info(name, TensorProto.INT32, ["N"]) for name in (self.user, self.item)]
        score = helper.make_tensor_value_info("score", TensorProto.FLOAT, ["N"])
        nodes = [
            helper.make_node("Gather", ["users", self.user], ["user_vectors"], name="user_vectors"),
            helper.make_node("Gather", ["items", self.item], ["item_vectors"], name="item_vectors"),
            helper.make_node("Mul", ["user_vectors", "item_vectors"], ["products"], name="products"),
            helper.make_node("ReduceSum", ["products", "axes"], ["score"], name="inner_product", keepdims=0),
        ]
        arrays = {"users": self.factors.users, "items": self.factors.items, "axes": np.array([1], np.int64)}
        weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
        graph = helper.make_graph(nodes, "mf", inputs, [score], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="eyas")

    def embeddings(self, codes: Codes) -> Embeddings:
        return Embeddings(self.factors.items[codes[self.item]], self.factors.users)


class Mf:
    """Implements Family."""

    name = "mf"
    reads: Reads = "keys"

    def train(self, task: Task) -> Fitted:
        params = task.model.params
        assert isinstance(params, MfParams)
        started = time.monotonic()
        graph, seed = task.graph, task.model.train.seed
        parent = self.load(task.parent) if task.parent is not None else None
        width = params.width if parent is None else parent.factors.users.shape[1]
        if "width" in params.model_fields_set and width != params.width:
            raise Invalid(f"model.params.width: {params.width} is not the parent's {width}: a warm run can't change it, start a full one")
        users, items = (graph.key(column).state.cardinality for column in (graph.user, graph.item))
        check_size(graph, 4 * width * (users + items))
        pairs = _pairs(task, users, items)
        if not len(pairs):
            raise Invalid("model.family: 'mf' learns from likes, and no known user liked a known item: choose a smaller min_count")

        factors = begin(users, items, width, seed)
        strength = params.regularisation
        if parent is not None:
            _go_on(factors, parent.factors)
            strength = strength or parent.regularisation
        if strength is None:
            strength = choose_strength(pairs, width, params.unobserved, seed, task.log)
        terms = Terms(params.unobserved, strength)
        losses = _fit(pairs, factors, terms, params.sweeps if parent is None else max(1, params.sweeps // 3), task.log)
        _fill(factors, pairs)
        seconds = time.monotonic() - started
        metrics = {
            "train.seconds": seconds,
            "train.rows": float(len(pairs)),
            "train.rows_per_s": len(pairs) * len(losses) / seconds,
            "train.loss": losses[-1],
            "train.parameters": float(width * (users + items)),
        }
        facts = {"losses": [round(loss, 6) for loss in losses], "regularisation": strength}
        return Fitted(MfModel(graph.user, graph.item, factors, strength), metrics, facts)

    def load(self, fetch: Fetch) -> MfModel:
        value = json.loads(fetch(MODEL).read_text())
        with np.load(fetch(VECTORS), allow_pickle=False) as stored:
            factors = Factors(stored["users"], stored["items"])
        return MfModel(value["user"], value["item"], factors, value["regularisation"])


def _fit(pairs: Pairs, factors: Factors, terms: Terms, count: int, log: logging.Logger) -> list[float]:
    losses: list[float] = []
    started = time.monotonic()
    for loss in sweeps(pairs, factors, terms, count):
        losses.append(loss)
        left = (time.monotonic() - started) / len(losses) * (count - len(losses))
        log.info("sweep %d of %d, loss %.4f, %.0f s left", len(losses), count, loss, left)
    return losses


def _pairs(task: Task, user_count: int, item_count: int) -> Pairs:
    """Likes of known users for known items, by code, the oldest first; in a warm run those of before come first."""
    graph = task.graph
    rows = pl.scan_parquet(task.rows).filter(pl.col("label") == 1).sort("time", "user", "item", maintain_order=True)
    newest = rows.select("user_code", "item_row").collect(engine="streaming")
    users, items = newest["user_code"].to_numpy(), task.items.columns[graph.item][newest["item_row"].to_numpy()]
    if task.history is not None:
        before = pl.scan_parquet(task.history).filter(pl.col("before") == 1).sort("user", "item")
        codes = before.select(
            graph.key(graph.user).state.encode(pl.col("user")).alias("user"),
            graph.key(graph.item).state.encode(pl.col("item")).alias("item"),
        ).collect(engine="streaming")
        users, items = np.concatenate([codes["user"].to_numpy(), users]), np.concatenate([codes["item"].to_numpy(), items])
    known = (users >= FIRST) & (items >= FIRST)
    users, items = users[known].astype(np.int64), items[known].astype(np.int64)
    _, first = np.unique(users * item_count + items, return_index=True)
    first.sort()
    return Pairs(users[first], items[first], user_count, item_count)


def _go_on(factors: Factors, parent: Factors) -> None:
    """From the parent's vectors; codes that are new begin at random."""
    for mine, theirs in ((factors.users, parent.users), (factors.items, parent.items)):
        mine[: len(theirs)] = theirs


def _fill(factors: Factors, pairs: Pairs) -> None:
    """Places for those without a like: the mean of the users, nothing for items."""
    liking = np.unique(pairs.users)
    without = np.ones(pairs.user_count, dtype=bool)
    without[liking] = False
    mean: Floats = factors.users[liking].mean(axis=0)
    factors.users[without] = mean
    factors.items[: UNKNOWN + 1] = 0
