"""Ranks held-out likes after each epoch: one like per user for some users, against all items or a sample that the user never met.

The cases are drawn once from the seed, so that all epochs have the same cases. Cases are written as rows and get features as training rows
do. The ranks only compare epochs; the evaluation judges the model on other rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.evaluation.metrics import rank_metric
from pipelines.inputs.batches import Batches
from pipelines.inputs.tables import Codes
from shared.contracts.training import FULL, SAMPLED, LookMetric
from shared.domain.errors import Invalid

CASES, NEGATIVES = 2_000, 99
PAIRS, FEWEST = 4_000_000, 100
"""For ranks among all items: most pairs of user and item, and fewest users."""
_AT_ONCE = 50_000
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Ranking:
    batches: Batches
    starts: Ints
    """Row of each case's like; the negatives follow."""
    score: Callable[[Codes], NDArray[np.float32]]
    names: frozenset[LookMetric] = SAMPLED

    def __call__(self) -> dict[str, float]:
        ranks = self.ranks()
        return {name: rank_metric(name).of(ranks) for name in sorted(self.names)}

    def ranks(self) -> NDArray[np.float64]:
        """Returns the rank of each case, from 1."""
        scores = np.concatenate([self.score(batch.columns) for batch in self.batches.epoch(0)])
        liked = np.repeat(scores[self.starts], np.diff(np.append(self.starts, len(scores))))
        above, equal = (np.add.reduceat(comparison.astype(np.float64), self.starts) for comparison in (scores > liked, scores == liked))
        ranks: NDArray[np.float64] = 1 + above + (equal - 1) / 2  # a like equals itself; equal scores share the middle rank
        return ranks


def rank_held(
    held_batches: Batches,
    rest: Path,
    history: Path | None,
    keys: Ints,
    folder: Path,
    score: Callable[[Codes], NDArray[np.float32]],
    ranked: frozenset[LookMetric] = SAMPLED,
) -> Ranking:
    """Draws the cases. `held_batches` are the validation rows, `rest` the training rows, `history` earlier pairs of a warm run's users.
    `keys` are the catalogue's item keys in order, `ranked` the wanted metrics."""
    random = np.random.default_rng((held_batches.seed, 53))
    full = bool(ranked & FULL)
    cases = min(CASES, PAIRS // max(1, len(keys))) if full else CASES
    if cases < FEWEST:
        raise Invalid(
            f"model.train: {', '.join(sorted(ranked))} ranks {len(keys):,} items per user after each epoch; the limit of "
            f"{PAIRS:,} pairs allows fewer than {FEWEST} users: set {', '.join(f'{name}/{NEGATIVES}' for name in sorted(ranked))}"
        )
    likes = _likes(held_batches.path, rest, random, cases)
    met = _met(likes["user"].unique(), held_batches.path, rest, history, keys)
    chosen = [_strangers(met[user], len(keys), random, None if full else NEGATIVES) for user in likes["user"].to_list()]
    counts = np.array([1 + len(negatives) for negatives in chosen])
    starts = np.cumsum(counts) - counts
    if len(likes) < 2 or counts.max(initial=0) < 2:
        raise Invalid(
            "model.train.early_stop.metric: nothing can be ranked, because no user has a held-out positive and items without "
            "interactions; raise model.train.validation, or compare by auc or loss"
        )
    items = np.concatenate([np.append(item, negatives) for item, negatives in zip(likes["item_row"].to_list(), chosen, strict=True)])
    rows = likes[np.repeat(np.arange(len(likes)), counts)].with_columns(
        pl.Series("item_row", items, likes["item_row"].dtype), pl.Series("label", np.isin(np.arange(len(items)), starts)).cast(pl.Int8)
    )
    path = folder / "ranked.parquet"
    rows.write_parquet(path, row_group_size=_AT_ONCE)
    return Ranking(replace(held_batches, path=path, batch_size=_AT_ONCE, negatives=0, liked=None), starts, score, FULL if full else SAMPLED)


def _likes(held_path: Path, rest: Path, random: np.random.Generator, cases: int) -> pl.DataFrame:
    """Returns whole rows of a like per user, without likes that are also in the training rows."""
    there = pl.scan_parquet(held_path).with_row_index("~row").filter(pl.col("label") > 0).select("~row", "user", "item")
    likes = (
        there.join(pl.scan_parquet(rest).select("user", "item"), on=["user", "item"], how="anti").collect(engine="streaming").sort("~row")
    )
    likes = likes[random.permutation(len(likes))].unique("user", keep="first", maintain_order=True).head(cases)
    wanted = likes["~row"].sort()
    return (
        pl.scan_parquet(held_path)
        .with_row_index("~row")
        .filter(pl.col("~row").is_in(wanted.implode()))
        .drop("~row")
        .collect(engine="streaming")
    )


def _met(users: pl.Series, held_path: Path, rest: Path, history: Path | None, keys: Ints) -> dict[int, Ints]:
    """Returns the catalogue rows that each user met, liked or not."""
    parts = [pl.scan_parquet(path).select("user", pl.col("item_row").cast(pl.Int64)) for path in (held_path, rest)]
    if history is not None:
        places = pl.LazyFrame({"item": keys, "item_row": np.arange(len(keys))})
        parts.append(pl.scan_parquet(history).select("user", "item").join(places, on="item").select("user", "item_row"))
    met = pl.concat(parts).filter(pl.col("user").is_in(users.implode())).unique().group_by("user").agg("item_row")
    return {user: np.array(rows, np.int64) for user, rows in met.collect(engine="streaming").iter_rows()}


def _strangers(met: Ints, items: int, random: np.random.Generator, most: int | None) -> Ints:
    """Returns items that the user never met: all, or a sample."""
    free = np.ones(items, np.bool_)
    free[met] = False
    rows = np.flatnonzero(free)
    return rows if most is None else random.choice(rows, min(most, len(rows)), replace=False)
