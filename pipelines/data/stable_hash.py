"""Hash of whole numbers, equal in every polars release and on every machine: splitmix64's finaliser."""

from __future__ import annotations

import polars as pl

_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def stable_hash(key: pl.Expr) -> pl.Expr:
    """Returns a UInt64 hash with all bits well mixed; products and sums wrap around."""
    mixed = key.cast(pl.Int64).reinterpret(signed=False) + _u64(_STEP)
    mixed = (mixed ^ (mixed // _u64(1 << 30))) * _u64(_FIRST)
    mixed = (mixed ^ (mixed // _u64(1 << 27))) * _u64(_SECOND)
    return mixed ^ (mixed // _u64(1 << 31))


def _u64(value: int) -> pl.Expr:
    return pl.lit(value, dtype=pl.UInt64)
