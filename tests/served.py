"""Served units of every family, over a small table that knows every operator: exact or with features that were skewed on purpose."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.export.parity import answers, choose_pairs
from pipelines.export.unit import merge
from pipelines.features.graph import Graph, codes_name, compile_graph
from pipelines.features.raw import item_columns, signature
from pipelines.loaders.batches import Codes
from pipelines.models.families import FAMILIES
from pipelines.models.family import Task, Trained
from pipelines.models.popularity import fit_popularity
from shared.artifacts import FsspecArtifacts
from shared.contracts.models import Model
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files
from shared.serving.signature import Signature
from tests.unit.pipelines.recommender import films, ratings, spec

OPERATORS: Mapping[str, dict[str, Any]] = {
    "categorify": {"categorify": ["userId", "movieId", "year"]},
    "multi_hot": {"multi_hot": "genres", "separator": "|"},
}
"""An entry of a spec's `features` for each operator, over the films of tests/unit/pipelines/recommender.py."""
Skew = Callable[[Any, Graph, str], None]
"""Changes the ONNX model of the features, for one column."""


@dataclass(frozen=True)
class Small:
    """A fitted graph and all that a family trains on."""

    folder: Path
    spec: RecommenderSpec
    graph: Graph
    items: pl.DataFrame
    codes: Codes

    def train(self, family: str) -> Trained:
        rows = self.folder / "train.parquet"
        popularity = fit_popularity(pl.scan_parquet(rows), self.items[self.graph.item])
        task = Task(Model(family=family), self.graph, rows, self.codes, popularity, logging.getLogger("test"))
        return FAMILIES[family].train(task).model

    @property
    def signature(self) -> Signature:
        return signature(self.graph)

    def rows(self, model: Trained) -> dict[str, Any]:
        users, rows = choose_pairs(self.graph, lambda name: self.folder / name, len(self.items), seed=1)
        columns = item_columns(self.items, self.signature)
        return answers(self.graph, model, self.codes, columns, users, rows, self.signature)

    def unit(self, model: Trained, skew: Skew | None = None, column: str = "") -> bytes:
        features = self.graph.lower()
        if skew is not None:
            skew(features, self.graph, column)
        return bytes(merge(features, model.lower()).SerializeToString())

    def export(self, store: FsspecArtifacts, model: Trained, unit: bytes) -> Files:
        """As the stage publishes it, as far as `verify` reads it."""
        folder = self.folder / "export"
        folder.mkdir(exist_ok=True)
        (folder / "model.onnx").write_bytes(unit)
        (folder / "signature.json").write_text(self.signature.model_dump_json())
        np.savez(folder / "parity.npz", **self.rows(model))
        np.savez(folder / "catalogue.npz", **item_columns(self.items, self.signature))
        return {path.name: store.put(path) for path in folder.iterdir()}


def small(folder: Path) -> Small:
    wanted = spec(folder, features=list(OPERATORS.values()))
    frame = films()
    graph = compile_graph(wanted, frame.schema, "films.parquet")
    items = frame.with_columns([one.normalise() for one in graph.side("item")])
    seen = ratings(2000).select(user="userId", item="movieId", label=(pl.col("rating") >= 4).cast(pl.Int8), time="at")
    graph = graph.fit(seen.lazy(), items)
    keys = items[graph.item]
    encoded = seen.with_columns(
        graph.feature(graph.user).transform(pl.col("user")).alias("user_code"),
        pl.col("item").replace_strict(keys, pl.int_range(len(keys), dtype=pl.Int32, eager=True)).alias("item_row"),
    )
    for name, part in (("train", encoded[:1600]), ("holdout", encoded[1600:])):
        part.write_parquet(folder / f"{name}.parquet")
    codes = graph.transform(items.lazy(), "item").collect()
    return Small(folder, wanted, graph, items, {name: np.ascontiguousarray(codes[name].to_numpy(), np.int32) for name in codes.columns})


def shifted(features: Any, graph: Graph, column: str) -> None:
    """Each code is the next one: of whatever operator."""
    from onnx import helper, numpy_helper

    output, inner = codes_name(column), f"{codes_name(column)}/before"
    node = next(node for node in features.graph.node if output in node.output)
    node.output[list(node.output).index(output)] = inner
    cardinality = graph.feature(column).state.cardinality
    for name, value in (("one", 1), ("cardinality", cardinality)):
        features.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int32), f"{output}/{name}"))
    features.graph.node.append(helper.make_node("Add", [inner, f"{output}/one"], [f"{output}/sum"]))
    features.graph.node.append(helper.make_node("Mod", [f"{output}/sum", f"{output}/cardinality"], [output]))


def swapped(features: Any, graph: Graph, column: str) -> None:
    """Two entries of the vocabulary have each other's code."""
    codes = _values(features, column)
    codes[-3], codes[-2] = codes[-2], codes[-3]  # the last one is the blank


def one_too_few(features: Any, graph: Graph, column: str) -> None:
    """As if `min_count` were one higher: the value that was seen least is out of vocabulary."""
    _values(features, column)[-2] = 1


def reversed_order(features: Any, graph: Graph, column: str) -> None:
    """The codes of a row come from right to left."""
    from onnx import helper, numpy_helper

    output, inner = codes_name(column), f"{codes_name(column)}/before"
    node = next(node for node in features.graph.node if output in node.output)
    node.output[0] = inner
    length = graph.feature(column).length
    assert length is not None
    features.graph.initializer.append(numpy_helper.from_array(np.arange(length)[::-1].copy(), f"{output}/order"))
    features.graph.node.append(helper.make_node("Gather", [inner, f"{output}/order"], [output], axis=1))


def _values(features: Any, column: str) -> Any:
    encoder = next(node for node in features.graph.node if node.op_type == "LabelEncoder" and column in node.input)
    return next(one for one in encoder.attribute if one.name == "values_int64s").ints
