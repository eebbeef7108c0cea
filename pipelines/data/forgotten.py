"""Filter that leaves rows of forgotten users out of everything that etl reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from shared.domain.forgetting import UserDigest


class ForgottenUserFilter:
    """`users`: times of forgetting (microseconds since 1970) by digest."""

    def __init__(self, secret: bytes = b"", users: Mapping[str, int] | None = None) -> None:
        self.users = users or {}
        self._digest = UserDigest(secret)

    @classmethod
    def read(cls, path: Path) -> ForgottenUserFilter:
        """Reads the file that the control plane gives to etl."""
        document = json.loads(path.read_text())
        return cls(bytes.fromhex(document["secret"]), document["users"])

    def without(self, rows: pl.LazyFrame, user: str, time: pl.Expr | None) -> pl.LazyFrame:
        """Leaves out rows up to the time (epoch seconds) at which their user was forgotten; without a time, all rows of the user."""
        if not self.users:
            return rows
        key = pl.col(user).cast(pl.Int64, strict=False)
        try:
            keys = rows.select(key.unique()).collect(engine="streaming")[user]
        except PolarsError:  # whoever reads the rows reports the fault; a part of them may be readable
            forgotten_at = key.map_batches(self._times, pl.Float64, is_elementwise=True)
        else:
            times = self._of(keys)
            if not times:
                return rows
            forgotten_at = key.replace_strict(times, default=None, return_dtype=pl.Float64)
        is_new = forgotten_at.is_null()
        return rows.filter(is_new if time is None else is_new | (time > forgotten_at))

    def _of(self, keys: pl.Series) -> dict[int, float]:
        return {key: instant / 1e6 for key, instant in self._digest.matches(keys.drop_nulls(), self.users).items()}

    def _times(self, keys: pl.Series) -> pl.Series:
        times = self._of(keys.unique())
        return pl.Series([times.get(key) for key in keys], dtype=pl.Float64)


NOBODY = ForgottenUserFilter()
