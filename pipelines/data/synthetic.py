"""Synthetic world with planted preferences, in the format of MovieLens: the right answers are known, so recommenders can be judged.

Users have tastes over genres and styles, items have genres and a style; together they set the chance that a user likes a shown item. The
world gives ratings (to train on) and clicks (to judge answers). Everything follows from seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

GENRES = (
    "Action",
    "Adventure",
    "Animation",
    "Children",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
)
LIKED = 4.0
_STYLES = 4
_SHOWN = -4.6  # logit of liking a shown item, with neutral tastes
_CHOSEN = 2.7  # added for items that the user chose


@dataclass(frozen=True)
class Ratings:
    """Interactions as columns, oldest first."""

    user: Ints
    item: Ints
    rating: Floats
    timestamp: Ints

    def __len__(self) -> int:
        return len(self.user)

    def frame(self) -> pl.DataFrame:
        return pl.DataFrame({"userId": self.user, "movieId": self.item, "rating": self.rating, "timestamp": self.timestamp})

    def take(self, rows: npt.NDArray[np.bool_] | Ints) -> Ratings:
        return Ratings(self.user[rows], self.item[rows], self.rating[rows], self.timestamp[rows])

    def by_time(self) -> Ratings:
        return self.take(np.argsort(self.timestamp, kind="stable"))

    def joined(self, other: Ratings) -> Ratings:
        """Returns both with one row per user and item; `other` wins."""
        user, item = np.concatenate([other.user, self.user]), np.concatenate([other.item, self.item])
        _, first = np.unique(np.stack([user, item], axis=1), axis=0, return_index=True)
        rating, timestamp = np.concatenate([other.rating, self.rating]), np.concatenate([other.timestamp, self.timestamp])
        return Ratings(user, item, rating, timestamp).take(first.astype(np.int64)).by_time()


@dataclass(frozen=True)
class World:
    """Tastes (users x genres and styles), items (items x genres and styles), and popularity of items."""

    user_ids: Ints
    item_ids: Ints
    genres: npt.NDArray[np.bool_]
    styles: Floats
    appeal: Floats
    popularity: Floats
    tastes: Floats
    seed: int
    sharpness: float = 1.0

    @classmethod
    def create(cls, users: int, items: int, genres: int = len(GENRES), seed: int = 0) -> World:
        if not (users > 0 and items > 0 and 4 <= genres <= len(GENRES)):
            raise ValueError(f"a synthetic world needs users, items and 4 to {len(GENRES)} genres; got {users}, {items} and {genres}")
        rng = np.random.default_rng([seed, 1])
        item_ids = np.sort(rng.choice(np.arange(1, 10 * items + 1), items, replace=False))
        popularity = (1.0 + rng.permutation(items)) ** -0.3
        return cls(
            user_ids=np.arange(1, users + 1),
            item_ids=item_ids,
            genres=_genres(items, genres, rng),
            styles=rng.normal(size=(items, _STYLES)) / np.sqrt(_STYLES),
            appeal=rng.normal(0, 0.35, items),
            popularity=popularity / popularity.sum(),
            tastes=_tastes(users, genres, rng),
            seed=seed,
        )

    @property
    def genre_names(self) -> tuple[str, ...]:
        return GENRES[: self.genres.shape[1]]

    def affinity(self, users: Ints | None = None) -> Floats:
        """Returns the logits that tastes add to each item's appeal: users x items."""
        tastes = self.tastes if users is None else self.tastes[users]
        width = self.genres.shape[1]
        shares = self.genres / np.sqrt(self.genres.sum(axis=1, keepdims=True))
        return np.asarray(self.sharpness * (tastes[:, :width] @ shares.T + tastes[:, width:] @ self.styles.T))

    def probability(self, user: int, items: Sequence[int] | Ints) -> Floats:
        """Returns the chance that a user likes each item when shown."""
        columns = self._columns(np.asarray(items, dtype=np.int64))
        logits = self.affinity(self._rows(np.asarray([user])))[0, columns] + self.appeal[columns] + _SHOWN
        return _sigmoid(logits)

    def liking(self) -> Floats:
        """Returns the same for all users and items: users x items."""
        return _sigmoid(self.affinity() + self.appeal + _SHOWN)

    def best(self, user: int, count: int = 10) -> Ints:
        """Returns the answer of a perfect recommender."""
        return np.asarray(self.item_ids[np.argsort(-self.probability(user, self.item_ids), kind="stable")[:count]])

    def popular(self, count: int = 10) -> Ints:
        return np.asarray(self.item_ids[np.argsort(-self.popularity, kind="stable")[:count]])

    def ratings(self, n: int, start: int, end: int, seed: int, users: Ints | None = None) -> Ratings:
        """Returns about `n` ratings of different pairs, spread over [start, end); rating >= 4 iff liked."""
        if not 0 < n <= 0.5 * len(self.user_ids) * len(self.item_ids):
            raise ValueError(f"{n} ratings do not fit {len(self.user_ids)} users and {len(self.item_ids)} items; at most half of the pairs")
        rng = np.random.default_rng([self.seed, seed, 2])
        rows = np.arange(len(self.user_ids)) if users is None else self._rows(users)
        affinity = self.affinity(rows)
        counts = _activity(n, len(rows), len(self.item_ids), rng)
        line, column = _met(affinity, self.popularity, counts, rng)
        logits = affinity[line, column] + self.appeal[column] + _SHOWN + _CHOSEN
        liked = rng.random(len(line)) < _sigmoid(logits)
        when = rng.integers(start, end, len(line))
        return Ratings(self.user_ids[rows[line]], self.item_ids[column], _stars(liked, logits, rng), when).by_time()

    def organic(self, user: int, count: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Returns items that a user picks unprompted, with ratings."""
        affinity = self.affinity(self._rows(np.asarray([user])))
        _, column = _met(affinity, self.popularity, np.asarray([count]), rng)
        logits = affinity[0, column] + self.appeal[column] + _SHOWN + _CHOSEN
        return self.item_ids[column], _stars(rng.random(count) < _sigmoid(logits), logits, rng)

    def shifted(self, seed: int) -> World:
        """Returns a world with moved tastes: to other genres for each user, and for all users towards genres that few liked."""
        rng = np.random.default_rng([self.seed, seed, 3])
        width = self.genres.shape[1]
        loved = (self.genres * self.popularity[:, None]).sum(axis=0)
        rising = np.argsort(loved)[: width // 3]
        pull = np.full(width, -0.9)
        pull[rising] = 2.1
        moved = 0.5 * self.tastes[:, rng.permutation(width)] + pull
        return replace(self, tastes=np.concatenate([moved, self.tastes[:, width:]], axis=1))

    def in_fashion(self, seed: int, share: float = 0.67, lift: float = 2.0) -> World:
        """Returns a world in which a share of the genres is in or out of fashion, half each: all users like their items more, or less. The
        seed selects the fashion."""
        rng = np.random.default_rng([self.seed, seed, 5])
        width = self.genres.shape[1]
        count = int(width * share) // 2
        order = rng.permutation(width)
        lifts = np.zeros(width)
        lifts[order[:count]], lifts[order[count : 2 * count]] = lift, -lift
        return replace(self, appeal=self.appeal + self.genres @ lifts / np.sqrt(self.genres.sum(axis=1)))

    def exchanged(self, seed: int, share: float = 0.7) -> World:
        """Returns a world in which a share of the users swap tastes; their total preferences stay equal."""
        rng = np.random.default_rng([self.seed, seed, 6])
        users = rng.permutation(len(self.user_ids))[: round(share * len(self.user_ids))]
        tastes = self.tastes.copy()
        tastes[users] = self.tastes[np.roll(users, 1)]
        return replace(self, tastes=tastes)

    def impostors(self) -> World:
        """Returns the same users with opposite, sharper tastes: bots under real ids."""
        return replace(self, tastes=-self.tastes, sharpness=1.6 * self.sharpness)

    def _rows(self, users: Ints) -> Ints:
        return _positions(self.user_ids, users, "user")

    def _columns(self, items: Ints) -> Ints:
        return _positions(self.item_ids, items, "item")

    def items(self) -> pl.DataFrame:
        """Returns movieId, title and genres as delimited text."""
        named = ["|".join(name for name, on in zip(self.genre_names, row, strict=True) if on) for row in self.genres]
        titles = [f"{genres.split('|')[0]} story no. {number}" for number, genres in zip(self.item_ids, named, strict=True)]
        return pl.DataFrame({"movieId": self.item_ids, "title": titles, "genres": named})

    def write_items(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.items().write_parquet(path)


def write_ratings(ratings: Ratings, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    ratings.frame().write_parquet(path)


def _genres(items: int, genres: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Draws one to four genres per item; some genres are common, others rare."""
    common = (1.0 + rng.permutation(genres)) ** -0.5
    order = np.argsort(-(np.log(common) + rng.gumbel(size=(items, genres))), axis=1)
    counts = rng.choice([1, 2, 3, 4], items, p=[0.35, 0.4, 0.2, 0.05])
    on = np.zeros((items, genres), dtype=np.bool_)
    for rank in range(4):
        rows = np.flatnonzero(counts > rank)
        on[rows, order[rows, rank]] = True
    return on


def _tastes(users: int, genres: int, rng: np.random.Generator) -> Floats:
    """Draws tastes: three loved genres, three hated ones, others near zero; and preferences for styles."""
    over_genres = rng.normal(0, 0.3, (users, genres))
    order = np.argsort(rng.random((users, genres)), axis=1)
    lines = np.arange(users)
    for rank, strength in enumerate((2.7, 2.2, 1.7)):
        over_genres[lines, order[:, rank]] += strength
        over_genres[lines, order[:, -1 - rank]] -= strength
    return np.concatenate([over_genres, rng.normal(0, 1.1, (users, _STYLES))], axis=1)


def _activity(n: int, users: int, items: int, rng: np.random.Generator) -> Ints:
    """Draws the number of ratings of each user: skewed, one or more."""
    eager = rng.lognormal(0, 0.4, users)
    return np.asarray(np.clip(np.rint(n * eager / eager.sum()), 1, items), dtype=np.int64)


def _met(affinity: Floats, popularity: Floats, counts: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draws the items that users meet: some by popularity, most by taste; each at most once per user."""
    sought = np.sqrt(popularity) * np.exp(np.clip(affinity, -8, 8))
    weights = 0.3 * popularity + 0.7 * sought / sought.sum(axis=1, keepdims=True)
    order = np.argsort(-(np.log(weights) + rng.gumbel(size=affinity.shape)), axis=1)
    is_met = np.arange(affinity.shape[1]) < counts[:, None]
    lines, ranks = np.nonzero(is_met)
    return lines.astype(np.int64), order[lines, ranks].astype(np.int64)


def _stars(liked: npt.NDArray[np.bool_], logits: Floats, rng: np.random.Generator) -> Floats:
    """Draws ratings from 0.5 to 5 in halves: 4 and more iff liked, higher where tastes agree."""
    lean = _sigmoid(logits + rng.normal(0, 0.7, len(logits)))
    high = LIKED + 0.5 * np.minimum(np.floor(lean * 3), 2)
    low = 0.5 + 0.5 * np.minimum(np.floor(np.sqrt(lean) * 7), 6)
    return np.where(liked, high, low)


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)))


def _positions(ids: Ints, wanted: Ints, kind: str) -> Ints:
    positions = np.searchsorted(ids, wanted)
    is_known = ids[np.minimum(positions, len(ids) - 1)] == wanted
    if not is_known.all():
        raise KeyError(f"unknown {kind} {wanted[~is_known][0]}")
    return positions.astype(np.int64)
