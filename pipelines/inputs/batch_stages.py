"""Last stages of a training loader: turn etl's rows into features.

Features of items and users are gathered from their tables by row number, for positives and negatives, so a stored interaction is a few
numbers, whatever the number of features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipelines.features.graph import Graph
from pipelines.features.operators.base import Feature
from pipelines.features.prepared import FEATURE, FOLD
from pipelines.inputs.tables import Array, FeatureTable, crossed, describes_items, stranger
from pipelines.loaders.columns import Column, ListColumn
from pipelines.loaders.negatives import take_rows

LABEL = "~label"
"""Label column of the output batches; the name can't clash with a feature's."""
OWN_ITEM = "~item"
"""Column with the code of a row's item, also where the row shows an unknown item."""
UNKNOWN_SHARE = 0.02
"""Share of rows with an unknown user, and of rows with an unknown item: the model learns averages for them."""
UNKNOWN_ITEMS = 0.1
"""Share of rows with an unknown item if items have features besides the key: the model learns to score new items by them."""


def columns_of(graph: Graph, there: list[str]) -> list[str]:
    """Returns the columns of train.parquet that features and labels need."""
    wanted = {"user_code", "user_row", "item_row", "label", "weight", *(f"{FEATURE}{feature.name}" for feature in graph.side("context"))}
    return [name for name in there if name in wanted or name.startswith(FOLD)]


@dataclass(frozen=True)
class PositivesStage:
    """Stage that keeps only positives."""

    def __call__(self, batch: Mapping[str, Column], random: np.random.Generator) -> dict[str, Column]:
        labels = batch["label"]
        assert isinstance(labels, np.ndarray)
        rows = np.flatnonzero(labels > 0)
        return {name: take_rows(column, rows) for name, column in batch.items()}


@dataclass(frozen=True)
class GatherStage:
    """Stage that adds the features of item, user and interaction; out-of-fold values if the row has a fold."""

    graph: Graph
    items: FeatureTable
    users: FeatureTable | None
    """None if users have only a key."""

    def __call__(self, batch: Mapping[str, Column], random: np.random.Generator) -> dict[str, Column]:
        data = {name: column for name, column in batch.items() if not isinstance(column, ListColumn)}
        folds = {int(name.removeprefix(FOLD)): column for name, column in data.items() if name.startswith(FOLD)}
        features: dict[str, Column] = {**self.items.take(data["item_row"], folds)}
        features |= {feature.name: _own(batch[f"{FEATURE}{feature.name}"], feature) for feature in self.graph.side("context")}
        if self.users is not None:
            features |= self.users.take(data["user_row"], folds)
        labels = data["label"].astype(np.float32, copy=False)
        if "weight" in data:
            labels = labels * data["weight"]
        return features | {self.graph.user: data["user_code"], LABEL: labels}


@dataclass(frozen=True)
class UnknownIdsStage:
    """Stage that shows some rows with an unknown user, and some with an unknown item."""

    graph: Graph
    users: float = UNKNOWN_SHARE
    items: float = UNKNOWN_SHARE

    def __call__(self, batch: Mapping[str, Column], random: np.random.Generator) -> dict[str, Column]:
        columns = dict(batch)
        if self._keeps_own:
            columns[OWN_ITEM] = batch[self.graph.item]
        for share, blank in zip((self.users, self.items), self._blanks, strict=True):
            hidden = np.flatnonzero(random.random(len(columns[LABEL])) < share)
            for name, value in blank.items():
                column = np.array(columns[name])  # copies: the loader may own the column
                column[hidden] = value
                columns[name] = column
        return columns

    @cached_property
    def _keeps_own(self) -> bool:
        return describes_items(self.graph)

    @cached_property
    def _blanks(self) -> tuple[dict[str, Array], ...]:
        """Values of an unknown user and of an unknown item, for each feature made of the key."""
        return tuple(stranger(self.graph, key) for key in (self.graph.user, self.graph.item))


@dataclass(frozen=True)
class CrossStage:
    """Stage that adds crosses with items; last, since crosses use the codes as shown."""

    graph: Graph

    def __call__(self, batch: Mapping[str, Column], random: np.random.Generator) -> dict[str, Column]:
        return {**crossed(self.graph, {name: column for name, column in batch.items() if not isinstance(column, ListColumn)})}


def _own(column: Column, feature: Feature) -> Array:
    """Restores fixed-length lists, whose length Arrow may lose."""
    values = column.values.reshape(len(column), feature.width or 1) if isinstance(column, ListColumn) else column
    return values.astype(np.int32 if feature.kind == "code" else np.float32, copy=False)
