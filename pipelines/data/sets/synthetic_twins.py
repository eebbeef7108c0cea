"""Synthetic twins: rows in the size and layout of a named data set, for machines without the real data.

Everything follows from the seed and is made for a group of users (or rows) at a time, so 20 million rows need as much memory as 100,000.
Users prefer some genres and items have a general appeal, so models can learn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.data.sets.criteo import CATEGORIES, COUNTS
from shared.domain.errors import Invalid

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Written = Literal["100k", "dat", "csv", "days"]

GENRES = (
    "Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama", "Fantasy", "Film-Noir", "Horror", "Musical",
    "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip
_WORK = (
    "administrator",
    "artist",
    "doctor",
    "educator",
    "engineer",
    "homemaker",
    "lawyer",
    "librarian",
    "none",
    "student",
    "technician",
    "writer",
)
_FEWEST = 20
"""Minimum ratings of a user in MovieLens."""
_STRETCH = 2_048
_ROWS = 100_000
_BY_TASTE = 0.7


@dataclass(frozen=True)
class TwinShape:
    name: str
    rows: int
    users: int = 0
    items: int = 0
    halves: bool = False
    start: int = 0
    end: int = 0
    written: Written = "csv"

    def of(self, rows: int) -> TwinShape:
        """Returns the shape with another number of rows: ratings per user stay equal; items shrink by the square root, to 300 at least."""
        if rows < 1:
            raise Invalid(f"rows: {rows} is too few; a twin of {self.name} needs at least 1")
        if not self.users:
            return replace(self, rows=rows)
        share = rows / self.rows
        users = max(2, min(round(self.users * share), rows // _FEWEST))
        return replace(
            self, rows=rows, users=users, items=max(min(self.items, 300), round(self.items * min(1.0, share**0.5)), 4 * rows // users)
        )


SHAPES = {
    shape.name: shape
    for shape in (
        TwinShape("ml-100k", 100_000, 943, 1_682, False, 874_724_710, 893_286_638, "100k"),
        TwinShape("ml-1m", 1_000_209, 6_040, 3_706, False, 956_703_932, 1_046_454_590, "dat"),
        TwinShape("ml-20m", 20_000_263, 138_493, 27_278, True, 789_652_009, 1_427_784_002, "csv"),
        TwinShape("ml-25m", 25_000_095, 162_541, 62_423, True, 789_652_009, 1_574_327_703, "csv"),
        TwinShape("criteo", 1_000_000, written="days"),
    )
}


@dataclass(frozen=True)
class Twin:
    """Twin of MovieLens; stores only attributes of items and rating counts of users."""

    shape: TwinShape
    seed: int
    genres: npt.NDArray[np.bool_]
    appeal: Floats
    popularity: Floats
    counts: Ints

    @classmethod
    def create(cls, shape: TwinShape, seed: int) -> Twin:
        rng = np.random.default_rng([seed, 0])
        genres = np.zeros((shape.items, len(GENRES)), np.bool_)
        common = (1.0 + rng.permutation(len(GENRES))) ** -0.6
        order = np.argsort(-(np.log(common) + rng.gumbel(size=genres.shape)), axis=1)
        several = rng.choice([1, 2, 3], shape.items, p=[0.4, 0.4, 0.2])
        for rank in range(3):
            rows = np.flatnonzero(several > rank)
            genres[rows, order[rows, rank]] = True
        popularity = (10.0 + rng.permutation(shape.items)) ** -0.9
        return cls(shape, seed, genres, rng.normal(0, 0.4, shape.items), popularity / popularity.sum(), _counts(shape, rng))

    def items(self) -> pl.DataFrame:
        rng = np.random.default_rng([self.seed, 1])
        number = np.arange(1, self.shape.items + 1)
        years = rng.integers(1930, 2000, self.shape.items)
        genres = ["|".join(name for name, on in zip(GENRES, row, strict=True) if on) for row in self.genres]
        titles = [f"{item_genres.split('|')[0]} story no. {n} ({year})" for n, item_genres, year in zip(number, genres, years, strict=True)]
        return pl.DataFrame({"movieId": number, "title": titles, "year": years, "genres": genres})

    def users(self) -> pl.DataFrame:
        rng = np.random.default_rng([self.seed, 2])
        count = self.shape.users
        return pl.DataFrame(
            {
                "userId": np.arange(1, count + 1),
                "age": rng.integers(12, 75, count),
                "gender": rng.choice(["F", "M"], count),
                "occupation": rng.choice(_WORK, count),
                "zip": [f"{zip_code:05}" for zip_code in rng.integers(0, 100_000, count)],
            }
        )

    def ratings(self) -> Iterator[pl.DataFrame]:
        """Yields ratings by user, each user's in order of time; exactly the shape's number of rows, no pair twice."""
        weights = self.genres * self.popularity[:, None]
        # a single search finds an item of genre g: its values are between g and g + 1
        reach = np.cumsum(weights, axis=0) / weights.sum(axis=0).clip(1e-300) + np.arange(len(GENRES))
        overall = np.cumsum(self.popularity)
        for number, first in enumerate(range(0, self.shape.users, _STRETCH)):
            rng = np.random.default_rng([self.seed, 3, number])
            counts = self.counts[first : first + _STRETCH]
            tastes = rng.normal(0, 1.2, (len(counts), len(GENRES)))
            line, item = self._met(counts, tastes, reach.T.ravel(), overall, rng)
            yield self._rated(first, line, item, tastes, rng)

    def _met(self, counts: Ints, tastes: Floats, reach: Floats, overall: Floats, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Draws items until each user has enough different ones; fills the rest at random for users who have met nearly all."""
        size = self.shape.items
        propensities = np.cumsum(np.exp(tastes) * (self.genres.any(axis=0)), axis=1)
        propensities /= propensities[:, -1:]
        pairs = np.empty(0, np.int64)
        for _ in range(4):
            left = counts - np.bincount(pairs // size, minlength=len(counts))
            line = np.repeat(np.arange(len(counts)), np.where(left > 0, left * 3 // 2 + 4, 0))
            if not len(line):
                break
            genre = (rng.random(len(line))[:, None] > propensities[line]).sum(axis=1)
            sought = np.searchsorted(reach, genre + rng.random(len(line)) * (1 - 1e-12)) % size
            item = np.where(rng.random(len(line)) < _BY_TASTE, sought, np.searchsorted(overall, rng.random(len(line)) * overall[-1]))
            drawn = np.concatenate([pairs, line * size + np.minimum(item, size - 1)])
            _, places = np.unique(drawn, return_index=True)
            pairs = _first(drawn[np.sort(places)], counts, size)
        for user in np.flatnonzero(np.bincount(pairs // size, minlength=len(counts)) < counts):
            own_items = pairs[pairs // size == user] % size
            others = rng.permutation(np.setdiff1d(np.arange(size), own_items))[: counts[user] - len(own_items)]
            pairs = np.concatenate([pairs, user * size + others])
        pairs = pairs[np.argsort(pairs // size, kind="stable")]
        return np.asarray(pairs // size), np.asarray(pairs % size)

    def _rated(self, first: int, line: Ints, item: Ints, tastes: Floats, rng: np.random.Generator) -> pl.DataFrame:
        shape = self.shape
        of_genres = self.genres[item]
        felt = (tastes[line] * of_genres).sum(axis=1) / np.sqrt(of_genres.sum(axis=1))
        raw = 3.55 + 0.45 * felt + self.appeal[item] + rng.normal(0, 0.3, len(tastes))[line] + rng.normal(0, 0.6, len(line))
        step = 2 if shape.halves else 1
        stars = np.clip(np.rint(raw * step) / step, 0.5 if shape.halves else 1.0, 5.0)
        begin = rng.integers(shape.start, shape.end - 86_400, len(tastes))[line]
        moment = np.minimum(begin + rng.exponential(3 * 86_400, len(line)), shape.end).astype(np.int64)
        order = np.lexsort((moment, line))
        columns = {"userId": line + first + 1, "movieId": item + 1, "rating": stars, "timestamp": moment}
        return pl.DataFrame({name: values[order] for name, values in columns.items()})


def criteo_rows(rows: int, seed: int, day: int = 0) -> Iterator[pl.DataFrame]:
    """Yields counts with nulls and long tails, Zipf-distributed categories of 4 to a million values, and clicks that depend on both."""
    sizes = np.random.default_rng([seed, 0]).permutation(np.geomspace(4, 1_000_000, len(CATEGORIES)).astype(np.int64))
    for number, first in enumerate(range(0, rows, _ROWS)):
        rng, count = np.random.default_rng([seed, 4, day, number]), min(_ROWS, rows - first)
        columns: dict[str, pl.Series] = {}
        lean = np.full(count, -1.4)
        for place, name in enumerate(COUNTS):
            values = np.floor(rng.lognormal(place % 5, 1.2, count)).astype(np.int64)
            lean += (0.15 if place % 2 else -0.15) * np.log1p(values)
            columns[name] = _with_nulls(pl.Series(name, values), rng.random(count) < 0.04 * (place % 6))
        for place, (name, size) in enumerate(zip(CATEGORIES, sizes.tolist(), strict=True)):
            drawn = np.floor(np.exp(rng.random(count) * np.log(size))).astype(np.uint64)
            mixed = _mixed(drawn + np.uint64(place << 32))
            lean += 0.5 * (mixed % 997 / 997 - 0.5)
            words = _hexadecimal(name, mixed)
            columns[name] = words if place % 3 else _with_nulls(words, rng.random(count) < 0.03)
        label = pl.Series("label", rng.random(count) < 1 / (1 + np.exp(-lean))).cast(pl.Int8)
        yield pl.DataFrame([label, *columns.values()])


def _counts(shape: TwinShape, rng: np.random.Generator) -> Ints:
    """Returns ratings per user: at least 20 if the rows suffice, skewed, in total exactly the shape's rows."""
    most, fewest = shape.items * 3 // 4, min(_FEWEST, shape.rows // shape.users)
    if shape.rows > most * shape.users:
        raise Invalid(f"{shape.rows:,} ratings do not fit {shape.users:,} users and {shape.items:,} items; at most 3/4 of the pairs")
    eager = rng.lognormal(0, 1.1, shape.users)
    counts = np.clip(np.floor(fewest + eager / eager.sum() * (shape.rows - fewest * shape.users)), fewest, most).astype(np.int64)
    while (rest := shape.rows - int(counts.sum())) != 0:
        able = np.flatnonzero(counts < most if rest > 0 else counts > fewest)
        counts[able[: abs(rest)]] += 1 if rest > 0 else -1
    return np.asarray(counts)


def _first(keys: Ints, counts: Ints, size: int) -> Ints:
    """Keeps each user's first draws, as many as wanted."""
    order = np.argsort(keys // size, kind="stable")
    line = keys[order] // size
    rank = np.arange(len(line)) - np.searchsorted(line, line)
    return np.asarray(keys[order][rank < counts[line]])


def _mixed(numbers: npt.NDArray[np.uint64]) -> Ints:
    """Mixes numbers to 32 bits that look like a hash, nearly without collisions."""
    with np.errstate(over="ignore"):
        x = numbers * np.uint64(0x9E3779B97F4A7C15)
        x ^= x >> np.uint64(29)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(32)
    return np.asarray((x & np.uint64(0xFFFFFFFF)).astype(np.int64))


def _with_nulls(values: pl.Series, missing: npt.NDArray[np.bool_]) -> pl.Series:
    return pl.select(pl.when(~pl.Series(missing)).then(values).alias(values.name)).to_series()


def _hexadecimal(name: str, values: Ints) -> pl.Series:
    """Formats numbers as eight hexadecimal digits."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    characters = digits[(values[:, None] >> np.arange(28, -1, -4)) & 15]
    return pl.Series(name, np.ascontiguousarray(characters).view("S8").ravel().astype(str))
