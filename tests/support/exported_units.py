"""Served units of every family, over a small table that knows every operator: exact or with features that were skewed on purpose."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.export.merging import merge
from pipelines.export.parity import answers, choose_pairs
from pipelines.export.unit import named, write_unit, write_unit_in_steps
from pipelines.features.graph import Graph
from pipelines.features.operators.base import output_name
from pipelines.features.prepared import Prepared, graph_of, prepare
from pipelines.features.raw import item_columns, signature
from pipelines.features.reading import Reads
from pipelines.inputs.eval_pairs import EvalPairs, RawColumns, read_meetings
from pipelines.inputs.tables import Codes, FeatureTable
from pipelines.models.families import FAMILIES
from pipelines.models.family import Task, Trained
from pipelines.models.popularity_baseline import fit_popularity
from shared.artifacts import FsspecArtifacts
from shared.contracts.models import Model
from shared.contracts.serving import Serve
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files
from shared.serving.signature import Signature
from tests.unit.pipelines.recommender import films, ratings, spec

OPERATORS: Mapping[str, dict[str, Any]] = {
    "categorify": {"categorify": ["userId", "movieId", "year"]},
    "multi_hot": {"multi_hot": "genres", "separator": "|"},
    "fill": {"fill": "price", "with": "mean", "flag": True},
    "log": {"log": "price"},
    "clip": {"clip": "price", "max": 2},
    "normalise": {"normalise": "price"},
    "bucketise": {"bucketise": "age", "at": [18, 30]},
    "target_encode": {"target_encode": {"of": "movieId"}},
    "count_encode": {"count_encode": "userId"},
    "lag": {"lag": {"of": "at", "by": "userId"}},
    "cyclic": {"cyclic": {"of": "at", "periods": ["week"]}},
    "calendar": {"calendar": {"of": "at", "parts": ["hour"]}},
    "cross": {"cross": ["year", "hour"], "buckets": 50},
    "one_hot": {"one_hot": "age_bucket"},
    "extract": {"extract": {"of": "title", "what": "hashtags"}},
    "vector": {"vector": {"of": "movieId", "from": "posters.parquet", "width": 3}},
    "sequence": {"sequence": {"of": "movieId", "by": "userId", "length": 4}},
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
    ready: Prepared
    catalogue: FeatureTable
    meetings: EvalPairs
    serve: Serve = field(default_factory=Serve)

    @property
    def items(self) -> pl.DataFrame:
        return self.ready.items

    @property
    def codes(self) -> Codes:
        """A row for each item, met by nobody in particular."""
        count = len(self.catalogue)
        return self.meetings.features(np.full(count, 1), np.arange(count))

    @property
    def raw(self) -> RawColumns:
        return RawColumns(self.items, self.ready.users, self.meetings.moments)

    def train(self, family: str, **said: Any) -> Trained:
        return FAMILIES[family].train(self.task(family, **said)).model

    def task(self, family: str, **said: Any) -> Task:
        rows = self.folder / "train.parquet"
        popularity = fit_popularity(pl.scan_parquet(rows), self.items[self.graph.item])
        return Task(
            Model.model_validate({"family": family} | said),
            self.graph,
            rows,
            self.catalogue,
            self.meetings.users.table,
            popularity,
            logging.getLogger("test"),
        )

    @property
    def signature(self) -> Signature:
        return signature(self.graph, self.serve)

    def rows(self, model: Trained) -> dict[str, Any]:
        users, rows = choose_pairs(self.graph, lambda name: self.folder / name, len(self.items), seed=1)
        return answers(self.graph, model, self.raw, users, rows, self.signature)

    def unit(self, model: Trained, skew: Skew | None = None, column: str = "") -> bytes:
        features = self.graph.lower(lists=self.serve.lists)
        if skew is not None:
            skew(features, self.graph, column)
        return bytes(merge(features, model.lower()).SerializeToString())

    def beside(self, model: Trained) -> dict[str, Path]:
        """The unit with its weights in a file of their own."""
        folder = self.folder / "beside"
        folder.mkdir(exist_ok=True)
        return write_unit(self.graph, model, folder / "model.onnx", lists=self.serve.lists, inline=0)

    def in_steps(self, model: Trained, **given: Any) -> tuple[dict[str, Path], Signature]:
        """Returns the files of the unit and of its steps, and the signature with the steps."""
        folder = self.folder / "steps"
        folder.mkdir(exist_ok=True)
        files, signature = write_unit_in_steps(self.graph, model, self.signature, folder / "model.onnx", lists=self.serve.lists, **given)
        return files, named(signature, files)

    def export(self, store: FsspecArtifacts, model: Trained, unit: bytes | dict[str, Path], signature: Signature | None = None) -> Files:
        """As the stage publishes it, as far as `verify` reads it."""
        files = {} if isinstance(unit, bytes) else unit
        folder = self.folder / "export"
        folder.mkdir(exist_ok=True)
        (folder / "model.onnx").write_bytes(unit if isinstance(unit, bytes) else unit["model.onnx"].read_bytes())
        (folder / "signature.json").write_text((signature or named(self.signature, files)).model_dump_json())
        np.savez(folder / "parity.npz", **self.rows(model))
        np.savez(folder / "catalogue.npz", **item_columns(self.items, self.signature))
        return {name: store.put(path) for name, path in (files | {path.name: path for path in folder.iterdir()}).items()}


def small(folder: Path, reads: Reads = "deep", **sequence: Any) -> Small:
    """`sequence`: what its sequence is beyond the usual."""
    entries = dict(OPERATORS) | {"sequence": {"sequence": OPERATORS["sequence"]["sequence"] | sequence}}
    wanted = spec(folder, features=[*entries.values(), {"multi_hot": "title_hashtags"}])
    frame = films().with_columns(
        price=pl.when(pl.col("movieId") % 5 > 0).then(pl.col("movieId") / 7),
        title=pl.when(pl.col("movieId") % 4 > 0).then(pl.format("#Film{} of #{}", pl.col("movieId") % 3, pl.col("year"))),
        movieId_vector=pl.when(pl.col("movieId") % 6 > 0).then(
            pl.concat_list(pl.col("movieId").cast(pl.Float32), pl.lit(1.0), pl.lit(-2.0))
        ),
    )
    people = pl.DataFrame({"userId": range(1, 25), "age": [None if user % 7 == 0 else 10 + user for user in range(1, 25)]})
    seen = ratings(2000).select(user="userId", item="movieId", time="at", label=(pl.col("rating") >= 4).cast(pl.Int8)).lazy()
    train, holdout = seen.head(1600), seen.slice(1600)
    ready = prepare(graph_of(wanted, {}, frame.schema, people.schema, {}, reads), frame, people, seen)
    history = ready.history(train, holdout, folder / "history")
    ready = ready.fit(train, None, history)
    ready.write_rows(train, holdout, history, (folder / "train.parquet", folder / "holdout.parquet"))
    for name, table, side in (("items", ready.items, "item"), ("users", ready.users, "user")):
        assert table is not None
        table.write_parquet(folder / f"{name}.parquet")
        ready.graph.table(table.lazy(), side).collect().write_parquet(folder / f"{name}.features.parquet")  # type: ignore[arg-type]
    meetings = read_meetings(lambda name: folder / name, True, ready.graph)
    return Small(folder, wanted, ready.graph, ready, meetings.items, meetings)


def shifted(features: Any, graph: Graph, column: str) -> None:
    """Each code is the next one, each number one more than twice itself: of whatever operator."""
    from onnx import helper, numpy_helper

    output, inner = output_name(column), f"{output_name(column)}/before"
    node = next(node for node in features.graph.node if output in node.output)
    node.output[list(node.output).index(output)] = inner
    feature = next(one for one in graph.features if one.name == column)
    kind = np.int32 if feature.kind == "code" else np.float32
    features.graph.initializer.append(numpy_helper.from_array(np.array(1, kind), f"{output}/one"))
    features.graph.node.append(helper.make_node("Add", [inner, f"{output}/one"], [f"{output}/sum"]))
    if feature.kind == "code":
        features.graph.initializer.append(numpy_helper.from_array(np.array(feature.cardinality, np.int32), f"{output}/cardinality"))
        features.graph.node.append(helper.make_node("Mod", [f"{output}/sum", f"{output}/cardinality"], [output]))
    else:
        features.graph.node.append(helper.make_node("Add", [f"{output}/sum", inner], [output]))


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

    output, inner = output_name(column), f"{output_name(column)}/before"
    node = next(node for node in features.graph.node if output in node.output)
    node.output[0] = inner
    length = next(one.width for one in graph.features if one.name == column)
    assert length is not None
    features.graph.initializer.append(numpy_helper.from_array(np.arange(length)[::-1].copy(), f"{output}/order"))
    features.graph.node.append(helper.make_node("Gather", [inner, f"{output}/order"], [output], axis=1))


def _values(features: Any, column: str) -> Any:
    encoder = next(node for node in features.graph.node if node.op_type == "LabelEncoder" and column in node.input)
    return next(one for one in encoder.attribute if one.name == "values_int64s").ints
