"""Features of items in a transformer: an item's vector is a vector of its own plus the vectors of its features.

A code adds its vector, a list the mean of its codes' vectors, a number its vector times the standardised number. So items share what is
learned of their features. Items without a code of their own have the vector `BASE` in its place: in each training step some items have it
too. The weights of a trained model hold the sums for all codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import FIRST, NULL
from pipelines.features.graph import Graph
from pipelines.features.onnx_builder import OnnxBuilder
from pipelines.features.operators.base import Feature
from pipelines.inputs.batch_stages import UNKNOWN_ITEMS
from pipelines.inputs.tables import Codes, FeatureTable, describes_items
from pipelines.models.attention.shape import FEATURES, ITEMS, Weights
from shared.domain.errors import Invalid

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
BASE = 0
"""Row of the table of vectors for the vector of items without a code; the vectors of the features follow."""
LARGEST = 5.0
"""Largest standardised number: a training cannot use greater ones."""


@dataclass(frozen=True)
class ItemFeature:
    name: str
    first: int
    """Row of the feature's first vector in the table."""
    count: int
    """Number of its vectors: one for each code, or for each number of an item."""
    codes: bool
    length: int | None
    """Codes or numbers per item; None: one."""
    mean: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()
    """Mean and standard deviation of each number in the training."""

    def parts(self, columns: Codes) -> tuple[Ints, Floats]:
        """Returns the rows and factors of `Parts`."""
        column = columns[self.name]
        values = column if column.ndim == 2 else column[:, None]
        if self.codes:
            there = values != NULL
            factors = there / np.maximum(there.sum(axis=1, keepdims=True), 1)
            return (self.first + values).astype(np.int32), factors.astype(np.float32)
        mean, spread = (np.array(numbers, np.float32) for numbers in (self.mean, self.spread))
        standard = np.clip((values - mean) / spread, -LARGEST, LARGEST) / np.sqrt(self.count)
        rows = np.broadcast_to(np.arange(self.first, self.first + self.count, dtype=np.int32), values.shape)
        return rows, standard.astype(np.float32)

    def lower(self, build: OnnxBuilder) -> tuple[str, str]:
        """Adds the feature as an input and the nodes of `parts`."""
        dims = () if self.length is None else (self.length,)
        values = build.input(self.name, "INT32" if self.codes else "FLOAT", "N", *dims)
        if self.length is None:
            values = build.column(values)
        if self.codes:
            there = build.cast(build.node("Not", build.node("Equal", values, build.constant(np.int32(NULL)))), "FLOAT")
            count = build.node("Max", build.node("ReduceSum", there, build.constant([1])), build.constant(np.float32(1)))
            return build.node("Add", values, build.constant(np.int32(self.first))), build.node("Div", there, count)
        mean, spread = (build.constant(np.array([numbers], np.float32)) for numbers in (self.mean, self.spread))
        standard = build.node("Div", build.node("Sub", values, mean), spread)
        standard = build.node("Clip", standard, *(build.constant(np.float32(bound)) for bound in (-LARGEST, LARGEST)))
        factors = build.node("Div", standard, build.constant(np.float32(np.sqrt(self.count))))
        numbers = build.constant(np.arange(self.first, self.first + self.count, dtype=np.int32)[None, :])
        return build.node("Expand", numbers, build.node("Shape", values)), factors


@dataclass(frozen=True)
class Parts:
    """For each item: the rows of the table that are added up, and a factor for each row. Both arrays are [items, parts]."""

    rows: Ints
    factors: Floats

    def vectors(self, table: Floats) -> Floats:
        vectors = np.zeros((len(self.rows), table.shape[1]), np.float32)
        for rows, factors in zip(self.rows.T, self.factors.T, strict=True):
            vectors += table[rows] * factors[:, None]
        return vectors


@dataclass(frozen=True)
class ItemFeatures:
    features: tuple[ItemFeature, ...]

    @cached_property
    def rows(self) -> int:
        """Number of rows of the table."""
        return 1 + sum(feature.count for feature in self.features)

    def parts(self, columns: Codes) -> Parts:
        rows, factors = zip(*(feature.parts(columns) for feature in self.features), strict=True)
        return Parts(np.concatenate(rows, axis=1), np.concatenate(factors, axis=1))

    def vectors(self, table: Floats, columns: Codes) -> Floats:
        """Returns the vectors of items without a code."""
        vectors: Floats = table[BASE] + self.parts(columns).vectors(table)
        return vectors

    def lower(self, build: OnnxBuilder, table: Floats) -> str:
        """Adds the inputs, and the nodes of `vectors`."""
        of_features = [feature.lower(build) for feature in self.features]
        rows, factors = (build.node("Concat", *parts, axis=1) for parts in zip(*of_features, strict=True))
        vectors = build.node("Gather", build.initializer("features/vectors", table), rows)
        product = build.node("MatMul", build.node("Unsqueeze", factors, build.constant([1])), vectors)
        return build.node("Add", build.node("Squeeze", product, build.constant([1])), build.constant(table[BASE][None, :]))


@dataclass(frozen=True)
class FeaturesOfCodes:
    """The features in a training."""

    features: ItemFeatures
    parts: Parts
    """Of each item code."""
    unknown: float
    """Share of the items that show no code in a step."""


def item_vectors(weights: Weights) -> Floats:
    """Returns the item vectors for scores, by code; codes of no item get the lowest level of all items."""
    vectors = weights[ITEMS].copy()
    vectors[:FIRST] = 0
    vectors[:FIRST, -1] = vectors[FIRST:, -1].min(initial=0)
    return vectors


def vectors_of(weights: Weights, features: ItemFeatures | None, item: str, columns: Codes) -> Floats:
    """Returns the item vector of each row; `item` is the column of item codes. Items without a code have the vector of their features."""
    vectors, unknown = weights[ITEMS][columns[item]], columns[item] < FIRST
    if features is not None:
        vectors[unknown] = features.vectors(weights[FEATURES], {name: column[unknown] for name, column in columns.items()})
    elif unknown.any():
        vectors[unknown] = item_vectors(weights)[NULL]
    return vectors


def lower_vectors(build: OnnxBuilder, weights: Weights, features: ItemFeatures | None, item: str) -> str:
    """Adds the inputs of the features, and the nodes of `vectors_of`."""
    vectors = build.node("Gather", build.initializer("items/vectors", item_vectors(weights)), item)
    if features is None:
        return vectors
    unknown = build.node("Less", build.column(item), build.constant(np.int32(FIRST)))
    return build.node("Where", unknown, features.lower(build, weights[FEATURES]), vectors)


def item_features_of(graph: Graph, items: FeatureTable, parent: ItemFeatures | None) -> ItemFeatures | None:
    """Returns the features of items other than the key, or None if they are made of keys alone. In a warm run, numbers are standardised
    with the parent's mean and deviation."""
    if not describes_items(graph):
        return None
    before = {feature.name: feature for feature in parent.features} if parent is not None else {}
    features: list[ItemFeature] = []
    first = BASE + 1
    for feature in graph.side("item"):
        if feature.name != graph.item:
            features.append(_planned(feature, first, items.columns[feature.name], before.get(feature.name)))
            first += features[-1].count
    return ItemFeatures(tuple(features))


def _planned(feature: Feature, first: int, values: NDArray[np.float32], before: ItemFeature | None) -> ItemFeature:
    if feature.kind == "code":
        assert feature.cardinality is not None
        return ItemFeature(feature.name, first, feature.cardinality, True, feature.width)
    numbers = values.reshape(len(values), -1).astype(np.float64)
    mean, spread = numbers.mean(axis=0), numbers.std(axis=0)
    mean_of, spread_of = tuple(mean.tolist()), tuple(np.where(spread > 0, spread, 1).tolist())
    if before is not None:
        mean_of, spread_of = before.mean, before.spread
    return ItemFeature(feature.name, first, numbers.shape[1], False, feature.width, mean_of, spread_of)


def features_of_codes(graph: Graph, items: FeatureTable, parent: ItemFeatures | None, unknown: float | None) -> FeaturesOfCodes | None:
    """Returns None without features; `unknown` is the spec's share. Items that share a code have the features of the first; a code without
    an item has factors of zero."""
    features = item_features_of(graph, items, parent)
    if features is None:
        if unknown is not None:
            raise Invalid("model.params: 'unknown_items' has no effect, because items have no features besides the key: leave it out")
        return None
    vocabulary = graph.key(graph.item).state
    codes, first = np.unique(items.columns[graph.item], return_index=True)
    codes, first = codes[codes >= FIRST], first[codes >= FIRST]
    parts = features.parts(items.at(first).columns)
    shape = vocabulary.cardinality, parts.rows.shape[1]
    of_codes = Parts(np.full(shape, BASE, np.int32), np.zeros(shape, np.float32))
    of_codes.rows[codes], of_codes.factors[codes] = parts.rows, parts.factors
    usual = UNKNOWN_ITEMS if vocabulary.buckets is None else 0.0  # with buckets each item has a code
    return FeaturesOfCodes(features, of_codes, usual if unknown is None else unknown)


def grown_table(features: ItemFeatures, parent: ItemFeatures, table: Floats) -> Floats:
    """Returns the parent's table with a row of zeros for each new code."""
    rows = np.zeros((features.rows, table.shape[1]), np.float32)
    rows[BASE] = table[BASE]
    for feature, before in zip(features.features, parent.features, strict=True):
        rows[feature.first : feature.first + before.count] = table[before.first : before.first + before.count]
    return rows


def read_features(document: list[dict[str, Any]]) -> ItemFeatures:
    """Reads the features from model.json."""
    parsed = [ItemFeature(**{**feature, "mean": tuple(feature["mean"]), "spread": tuple(feature["spread"])}) for feature in document]
    return ItemFeatures(tuple(parsed))
