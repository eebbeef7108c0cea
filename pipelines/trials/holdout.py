"""Holdout of a file without test pairs. It depends on the seed, not on the order of the rows."""

from __future__ import annotations

import numpy as np
import polars as pl

from pipelines.trials.files import PairFile
from shared.contracts.trials import Holdout
from shared.domain.errors import BadData, Invalid

NEWEST = 0.1
_ORDER = "holdout.order"
"""Column name with a dot, which no data column has."""


def cut(pairs: PairFile, how: Holdout | None, seed: int) -> tuple[pl.DataFrame, pl.DataFrame, str]:
    """Returns training rows, test rows, and a description. A user's only row stays in training."""
    chosen = how or ("last" if pairs.has_times else "random")
    if chosen != "random" and not pairs.has_times:
        raise Invalid(f"--holdout {chosen}: {pairs.name} has no time column: use --holdout random")
    frame = pairs.frame.sort("user", "item", maintain_order=True)
    frame = frame.with_columns(pl.Series(_ORDER, np.random.default_rng((seed, 5)).permutation(len(frame))))
    if chosen == "newest":
        return _newest(frame, pairs.name)
    frame = frame.sort("user", "time", _ORDER) if chosen == "last" else frame.sort("user", _ORDER)
    user = frame["user"]
    held_out = (user != user.shift(-1)).fill_null(True) & (user == user.shift(1)).fill_null(False)
    if not held_out.any():
        raise BadData(f"{pairs.name}: no user has two items: nothing can be held out")
    words = "each user's newest item" if chosen == "last" else f"one item of each user, drawn at random (seed {seed})"
    return _plain(frame.filter(~held_out)), _plain(frame.filter(held_out)), f"held out of {pairs.name}: {words}"


def _newest(frame: pl.DataFrame, name: str) -> tuple[pl.DataFrame, pl.DataFrame, str]:
    """Holds out the newest rows; rows of equal time stay together."""
    moment = frame["time"].sort()[min(len(frame) - 1, int(len(frame) * (1 - NEWEST)))]
    held_out = frame["time"] >= moment
    if held_out.all():
        raise BadData(f"{name}: too few different times to hold out the newest rows: use --holdout random")
    return (
        _plain(frame.filter(~held_out)),
        _plain(frame.filter(held_out)),
        f"held out of {name}: the newest {held_out.sum():,} rows, {held_out.mean():.0%}",
    )


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.drop(_ORDER)
