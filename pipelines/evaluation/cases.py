"""What a ranking is judged on: held-out positives, each with what it is ranked against.

A case is a positive of the holdout that the user had not liked before (unless the spec keeps seen items). It is ranked
against the full catalogue without the user's other known positives, and against sampled negatives that are verified
against every interaction of that user, whatever its label. Cases are a seeded sample, so that evaluation ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shared.domain.errors import BadData

MAX_CASES = 3_000
# Users times items: what one contender scores at most.
MAX_SCORED = 10_000_000
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class UserCases:
    """One user's cases; all are rows of the catalogue."""

    user: int
    targets: Ints
    """-1 is an item that isn't in the catalogue: no model can find it."""
    liked: Ints
    touched: Ints
    known: bool = True
    """Whether models can be asked about this user."""


@dataclass(frozen=True)
class Cases:
    users: tuple[UserCases, ...]
    found: int
    catalogue: int

    @property
    def count(self) -> int:
        return sum(len(one.targets) for one in self.users)

    @property
    def owners(self) -> Ints:
        """Of each case its user, by place."""
        return np.repeat(np.arange(len(self.users)), [len(one.targets) for one in self.users])

    @property
    def targets(self) -> Ints:
        return np.concatenate([one.targets for one in self.users]) if self.users else np.empty(0, np.int64)


def sample_cases(holdout: pl.LazyFrame, history: pl.LazyFrame, items: pl.Series, keep_seen: bool, seed: int) -> Cases:
    positives = holdout.filter(pl.col("label") == 1).select("user", "item").unique()
    if not keep_seen:
        positives = positives.join(history.filter(pl.col("before") == 1), on=["user", "item"], how="anti")
    found = positives.sort("user", "item").collect(engine="streaming")
    if found.is_empty():
        raise BadData("the holdout has no positive that is new to its user: nothing can be ranked; check split.test")
    chosen = _within_bounds(found, len(items), np.random.default_rng((seed, 17)))
    users = chosen["user"].unique(maintain_order=True)
    rows = pl.DataFrame({"item": items}).with_row_index("row").select("item", pl.col("row").cast(pl.Int64))
    known = history.filter(pl.col("user").is_in(users.implode())).join(rows.lazy(), on="item").collect(engine="streaming")
    targets = chosen.join(rows, on="item", maintain_order="left").group_by("user", maintain_order=True).agg("row")
    touched = _by_user(known)
    liked = _by_user(known.filter(pl.col("label") == 1))
    none = np.empty(0, np.int64)
    cases = tuple(
        UserCases(user, np.array(found_rows, np.int64), liked.get(user, none), touched.get(user, none))
        for user, found_rows in targets.iter_rows()
    )
    return Cases(cases, len(found), len(items))


def sampled_negatives(cases: Cases, count: int, seed: int) -> list[list[Ints]]:
    """For each user and case, up to `count` rows that the user never touched; fewer where there aren't as many."""
    random = np.random.default_rng((seed, count))
    drawn = []
    for one in cases.users:
        free = np.ones(cases.catalogue, dtype=bool)
        free[one.touched] = False
        free[one.targets[one.targets >= 0]] = False
        rows = np.flatnonzero(free)
        drawn.append([random.choice(rows, min(count, len(rows)), replace=False) for _ in one.targets])
    return drawn


def known_likes(history: pl.LazyFrame, cases: Cases) -> Ints:
    """How much each user had liked before the holdout."""
    users = pl.DataFrame({"user": [one.user for one in cases.users]}, schema={"user": pl.Int64})
    counted = history.filter((pl.col("before") == 1) & pl.col("user").is_in(users["user"].implode())).group_by("user").len()
    found = users.join(counted.collect(engine="streaming"), on="user", how="left", maintain_order="left")["len"]
    return found.fill_null(0).cast(pl.Int64).to_numpy()


def _within_bounds(found: pl.DataFrame, catalogue: int, random: np.random.Generator) -> pl.DataFrame:
    order = random.permutation(len(found))[:MAX_CASES]
    chosen = found[order]
    users = chosen["user"].unique(maintain_order=True).head(max(1, MAX_SCORED // catalogue))
    return chosen.filter(pl.col("user").is_in(users.implode())).sort("user", "item")


def _by_user(pairs: pl.DataFrame) -> dict[int, Ints]:
    grouped = pairs.sort("user", "row").group_by("user", maintain_order=True).agg("row")
    return {user: np.array(rows, np.int64) for user, rows in grouped.iter_rows()}
