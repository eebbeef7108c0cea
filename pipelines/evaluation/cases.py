"""What a ranking is judged on: held-out positives, each with what it is ranked against.

A case is a positive of the holdout that the user had not liked before (unless the spec keeps seen items). It is ranked
against the full catalogue without the user's other known positives, and against sampled negatives that are verified
against every interaction of that user, whatever its label. Users are a seeded sample in a seeded order, each with all of
the user's cases: a contender that can't score them all is judged on the first of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shared.domain.errors import BadData

Ints = NDArray[np.int64]
Rows = NDArray[np.signedinteger[Any]]
UNKNOWN, ABSENT = -1, -2
"""Negatives that are no row of the catalogue: an item that no model knows; and no item, where there are fewer than wanted."""
Negatives = Callable[[int, int], NDArray[np.int32]]
"""What the cases of some users, from one place to another, are ranked among: [cases, negatives]."""


@dataclass(frozen=True)
class UserCases:
    """One user's cases; all are rows of the catalogue."""

    user: int
    targets: Rows
    """-1 is an item that isn't in the catalogue: no model can find it."""
    liked: Rows
    touched: Rows
    known: bool = True
    """Whether models can be asked about this user."""

    @property
    def found(self) -> Rows:
        """The targets that are in the catalogue."""
        return self.targets[self.targets >= 0]


@dataclass(frozen=True)
class Cases:
    users: tuple[UserCases, ...]
    found: int
    catalogue: int

    @cached_property
    def offsets(self) -> Ints:
        """Of each user the first case, and behind the last user how many there are."""
        return np.cumsum([0, *(len(one.targets) for one in self.users)])

    @property
    def count(self) -> int:
        return int(self.offsets[-1])

    @property
    def owners(self) -> Ints:
        """Of each case its user, by place."""
        return np.repeat(np.arange(len(self.users)), np.diff(self.offsets))

    @property
    def keys(self) -> Ints:
        return np.array([one.user for one in self.users], np.int64)

    @property
    def targets(self) -> Rows:
        return np.concatenate([one.targets for one in self.users]) if self.users else np.empty(0, np.int64)

    def first(self, users: int) -> Cases:
        return self if users >= len(self.users) else replace(self, users=self.users[:users])


def sample_cases(
    holdout: pl.LazyFrame, history: pl.LazyFrame, items: pl.Series, keep_seen: bool, seed: int, users: int | None = None
) -> Cases:
    """Of so many users at most, each as likely as any other, in the order in which they are drawn; of all where None."""
    positives = holdout.filter(pl.col("label") == 1).select("user", "item").unique()
    if not keep_seen:
        positives = positives.join(history.filter(pl.col("before") == 1), on=["user", "item"], how="anti")
    found = positives.select("user", "item").collect(engine="streaming")
    if found.is_empty():
        raise BadData("the holdout has no positive that is new to its user: nothing can be ranked; check split.test")
    keys = found["user"].unique().sort()
    drawn = pl.DataFrame({"user": keys[np.random.default_rng((seed, 17)).permutation(len(keys))[:users]]}).with_row_index("place")
    rows = pl.DataFrame({"item": items}).with_row_index("row").select("item", pl.col("row").cast(pl.Int32))
    targets = found.join(drawn, on="user").join(rows, on="item", how="left").sort("place", "item")
    known = (
        history.join(drawn.lazy(), on="user")
        .join(rows.lazy(), on="item")
        .select("place", "row", liked=pl.col("label") == 1)
        .sort("place", "liked", "row", descending=[False, True, False])
        .collect(engine="streaming")
    )
    cuts = _cuts(targets, len(drawn)), _cuts(known, len(drawn)), _cuts(known.filter(pl.col("liked")), len(drawn))
    wanted, touched, likes = targets["row"].fill_null(UNKNOWN).to_numpy(), known["row"].to_numpy(), np.diff(cuts[2])
    cases = tuple(
        UserCases(user, wanted[cuts[0][at] : cuts[0][at + 1]], mine[: likes[at]], mine)
        for at, user in enumerate(drawn["user"].to_list())
        for mine in (touched[cuts[1][at] : cuts[1][at + 1]],)
    )
    return Cases(cases, len(found), len(items))


def drawn_negatives(cases: Cases, count: int, seed: int) -> Negatives:
    """Up to `count` rows that the user never touched, drawn when they are asked for: equal ones for whoever asks, whatever comes before."""

    def draw(first: int, end: int) -> NDArray[np.int32]:
        low = int(cases.offsets[first])
        found = np.full((int(cases.offsets[end]) - low, count), ABSENT, np.int32)
        for place in range(first, end):
            one = cases.users[place]
            taken = np.union1d(one.touched, one.found)
            random = np.random.default_rng((seed, count, one.user % (1 << 64)))
            free = _distinct(random, len(one.targets), cases.catalogue - len(taken), count)
            mine = slice(int(cases.offsets[place]) - low, int(cases.offsets[place + 1]) - low)
            found[mine, : free.shape[1]] = free + np.searchsorted(taken - np.arange(len(taken)), free, "right")
        return found

    return draw


def short_of(cases: Cases, count: int) -> int:
    """How many cases have fewer than `count` rows left to draw."""
    return sum(len(one.targets) for one in cases.users if cases.catalogue - len(np.union1d(one.touched, one.found)) < count)


def known_likes(history: pl.LazyFrame, cases: Cases) -> Ints:
    """How much each user had liked before the holdout."""
    users = pl.DataFrame({"user": cases.keys})
    counted = history.filter(pl.col("before") == 1).join(users.lazy(), on="user", how="semi").group_by("user").len()
    found = users.join(counted.collect(engine="streaming"), on="user", how="left", maintain_order="left")["len"]
    return found.fill_null(0).cast(pl.Int64).to_numpy()


def _distinct(random: np.random.Generator, rows: int, size: int, count: int) -> NDArray[np.int32]:
    """[rows, at most count]: of the numbers below `size`, in each row different ones, every choice of them as likely as any other. The
    first `count` different ones of a long line of draws: what is there already is drawn again."""
    if size < 2 * count:
        return random.permuted(np.tile(np.arange(size, dtype=np.int32), (rows, 1)), axis=1)[:, :count]
    found = random.integers(size, size=(rows, count), dtype=np.int32)
    while True:
        found.sort(axis=1)
        again = found[:, 1:] == found[:, :-1]
        if not again.any():
            return found
        found[:, 1:][again] = random.integers(size, size=np.count_nonzero(again), dtype=np.int32)


def _cuts(pairs: pl.DataFrame, users: int) -> Ints:
    """Where each user's rows begin, and where the last one's end."""
    return np.searchsorted(pairs["place"].to_numpy(), np.arange(users + 1))
