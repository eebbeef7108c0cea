"""What two contenders of the ETL benchmark wrote, compared row by row: `timestamp` names a row."""

from __future__ import annotations

from pathlib import Path

import polars as pl

RENAMED = {"TE_movieId_label": "movieId_te", "timestamp_difference_lag_1": "timestamp_lag"}
TOLERANCE = 1e-6


def read(folder: Path) -> pl.DataFrame:
    """`rows.parquet` or all of `rows`; lists without their padding."""
    single = folder / "rows.parquet"
    frame = pl.read_parquet(single if single.exists() else folder / "rows" / "*.parquet")
    frame = frame.rename({old: new for old, new in RENAMED.items() if old in frame.columns}).sort("timestamp")
    lists = [pl.col(name).cast(pl.List(pl.Int32)) for name, dtype in frame.schema.items() if isinstance(dtype, pl.List | pl.Array)]
    return frame.with_columns(one.list.eval(pl.element().filter(pl.element() != 0)) for one in lists)


def differences(reference: Path, folder: Path) -> list[str]:
    """A sentence for each column that isn't the same; codes may be other numbers for the same values."""
    theirs, ours = read(reference), read(folder)
    if len(theirs) != len(ours):
        return [f"{len(ours):,} rows instead of {len(theirs):,}"]
    missing = sorted(set(theirs.columns) - set(ours.columns))
    said = [_column(name, theirs[name], ours[name]) for name in theirs.columns if name not in missing]
    return [*(f"no column {name}" for name in missing), *(one for one in said if one)]


def _column(name: str, theirs: pl.Series, ours: pl.Series) -> str | None:
    if theirs.dtype.is_float():
        return _floats(name, theirs, ours)
    if isinstance(theirs.dtype, pl.List):
        if not (theirs.list.len() == ours.list.len()).all():
            return f"{name}: other numbers of values"
        theirs, ours = theirs.explode(empty_as_null=False), ours.explode(empty_as_null=False)
    unequal = int((theirs.cast(pl.Int64) != ours.cast(pl.Int64)).sum())
    if not unequal:
        return None
    pairs = pl.DataFrame({"theirs": theirs, "ours": ours}).unique()
    if len(pairs) == pairs["theirs"].n_unique() == pairs["ours"].n_unique():
        return f"{name}: the same values by other codes"
    return f"{name}: {unequal / len(theirs):.2%} of the values are others"


def _floats(name: str, theirs: pl.Series, ours: pl.Series) -> str | None:
    theirs, ours = theirs.cast(pl.Float64), ours.cast(pl.Float64).fill_nan(None)
    if not (theirs.is_null() == ours.is_null()).all():
        return f"{name}: nulls elsewhere"
    apart = (theirs - ours).abs()
    unequal = int((apart > TOLERANCE * pl.select(pl.max_horizontal(theirs.abs(), pl.lit(1.0))).to_series()).sum())
    return f"{name}: {unequal / len(theirs):.2%} of the values differ, by {float(str(apart.max())):.3g} at most" if unequal else None
