"""What etl keeps of an interaction becomes features: the last stages of a loader of training batches.

Item and user features are gathered from their tables by row number, for positives and negatives alike, so an interaction on disk is a few
numbers however many features an item has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipelines.features.graph import Graph
from pipelines.features.operators.base import Feature
from pipelines.features.prepared import FEATURE, FOLD
from pipelines.inputs.tables import Array, Catalogue, crossed, stranger
from pipelines.loaders.columns import Column, Lists
from pipelines.loaders.negatives import take_rows

LABEL = "~label"
"""Of the batches that come out: a feature may be called as it likes."""
# This share of rows is shown as of unknown users, and another one as of unknown items: a model learns what holds on average.
UNKNOWN_SHARE = 0.02


def columns_of(graph: Graph, there: list[str]) -> list[str]:
    """Those of train.parquet that features and labels are made of."""
    wanted = {"user_code", "user_row", "item_row", "label", *(f"{FEATURE}{feature.name}" for feature in graph.side("context"))}
    return [name for name in there if name in wanted or name.startswith(FOLD)]


@dataclass(frozen=True)
class Positives:
    """A stage: the rows of positives alone."""

    def __call__(self, batch: Mapping[str, Column], random: np.random.Generator) -> dict[str, Column]:
        labels = batch["label"]
        assert isinstance(labels, np.ndarray)
        rows = np.flatnonzero(labels > 0)
        return {name: take_rows(column, rows) for name, column in batch.items()}


@dataclass(frozen=True)
class Gathered:
    """A stage: the features of the row's item, user and moment; out-of-fold values where the row has a fold."""

    graph: Graph
    items: Catalogue
    users: Catalogue | None
    """None where nothing but the key is known of them."""

    def __call__(self, batch: Mapping[str, Column], random: np.random.Generator) -> dict[str, Column]:
        data = {name: column for name, column in batch.items() if not isinstance(column, Lists)}
        folds = {int(name.removeprefix(FOLD)): column for name, column in data.items() if name.startswith(FOLD)}
        features: dict[str, Column] = {**self.items.take(data["item_row"], folds)}
        features |= {feature.name: _own(batch[f"{FEATURE}{feature.name}"], feature) for feature in self.graph.side("context")}
        if self.users is not None:
            features |= self.users.take(data["user_row"], folds)
        return features | {self.graph.user: data["user_code"], LABEL: data["label"].astype(np.float32, copy=False)}


@dataclass(frozen=True)
class Strangers:
    """A stage: some rows are shown as of a user that nobody knows, others as of such an item."""

    graph: Graph
    share: float = UNKNOWN_SHARE

    def __call__(self, batch: Mapping[str, Column], random: np.random.Generator) -> dict[str, Column]:
        columns = dict(batch)
        for blank in self._blanks:
            hidden = np.flatnonzero(random.random(len(columns[LABEL])) < self.share)
            for name, value in blank.items():
                column = np.array(columns[name])  # it may be the loader's own
                column[hidden] = value
                columns[name] = column
        return columns

    @cached_property
    def _blanks(self) -> tuple[dict[str, Array], ...]:
        """What there is of an unknown user, and of an unknown item: of every feature that is made of the key."""
        return tuple(stranger(self.graph, key) for key in (self.graph.user, self.graph.item))


@dataclass(frozen=True)
class Crossed:
    """A stage: the crosses of users or moments with items, last, for they are of codes as they are shown."""

    graph: Graph

    def __call__(self, batch: Mapping[str, Column], random: np.random.Generator) -> dict[str, Column]:
        return {**crossed(self.graph, {name: column for name, column in batch.items() if not isinstance(column, Lists)})}


def _own(column: Column, feature: Feature) -> Array:
    """Arrow may have forgotten that lists are of one length."""
    values = column.values.reshape(len(column), feature.width or 1) if isinstance(column, Lists) else column
    return values.astype(np.int32 if feature.kind == "code" else np.float32, copy=False)
