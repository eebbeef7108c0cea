"""The feature graph: compiled once from the spec, fitted once, and run by polars in training and by ONNX in serving.

Fitted state is neutral: a vocabulary as Parquet for each column and `features.json`. It is what etl publishes, what
training and export read, and what a warm run grows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.features.categorify import CategorifyFeature, Side
from pipelines.features.multi_hot import MultiHotFeature
from pipelines.features.vocabulary import DType, read_vocabulary
from shared.contracts.spec import Categorify, RecommenderSpec
from shared.domain.errors import BadData, Invalid

Feature = CategorifyFeature | MultiHotFeature
FEATURES = "features.json"
IR_VERSION, OPSET, ML_OPSET = 8, 17, 2


def vocabulary_file(column: str) -> str:
    return f"vocabulary.{column}.parquet"


def codes_name(column: str) -> str:
    """The name of a column's codes inside the ONNX graph."""
    return f"codes/{column}"


@dataclass(frozen=True)
class Graph:
    user: str
    item: str
    features: tuple[Feature, ...]

    def side(self, side: Side) -> tuple[Feature, ...]:
        return tuple(one for one in self.features if one.side == side)

    def feature(self, column: str) -> Feature:
        return next(one for one in self.features if one.column == column)

    def cardinalities(self) -> dict[str, int]:
        return {one.column: one.state.cardinality for one in self.features}

    def fit(self, interactions: pl.LazyFrame, items: pl.DataFrame, known: Graph | None = None) -> Graph:
        """Fits keys on the training interactions and all else on the items; with `known`, grows its vocabularies."""
        fitted: list[Feature] = []
        for one in self.features:
            key = {self.user: "user", self.item: "item"}.get(one.column)
            frame = interactions.select(pl.col(key).alias(one.column)) if key else items.lazy()
            old: Any = known.feature(one.column) if known else None
            fitted.append(one.fit(frame, old))
        return replace(self, features=tuple(fitted))

    def transform(self, frame: pl.LazyFrame, side: Side) -> pl.LazyFrame:
        """The code columns of one side, named as the raw ones."""
        return frame.select([one.transform() for one in self.side(side)])

    def lower(self) -> Any:
        """The ONNX model from raw columns to codes."""
        from onnx import TensorProto, helper

        types = {"int64": TensorProto.INT64, "string": TensorProto.STRING}
        nodes, inputs, outputs = [], [], []
        for one in self.features:
            shape = ["N"] if one.length is None else ["N", one.length]
            inputs.append(helper.make_tensor_value_info(one.column, types[one.dtype], shape))
            outputs.append(helper.make_tensor_value_info(codes_name(one.column), TensorProto.INT32, shape))
            nodes += one.lower(codes_name(one.column))
        graph = helper.make_graph(nodes, "features", inputs, outputs)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="eyas")

    def describe(self) -> list[dict[str, Any]]:
        return [
            {
                "kind": one.kind,
                "column": one.column,
                "side": one.side,
                "dtype": one.dtype,
                "min_count": one.min_count,
                "length": one.length,
                "cardinality": one.state.cardinality,
            }
            | ({"max_length": one.max_length, "separator": one.separator} if isinstance(one, MultiHotFeature) else {})
            for one in self.features
        ]

    def save(self, folder: Path) -> dict[str, Path]:
        files = {vocabulary_file(one.column): one.state.write(folder / vocabulary_file(one.column)) for one in self.features}
        path = folder / FEATURES
        path.write_text(json.dumps({"version": 1, "user": self.user, "item": self.item, "features": self.describe()}, indent=1))
        return files | {FEATURES: path}


def load_graph(fetch: Callable[[str], Path]) -> Graph:
    """Reads a fitted graph; `fetch` gives the path of a published file."""
    described = json.loads(fetch(FEATURES).read_text())
    features: list[Feature] = []
    for entry in described["features"]:
        kind, _ = entry.pop("kind"), entry.pop("cardinality")
        vocabulary = read_vocabulary(fetch(vocabulary_file(entry["column"])), entry["dtype"])
        if kind == "categorify":
            del entry["length"]
            features.append(CategorifyFeature(**entry, vocabulary=vocabulary))
        else:
            features.append(MultiHotFeature(**entry, vocabulary=vocabulary))
    return Graph(described["user"], described["item"], tuple(features))


def compile_graph(spec: RecommenderSpec, items: pl.Schema, table: str) -> Graph:
    """The unfitted graph; `items` is the schema of the items table, its key renamed to the schema's item column."""
    user, item = spec.schema_.user, spec.schema_.item
    features: list[Feature] = []
    for operator in spec.operators():
        columns = operator.categorify if isinstance(operator, Categorify) else (operator.multi_hot,)
        for column in columns:
            if column in (user, item) and not isinstance(operator, Categorify):
                raise Invalid(f"features: '{column}' is a key: it takes 'categorify', not 'multi_hot'")
            if column == user:
                features.append(CategorifyFeature(column, "user", "int64", operator.min_count))
                continue
            if column not in items:
                known = ", ".join(sorted(spec.data.items.key if name == item else name for name in items.names()))
                raise Invalid(f"features: column '{column}' is neither a key nor in the items table {table}, which has: {known}")
            if isinstance(operator, Categorify):
                features.append(CategorifyFeature(column, "item", _dtype(items[column], column, table), operator.min_count))
            else:
                dtype = _list_dtype(items[column], column, operator.separator, table)
                features.append(MultiHotFeature(column, "item", dtype, operator.min_count, operator.max_length, operator.separator))
    return Graph(user, item, tuple(features))


def check_same(graph: Graph, parent: Graph) -> None:
    """A warm run keeps the parent's features: codes and tables could not keep their meaning otherwise."""
    ours, theirs = ([(one.column, one.kind, one.dtype) for one in which.features] for which in (graph, parent))
    if ours != theirs:
        raise Invalid(f"features: they changed since the parent ({theirs} then, {ours} now): a warm run can't, start a full one")


def _dtype(dtype: pl.DataType, column: str, table: str) -> DType:
    if dtype.is_integer():
        return "int64"
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        return "string"
    raise BadData(f"{table}: column '{column}' is {dtype}: categorify takes integers or text")


def _list_dtype(dtype: pl.DataType, column: str, separator: str | None, table: str) -> DType:
    if isinstance(dtype, pl.List | pl.Array):
        if separator is not None:
            raise Invalid(f"features: '{column}' is a column of lists in {table}: leave its separator out")
        return _dtype(dtype.inner if isinstance(dtype.inner, pl.DataType) else dtype.inner(), column, table)
    if dtype not in (pl.String, pl.Categorical, pl.Enum):
        raise BadData(f"{table}: column '{column}' is {dtype}: multi_hot takes lists or delimited text")
    if separator is None:
        raise Invalid(f"features: '{column}' is text in {table}: say its separator, such as '|'")
    return "string"
