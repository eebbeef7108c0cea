"""Shared parts of operators over a user's rows in order: earlier rows in training, the newest rows of the fit in serving.

In training an operator's `before` computes the values from all rows of some users at a time; `pipelines.features.engines.history` calls
`before` and stores the results by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import NULL

VALUES = "values"
NEVER = -(2**63)
"""Unknown time."""


def in_order(rows: pl.Series, row: tuple[str, str, str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns row places ordered by user, time and item, and the users in that order. Fast for rows already ordered by time."""
    user, item, time = (rows.struct.field(name).fill_null(-(2**63)).to_numpy() for name in row)
    order = _by_user(user)
    users, times, items = user[order], time[order], item[order]
    same = users[1:] == users[:-1]
    later = (times[1:] > times[:-1]) | ((times[1:] == times[:-1]) & (items[1:] >= items[:-1]))
    if (same & ~later).any():
        order = np.lexsort((item, time, user))
    return order, user[order]


def _by_user(user: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sorts stably, 16 bits at a time where that is faster."""
    if not len(user) or int(user.max()) - int(user.min()) >= 2**32:
        return np.argsort(user, kind="stable")
    apart = (user - user.min()).astype(np.uint32)
    order = np.argsort(apart.astype(np.uint16), kind="stable")
    high = (apart >> 16).astype(np.uint16)
    return order[np.argsort(high[order], kind="stable")] if high.any() else order


def before_name(name: str) -> str:
    """Returns the name of an operator's history column."""
    return f"~before.{name}"


def grown(previous: pl.DataFrame | None, newest: pl.DataFrame, count: int) -> pl.DataFrame:
    """Merges the newest values of both; `newest` is later."""
    key = newest.columns[0]
    both = [newest] if previous is None else [previous, newest]
    merged = pl.concat([frame.explode(VALUES, empty_as_null=False) for frame in both])
    return merged.group_by(key, maintain_order=True).agg(pl.col(VALUES).tail(count)).sort(key)


def behind(codes: NDArray[Any], first: NDArray[Any], end: NDArray[Any], length: int, reverse: bool, nothing: int = NULL) -> NDArray[Any]:
    """Returns the last `length` codes of each [first, end), padded at the end."""
    count = np.minimum(end - first, length)[:, None]
    steps = np.arange(length)[None, :]
    at = end[:, None] - 1 - steps if reverse else end[:, None] - count + steps
    padded = np.append(codes, nothing).astype(codes.dtype)
    tails: NDArray[Any] = np.where(steps < count, padded[np.clip(at, 0, len(padded) - 1)], nothing).astype(codes.dtype)
    return tails
