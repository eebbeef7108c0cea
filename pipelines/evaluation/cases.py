"""Cases of a ranking evaluation: held-out positives, each with the items that it is ranked against.

A case is a positive of the holdout that the user did not like before (unless the spec keeps seen items). It is ranked against the full
catalogue without the user's other known positives, and against sampled negatives that the user never interacted with, whatever the label.
Users are a seeded sample in a seeded order, each with all cases; a contender that cannot score them all is judged on the first users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shared.domain.errors import BadData

Ints = NDArray[np.int64]
Rows = NDArray[np.signedinteger[Any]]
_DISLIKED = 1 << 32
"""Added to the number of a pair that is not liked."""
UNKNOWN, ABSENT = -1, -2
"""Negatives that are not rows of the catalogue: an item that no model knows; no item, if a case has fewer negatives than others."""
Negatives = Callable[[int, int], NDArray[np.int32]]
"""From the first user and the end of a chunk, returns the negatives of the chunk's cases: [cases, negatives]."""


@dataclass(frozen=True, slots=True)
class UserCases:
    """Cases of a user; all values are rows of the catalogue."""

    user: int
    targets: Rows
    """-1 is an item outside the catalogue, which no model can find."""
    liked: Rows
    touched: Rows
    scorable: bool = True
    """Whether models can score this user."""

    @property
    def known_targets(self) -> Rows:
        """Targets in the catalogue."""
        return self.targets[self.targets >= 0]


@dataclass(frozen=True)
class Cases:
    users: tuple[UserCases, ...]
    positives: int
    catalogue: int

    @cached_property
    def offsets(self) -> Ints:
        """Index of each user's first case, and at the end the number of cases."""
        return np.cumsum([0, *(len(user.targets) for user in self.users)])

    @property
    def count(self) -> int:
        return int(self.offsets[-1])

    @property
    def owners(self) -> Ints:
        """User of each case, by place."""
        return np.repeat(np.arange(len(self.users)), np.diff(self.offsets))

    @property
    def keys(self) -> Ints:
        return np.array([user.user for user in self.users], np.int64)

    @property
    def targets(self) -> Rows:
        return np.concatenate([user.targets for user in self.users]) if self.users else np.empty(0, np.int64)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Numbers of cases, held-out positives, users and items."""
        return self.count, self.positives, len(self.users), self.catalogue

    def first(self, users: int) -> Cases:
        """Returns the cases of the first users."""
        return self if users >= len(self.users) else replace(self, users=self.users[:users])


def sample_cases(
    holdout: pl.LazyFrame, history: pl.LazyFrame, items: pl.Series, keep_seen: bool, seed: int, limit: int | None = None
) -> Cases:
    """Returns the cases of at most `limit` users, drawn uniformly, in the order of drawing; None for all users."""
    positives = holdout.filter(pl.col("label") == 1).select("user", "item").unique()
    if not keep_seen:
        positives = positives.join(history.filter(pl.col("before") == 1), on=["user", "item"], how="anti")
    pairs = positives.select("user", "item").collect(engine="streaming")
    if pairs.is_empty():
        raise BadData("the holdout has no positive that is new to its user: nothing can be ranked; check split.test")
    keys = pairs["user"].unique().sort()
    order = np.random.default_rng((seed, 17)).permutation(len(keys))[:limit]
    users = pl.DataFrame({"user": keys[order]}).with_row_index("place")
    rows = pl.DataFrame({"item": items}).with_row_index("row").select("item", pl.col("row").cast(pl.Int32))
    targets = pairs.join(users, on="user").join(rows, on="item", how="left").sort("place", "item")
    target_rows = _by_user(targets.with_columns(pl.col("row").fill_null(UNKNOWN)), len(users))
    user_rows = zip(users["user"].to_list(), target_rows, *_met(history, users, rows), strict=True)
    return Cases(tuple(UserCases(*each) for each in user_rows), len(pairs), len(items))


def drawn_negatives(cases: Cases, count: int, seed: int) -> Negatives:
    """Returns a function that draws up to `count` rows per case that the user never met. It draws on demand with a generator per user, so
    every contender gets the same negatives, whichever users are scored."""

    def draw(first: int, end: int) -> NDArray[np.int32]:
        start = int(cases.offsets[first])
        negatives = np.full((int(cases.offsets[end]) - start, count), ABSENT, np.int32)
        for place in range(first, end):
            user = cases.users[place]
            excluded = np.union1d(user.touched, user.known_targets)
            random = np.random.default_rng((seed, count, user.user % (1 << 64)))
            numbers = _distinct(random, len(user.targets), cases.catalogue - len(excluded), count)
            rows = numbers + np.searchsorted(excluded - np.arange(len(excluded)), numbers, "right")  # the n-th row that is not excluded
            negatives[int(cases.offsets[place]) - start : int(cases.offsets[place + 1]) - start, : rows.shape[1]] = rows
        return negatives

    return draw


def count_short(cases: Cases, count: int) -> int:
    """Returns the number of cases with fewer than `count` possible negatives."""
    return sum(len(user.targets) for user in cases.users if cases.catalogue - len(np.union1d(user.touched, user.known_targets)) < count)


def known_likes(history: pl.LazyFrame, cases: Cases) -> Ints:
    """Returns each user's number of likes before the holdout."""
    users = pl.DataFrame({"user": cases.keys})
    counted = history.filter(pl.col("before") == 1).join(users.lazy(), on="user", how="semi").group_by("user").len()
    counts = users.join(counted.collect(engine="streaming"), on="user", how="left", maintain_order="left")["len"]
    return counts.fill_null(0).cast(pl.Int64).to_numpy()


def _distinct(random: np.random.Generator, rows: int, size: int, count: int) -> NDArray[np.int32]:
    """Returns [rows, at most `count`] distinct numbers below `size`, every subset equally likely. A repeated number is drawn again, so a
    row is the set of the first `count` distinct numbers of a sequence of uniform draws."""
    if size < 2 * count:
        return random.permuted(np.tile(np.arange(size, dtype=np.int32), (rows, 1)), axis=1)[:, :count]
    numbers = random.integers(size, size=(rows, count), dtype=np.int32)
    while True:
        numbers.sort(axis=1)
        repeated = numbers[:, 1:] == numbers[:, :-1]
        if not repeated.any():
            return numbers
        numbers[:, 1:][repeated] = random.integers(size, size=np.count_nonzero(repeated), dtype=np.int32)


def _met(history: pl.LazyFrame, users: pl.DataFrame, rows: pl.DataFrame) -> tuple[list[Rows], list[Rows]]:
    """Returns for each user the liked rows, and all rows that the user met, the liked rows first; all are views of one array. Each pair is
    encoded as a number for sorting, because this needs less memory than a sorted data frame."""
    pairs = history.join(users.lazy(), on="user").join(rows.lazy(), on="item")
    place, row = (pl.col(name).cast(pl.UInt64) for name in ("place", "row"))
    key = place * (2 * _DISLIKED) + (pl.col("label") != 1) * pl.lit(_DISLIKED, pl.UInt64) + row
    keys = np.sort(pairs.select(key=key).collect(engine="streaming")["key"].to_numpy())
    bounds = np.arange(2 * len(users) + 1, dtype=np.uint64) * np.uint64(_DISLIKED)
    ends = np.searchsorted(keys, bounds)
    met = (keys & np.uint64(_DISLIKED - 1)).astype(np.int32)
    starts, likes, last = ends[:-1:2], ends[1::2], ends[2::2]
    return [met[a:b] for a, b in zip(starts, likes, strict=True)], [met[a:b] for a, b in zip(starts, last, strict=True)]


def _by_user(pairs: pl.DataFrame, users: int) -> list[Rows]:
    """Returns the rows of each user, as views of one array; `pairs` are sorted by the user's place."""
    offsets = np.searchsorted(pairs["place"].to_numpy(), np.arange(users + 1))
    rows = pairs["row"].to_numpy()
    return [rows[start:end] for start, end in pairwise(offsets)]
