"""Rows for parity, with the features and scores of training.

Takes random real pairs, then pairs that cover every item and every known user, as far as possible, and an unknown user, so that a single
moved vocabulary entry shows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import Raw
from pipelines.features.graph import Graph
from pipelines.inputs.eval_pairs import RawColumns
from pipelines.inputs.tables import array
from pipelines.models.family import Trained
from pipelines.models.recent_items import reads_recent
from shared.serving.signature import BLANK, OUTPUT, Signature

Ints = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]
REAL, MOST = 4_000, 20_000
_RECENT = 500
"""Maximum number of rows with recent items, for a model that reads them itself."""
_LAST = 2**63 - 1
_BLANK = BLANK["int64"]


def choose_pairs(graph: Graph, fetch: Callable[[str], Path], catalogue: int, seed: int) -> tuple[Ints, Ints]:
    """Returns users' keys and rows of the catalogue, by seed. `fetch` returns etl's files."""
    random = np.random.default_rng((seed, 31))
    users, rows = _real(fetch, random)
    user_keys = graph.key(graph.user).state.values.to_numpy()
    count = min(MOST, max(len(user_keys), catalogue))
    covering_users = np.append(_cycle(random.permutation(user_keys), count), _stranger(user_keys))
    covering_rows = np.append(_cycle(random.permutation(catalogue), count), 0)
    return np.concatenate([users, covering_users]), np.concatenate([rows, covering_rows])


def answers(graph: Graph, model: Trained, raw: RawColumns, users: Ints, rows: Ints, served: Signature, recent: Raw | None = None) -> Arrays:
    """Returns the raw columns that the unit takes, the features as polars computes them (by output name), and the scores of the training
    runtime. `recent`: the unit's input of recent items, if the model itself reads them."""
    columns, frame = raw.of(served)(users, rows), raw.frame(graph, users, rows)
    if served.session is not None:
        some = np.arange(0, len(rows), 2) if recent is None else np.arange(0, min(len(rows), REAL), REAL // _RECENT)
        columns[served.session] = _with_items(columns[served.session], raw.items[served.item].to_numpy(), some)
    if served.session is not None and recent is None:
        frame = frame.with_columns(
            pl.Series(served.session, [row[row != _BLANK].tolist() for row in columns[served.session]], pl.List(pl.Int64))
        )
    made = graph.transform(frame.lazy()).collect()
    features = {feature.name: array(made[feature.name], feature.kind) for feature in graph.features}
    score = model.score(features) if recent is None else _score_recent(graph, model, features, columns[recent.name])
    return columns | {feature.output: features[feature.name] for feature in graph.features} | {OUTPUT: score}


def _score_recent(graph: Graph, model: Trained, features: Arrays, recent: Ints) -> NDArray[np.float32]:
    """Returns the scores of all rows; only rows with recent items are scored with them, because that takes longer."""
    assert reads_recent(model)
    score, some = model.score(features), np.flatnonzero((recent != _BLANK).any(axis=1))
    keys = pl.Series(recent[some].ravel())
    codes = graph.key(graph.item).state.coded(keys.set(keys == _BLANK, None)).reshape(len(some), -1)
    score[some] = model.score_recent({name: column[some] for name, column in features.items()}, codes)
    return score


def _with_items(blank: Ints, keys: Ints, rows: Ints) -> Ints:
    """Returns the lists with random items in some rows, as requests may bring them; some of the items are unknown."""
    lists, random = np.array(blank), np.random.default_rng((len(blank), 37))
    for row in rows.tolist():
        items = random.choice(keys, random.integers(1, lists.shape[1] + 1))
        items[random.random(len(items)) < 0.02] = _stranger(keys)
        lists[row, : len(items)] = items
    return lists


def _real(fetch: Callable[[str], Path], random: np.random.Generator) -> tuple[Ints, Ints]:
    """Samples pairs of the holdout, filled up with training pairs."""
    chosen: list[pl.DataFrame] = []
    for name in ("holdout.parquet", "train.parquet"):
        missing = REAL - sum(len(part) for part in chosen)
        pairs = pl.read_parquet(fetch(name), columns=["user", "item_row"])
        chosen.append(pairs[np.sort(random.permutation(len(pairs))[:missing])])
    pairs = pl.concat(chosen)
    return pairs["user"].to_numpy(), pairs["item_row"].cast(pl.Int64).to_numpy()


def _cycle(values: Ints, count: int) -> Ints:
    return np.resize(values, count)


def _stranger(keys: Ints) -> int:
    """Returns an unknown key."""
    newest = int(keys.max(initial=0))
    return newest + 1 if newest < _LAST else int(keys.min()) - 1
