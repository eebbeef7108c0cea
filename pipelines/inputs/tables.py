"""Features as arrays: of items and users by table row, of the interaction by data row, and crosses of both.

Users outside the users table have only their key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import Raw, Side, polars_type
from pipelines.features.graph import Graph
from pipelines.features.operators.base import output_name
from pipelines.features.operators.codes import Cross
from pipelines.features.operators.sequence import Sequence

Array = NDArray[Any]
Codes = dict[str, NDArray[Any]]
"""By feature: int32 codes or float32 numbers, one or several per row."""
FOLDS = "@folds"
USERS = "users.features.parquet"


@dataclass(frozen=True)
class FeatureTable:
    """Features of all items or all users, by row."""

    columns: Codes
    apart: Mapping[str, Array]
    """[rows, folds]: a feature's value without each fold, if different."""

    def take(self, rows: Array, folds: Mapping[int, Array] | None = None) -> Codes:
        """Returns the features of the rows; with `folds`, the values for training."""
        features = {name: column[rows] for name, column in self.columns.items()}
        for name, apart in self.apart.items():
            if folds is not None:
                features[name] = apart[rows, folds[apart.shape[1]]]
        return features

    def at(self, rows: Array) -> FeatureTable:
        """Returns a table of the given rows."""
        return FeatureTable(
            {name: column[rows] for name, column in self.columns.items()}, {name: values[rows] for name, values in self.apart.items()}
        )

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def read_table(path: Path, graph: Graph, side: Side) -> FeatureTable:
    frame = pl.read_parquet(path)
    columns = {feature.name: array(frame[feature.name], feature.kind) for feature in graph.side(side)}
    apart = {name.removesuffix(FOLDS): array(frame[name], "float32") for name in frame.columns if name.endswith(FOLDS)}
    return FeatureTable(columns, apart)


def array(column: pl.Series, kind: str) -> Array:
    return np.ascontiguousarray(column.to_numpy(), dtype=np.int32 if kind == "code" else np.float32)


class Users:
    """Features of users by key: table rows, and unknown users."""

    def __init__(
        self, graph: Graph, table: FeatureTable | None, keys: NDArray[np.int64] | None, rows: NDArray[np.int64] | None = None
    ) -> None:
        """`rows`: rows of etl's table, if users have several."""
        self.graph, self.table, self._keys, self.rows = graph, table, keys, rows

    def of(self, keys: NDArray[np.int64]) -> Codes:
        if self.table is None or self._keys is None or not len(self._keys):
            return self._made(keys)
        places = placed(self._keys, keys)
        there = places < len(self._keys)
        features = self.table.take(np.where(there, places, 0))
        if not there.all():
            for name, column in self._made(keys[~there]).items():
                features[name][~there] = column
        return features

    def _made(self, keys: NDArray[np.int64]) -> Codes:
        distinct, inverse = np.unique(keys, return_inverse=True)
        blank = [pl.lit(None, dtype_of(raw)).alias(raw.name) for raw in self.graph.raws("users")]
        frame = pl.LazyFrame({self.graph.user: distinct}).with_columns(blank)
        made = self.graph.transform(frame, "user").collect()
        return {feature.name: array(made[feature.name], feature.kind)[inverse] for feature in self.graph.side("user")}


def placed(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns each key's place among sorted keys; `len(keys)` for missing keys."""
    if not len(keys):
        return np.zeros(len(wanted), np.int64)
    positions = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[positions] == wanted, positions, len(keys))


def dtype_of(column: Raw) -> pl.DataType:
    return pl.List(polars_type(column.kind)) if column.many else polars_type(column.kind)


def read_users(fetch: Callable[[str], Path], there: bool, graph: Graph, then: tuple[Array, Array] | None = None) -> Users:
    """Reads the current values of users; with `then` (keys and rows of etl's table) the values of those rows."""
    if not there:
        return Users(graph, None, None)
    keys = pl.read_parquet(fetch("users.parquet"), columns=[graph.user])[graph.user].to_numpy()
    table = read_table(fetch(USERS), graph, "user")
    last = np.flatnonzero(np.append(keys[1:] != keys[:-1], True)[: len(keys)])
    if len(last) == len(keys):
        return Users(graph, table, keys)
    rows, keys = last, keys[last]
    if then is not None:
        rows[placed(keys, then[0])] = then[1]
    return Users(graph, table.at(rows), keys, rows)


def describes_items(graph: Graph) -> bool:
    """Returns whether items have other features than those made of keys and time. Only other features describe a new item."""
    return any(not set(graph.sources(feature)) <= set(graph.row) for feature in graph.side("item"))


def stranger(graph: Graph, key: str) -> Codes:
    """Returns the feature values of an unknown key, for features made only of keys and time. Sequences are left out, because an unknown
    user of a request has a sequence too: the recent likes."""
    sequences = {feature.name for operator in graph.operators if isinstance(operator, Sequence) for feature in operator.features}
    names = [
        feature
        for feature in graph.features
        if feature.side != "pair" and feature.name not in sequences and key in (of := set(graph.sources(feature))) and of <= set(graph.row)
    ]
    blank = {raw.name: pl.Series([None], dtype=dtype_of(raw)) for raw in graph.raws()}
    keys = graph.key(key).state.values
    unknown = int(keys.max() or 0) + 1 if (keys.max() or 0) < 2**63 - 1 else int(keys.min()) - 1  # type: ignore[arg-type, operator]
    frame = pl.DataFrame(blank | {key: pl.Series([unknown], dtype=pl.Int64)})
    made = graph.transform(frame.lazy(), *{feature.side for feature in names}).collect()
    return {feature.name: array(made[feature.name], feature.kind)[0] for feature in names}


def crossed(graph: Graph, columns: Codes) -> Codes:
    """Adds the crosses of users or context with items, from the codes in `columns`."""
    features = dict(columns)
    for operator in graph.operators:
        if isinstance(operator, Cross) and operator.outputs[0].side == "pair":
            parts = [features[column.name.removeprefix(output_name(""))] for column in operator.columns]
            features[operator.name] = operator.arrays(parts)
    return features
