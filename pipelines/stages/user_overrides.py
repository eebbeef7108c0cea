"""User overrides: values written to the feature store replace those of the users table, in training as in serving.

Each interaction gets the values of its own time. The users table has a row for each stretch of time with interactions, and the newest row,
with which serving starts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.features.asof import AT, KEY, SINCE, ValidityPeriods, join_history, microseconds, read_history, stretches
from pipelines.features.prepared import Prepared
from pipelines.stages.runner import Context
from shared.contracts.online import MOST_WIDTH, USERS, OnlineColumn, View, history_name

ORIGIN = "features"


def with_written(context: Context, ready: Prepared, interactions: pl.LazyFrame) -> tuple[Prepared, tuple[str, ...]]:
    """Returns the tables with written values, and the digests of the files read."""
    name = history_name(USERS)
    columns = tuple(
        OnlineColumn.model_validate({"name": raw.name, "dtype": raw.kind, "width": MOST_WIDTH if raw.many else None})
        for raw in ready.graph.raws("users")
        if raw.name != ready.graph.user
    )
    if ready.users is None or not columns or not context.has(ORIGIN, name):
        return ready, ()
    view = View(name=USERS, columns=columns, ttl=context.spec.recommender.serve.store.ttl)
    history = laid_down(context.fetch(ORIGIN, name), view, context.scratch / "written.parquet")
    users = by_moments(ready.users, ready.graph.user, history, view, interactions)
    rows = history.select(pl.len()).collect(engine="streaming").item()
    counts = rows, len(users), len(ready.users)
    context.log.info("user overrides: joined overrides=%d rows=%d users=%d", *counts)
    return replace(ready, users=users), (context.spec.inputs[ORIGIN][name].sha256,)


def laid_down(path: Path, view: View, to: Path) -> pl.LazyFrame:
    """Writes an exported history as Parquet, so that it is parsed once."""
    read_history(path, view).sink_parquet(to, compression="lz4")
    return pl.scan_parquet(to)


def by_moments(users: pl.DataFrame, key: str, history: pl.LazyFrame, view: View, interactions: pl.LazyFrame) -> pl.DataFrame:
    """Returns the users table with a row for each stretch of equal values that an interaction or serving needs."""
    time = microseconds(pl.col("time"))
    newest = interactions.select(time.max()).collect(engine="streaming").item()
    last = history.select(pl.col(AT).max()).collect(engine="streaming").item()
    began = stretches(users[key], history, view, max(newest or 0, last or 0))
    places = ValidityPeriods.of(began[KEY], began[SINCE])
    met = interactions.select(places.row("user", time).unique()).collect(engine="streaming").to_series().to_numpy()
    return join_history(users, key, began[np.union1d(places.last, met)], history, view)
