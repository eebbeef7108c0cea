"""What was written of users to the feature store, in the place of what their table says: training is told of them what serving is told.

One moment counts for all rows, the last one that the data or what was written knows of, as it does for the table itself.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from pipelines.features.asof import AT, overlaid, read_history
from pipelines.features.prepared import Prepared
from pipelines.stages.runner import Context
from shared.contracts.online import MOST_WIDTH, USERS, OnlineColumn, View, history_name

ORIGIN = "features"


def with_written(context: Context, ready: Prepared, interactions: pl.LazyFrame) -> tuple[Prepared, tuple[str, ...]]:
    """The tables, and the digests of what was read."""
    name = history_name(USERS)
    columns = tuple(
        OnlineColumn.model_validate({"name": one.name, "dtype": one.kind, "width": MOST_WIDTH if one.many else None})
        for one in ready.graph.raws("users")
        if one.name != ready.graph.user
    )
    if ready.users is None or not columns or not context.has(ORIGIN, name):
        return ready, ()
    view = View(name=USERS, columns=columns, ttl=context.spec.recommender.serve.store.ttl)
    history = read_history(context.fetch(ORIGIN, name), view)
    newest = interactions.select((pl.col("time").max() * 1_000_000).cast(pl.Int64)).collect(engine="streaming").item() or 0
    rows, last = history.select(pl.len(), pl.col(AT).max()).collect(engine="streaming").row(0)
    context.log.info("%s rows of what was written of users read", f"{rows:,}")
    users = overlaid(ready.users.lazy(), ready.graph.user, history, view, max(newest, last or 0)).collect()
    return replace(ready, users=users), (context.spec.inputs[ORIGIN][name].sha256,)
