"""Values of users by key for the feature store: `online.json` and its parts, as in shared.contracts.online.

Values are those of the prepared users table. Their event time is the newest time of the data: later writes win, older values don't return.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.features.raw import FITTED, raw_column
from shared.contracts.online import ONLINE, Online, OnlineColumn, View
from shared.domain.feature_values import instant
from shared.serving.signature import Signature
from shared.serving.values_file import PART, ValueRows, write_values


def write_online(
    served: Signature, users: pl.DataFrame | None, at: datetime, ttl: timedelta | None, place: Callable[[str], Path], part: int = PART
) -> dict[str, Path]:
    """Writes the files; none if the unit takes nothing from the store. `place` returns the path for a name."""
    views = []
    files: dict[str, Path] = {}
    stored = [column for column in served.inputs if column.origin == "store"]
    for name in sorted({str(column.view) for column in stored}):
        inputs = [column for column in stored if column.view == name]
        columns = tuple(OnlineColumn(name=column.name, dtype=column.dtype, width=column.width) for column in inputs)
        table = users if users is not None else pl.DataFrame(schema={served.user: pl.Int64()})
        arrays = {column.name: raw_column(table, column, "the users table") for column in inputs} if len(table) else {}
        keys = table[served.user].to_numpy().astype(np.int64)
        values = ValueRows(keys, np.full(len(keys), instant(at)), arrays)
        view, written = write_values(_view(name, columns, ttl), values, place, part)
        views.append(view)
        files |= written
    if views:
        files[ONLINE] = place(ONLINE)
        files[ONLINE].write_text(Online(views=tuple(views)).model_dump_json(indent=1))
    return files


def _view(name: str, columns: tuple[OnlineColumn, ...], ttl: timedelta | None) -> View:
    """Returns a view; a version's fitted values have no time to live."""
    return View(name=name, columns=columns, fitted=True) if name == FITTED else View(name=name, columns=columns, ttl=ttl)


def newest(fetch: Callable[[str], Path]) -> datetime:
    """Returns the newest time of the data; `fetch` returns etl's files."""
    times = pl.concat([pl.scan_parquet(fetch(name)).select("time") for name in ("train.parquet", "holdout.parquet")])
    last = times.select(pl.col("time").max()).collect(engine="streaming").item()
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=float(last or 0.0))
