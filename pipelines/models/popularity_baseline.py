"""The baseline that every run has: items by their positives in the training data, with the newest positives counting most.

A positive counts half as much after each half-life. The half-life is chosen on the newest positives, which a ranking by the older ones must
foretell; without a half-life that is better by more than two standard errors, all positives count equally. A warm run sees only the newest
events: it keeps its parent's half-life, and adds the parent's scores faded to the new time; without a half-life, the parent's scores
order items with equal counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

POPULARITY = "popularity.parquet"
DAY = 86_400.0
HALF_LIVES = tuple(days * DAY for days in (0.25, 1, 3, 7, 14, 30, 90, 365))
HELD_SHARE, MOST_CASES, FEWEST_USERS = 0.1, 20_000, 30
ERRORS = 2.0
"""Standard errors by which a half-life must be better than equal counts."""
_DIGITS = 9
"""Significant digits of the scores: sums in another order must give equal scores."""


@dataclass(frozen=True)
class Popularity:
    """A score for each row of the catalogue; equal items have equal scores."""

    items: NDArray[np.int64]
    scores: NDArray[np.float64]
    counts: NDArray[np.int64]
    """Number of positives in the training data."""
    half_life: float | None = None
    """In seconds; None: all positives count equally."""
    until: float = 0.0
    """Time of the newest counted positive, in seconds since 1970; 0 without times."""

    def ordered(self) -> NDArray[np.int64]:
        """Returns the item keys, the most popular first; equal scores are ordered by key."""
        order = np.lexsort((self.items, -self.scores))
        return np.asarray(self.items[order], dtype=np.int64)

    def save(self, path: Path) -> Path:
        facts = {"half_life": pl.lit(self.half_life, pl.Float64), "until": pl.lit(self.until)}
        pl.DataFrame({"item": self.items, "score": self.scores, "count": self.counts}).with_columns(**facts).write_parquet(path)
        return path


def fit_popularity(train: pl.LazyFrame, items: pl.Series, parent: Popularity | None = None, timed: bool = True) -> Popularity:
    """`timed`: whether the rows' times have a meaning."""
    positives = train.filter(pl.col("label") == 1)
    half_life, until = (None, 0.0) if parent is None else (parent.half_life, parent.until)
    if timed and "time" in train.collect_schema().names():
        until = max(until, float(positives.select(pl.col("time").max()).collect(engine="streaming").item() or 0.0))
        half_life = choose_half_life(positives, items) if parent is None else half_life
    score = pl.len().cast(pl.Float64) if half_life is None else _worth(half_life, until).sum().round_sig_figs(_DIGITS)
    totals = positives.group_by("item").agg(score.alias("score"), pl.len().alias("count"))
    frame = pl.DataFrame({"item": items}).join(totals.collect(engine="streaming"), on="item", how="left", maintain_order="left")
    scores = frame["score"].fill_null(0.0).to_numpy().copy()
    if parent is not None and len(parent.items):
        faded = 1 / (parent.scores.max() + 1) if half_life is None else 0.5 ** ((until - parent.until) / half_life)
        before = pl.DataFrame({"item": parent.items, "before": parent.scores * faded})
        scores += frame.join(before, on="item", how="left", maintain_order="left")["before"].fill_null(0.0).to_numpy()
    counts = frame["count"].fill_null(0).cast(pl.Int64).to_numpy()
    return Popularity(frame["item"].to_numpy(), scores, counts, half_life, until)


def load_popularity(path: Path) -> Popularity:
    frame = pl.read_parquet(path)
    scores = frame["score"].to_numpy()
    if "count" not in frame.columns:  # of an older release, which counted all positives equally
        return Popularity(frame["item"].to_numpy(), scores, scores.astype(np.int64))
    facts: Mapping[str, Any] = frame.row(0, named=True) if len(frame) else {"half_life": None, "until": 0.0}
    return Popularity(frame["item"].to_numpy(), scores, frame["count"].to_numpy(), facts["half_life"], facts["until"])


def choose_half_life(positives: pl.LazyFrame, items: pl.Series) -> float | None:
    """Returns the half-life that ranks the newest positives best, by ndcg@10 over their users, without what a user liked before."""
    cut = positives.select(pl.col("time").quantile(1 - HELD_SHARE, "lower")).collect(engine="streaming").item()
    if cut is None:
        return None
    before = positives.filter(pl.col("time") < cut)
    cases = positives.filter((pl.col("time") >= cut) & pl.col("item").is_in(items.implode())).select("user", "item").collect()
    cases = cases.unique().sort("user", "item")
    if len(cases) > MOST_CASES:
        cases = cases[np.sort(np.random.default_rng(53).permutation(len(cases))[:MOST_CASES])]
    if cases["user"].n_unique() < FEWEST_USERS:
        return None
    worths = [pl.len().cast(pl.Float64).alias("0")]
    worths += [_worth(half_life, cut).sum().round_sig_figs(_DIGITS).alias(str(place)) for place, half_life in enumerate(HALF_LIVES, 1)]
    frame = pl.DataFrame({"item": items})
    totals = frame.join(before.group_by("item").agg(worths).collect(engine="streaming"), on="item", how="left", maintain_order="left")
    rows = frame.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    liked = (
        before.select("user", "item").filter(pl.col("user").is_in(cases["user"].unique().implode())).collect(engine="streaming").unique()
    )
    judged, liked_rows = (pairs.join(rows, on="item", maintain_order="left").select("user", "row") for pairs in (cases, liked))
    gains = np.stack([_gains(totals[str(place)].fill_null(0.0).to_numpy(), judged, liked_rows) for place in range(len(HALF_LIVES) + 1)])
    better = gains - gains[0]
    best = int(better.mean(axis=1).argmax())
    error = better[best].std(ddof=1) / np.sqrt(better.shape[1])
    return HALF_LIVES[best - 1] if best and better[best].mean() > ERRORS * error else None


def _worth(half_life: float, until: float) -> pl.Expr:
    """Returns what a positive counts at `until`."""
    return pl.lit(0.5).pow((pl.lit(until) - pl.col("time")) / half_life)


def _gains(scores: NDArray[np.float64], cases: pl.DataFrame, liked: pl.DataFrame) -> NDArray[np.float64]:
    """Returns each user's mean ndcg@10 of the ranking by these scores; `cases` and `liked`: user and row of the catalogue."""
    _, levels = np.unique(scores, return_inverse=True)  # the order of the scores, in numbers
    ascending, span = np.sort(levels), len(scores) + 1
    users = pl.concat([cases["user"], liked["user"]]).rank("dense").to_numpy().astype(np.int64) * span
    level = levels[cases["row"].to_numpy()]
    of_user, dropped = users[: len(cases)], np.sort(users[len(cases) :] + levels[liked["row"].to_numpy()])
    ends = np.searchsorted(dropped, of_user + span)
    above = np.searchsorted(dropped, of_user + level, "right")
    greater = len(scores) - np.searchsorted(ascending, level, "right") - (ends - above)
    equal = np.searchsorted(ascending, level, "right") - np.searchsorted(ascending, level, "left")
    equal = equal - (above - np.searchsorted(dropped, of_user + level, "left"))
    ranks = 1 + greater + np.maximum(equal - 1, 0) / 2
    gains = pl.DataFrame({"user": cases["user"], "gain": np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0.0)})
    return gains.group_by("user", maintain_order=True).agg(pl.col("gain").mean())["gain"].to_numpy()
