"""Days of ratings: MovieLens 100K in the order of time, the same with users who come back, and a world in which tastes shift on a day."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

DAYS = 10
DAY = 86_400.0
TASTES, OF_A_TASTE = 8, 40
SHIFT = 4
"""The first day on which everybody likes something else."""


@dataclass(frozen=True)
class World:
    """`base`: what was before the first day. Frames have userId, movieId, rating and at."""

    name: str
    base: pl.DataFrame
    days: tuple[pl.DataFrame, ...]
    items: pl.DataFrame
    """Every item that there ever is."""


def in_days(name: str, rows: pl.DataFrame, base: float = 0.5) -> World:
    """Rows in their order, so large a share of them first, then equal slices."""
    first = round(len(rows) * base)
    edges = np.linspace(first, len(rows), DAYS + 1).round().astype(int)
    at = np.concatenate([np.linspace(-30 * DAY, 0, first, endpoint=False)] + [
        number * DAY + np.linspace(0, DAY, stop - start, endpoint=False)
        for number, (start, stop) in enumerate(itertools.pairwise(edges))
    ])  # fmt: skip
    timed = rows.select("userId", "movieId", "rating").with_columns(at=1.6e9 + at)
    days = tuple(timed[start:stop] for start, stop in itertools.pairwise(edges))
    return World(name, timed[:first], days, timed.select("movieId").unique().sort("movieId"))


def movielens(folder: Path | None, seed: int = 7) -> tuple[World, World]:
    """In the order of time, in which nearly everybody comes once and stays an hour; and with each user's ratings, in their order, spread
    over the time from a day of the user's own to the end."""
    rows = _read(folder) if folder is not None else _like_it(seed)
    ordered = rows.sort("at", "userId", "movieId")
    users = ordered["userId"].unique(maintain_order=True)
    arrival = np.random.default_rng((seed, 1)).uniform(-0.4, 0.95, len(users)).clip(0)
    begins = pl.DataFrame({"userId": users, "begins": arrival})
    place = pl.int_range(pl.len()).over("userId") / pl.len().over("userId")
    spread = ordered.join(begins, on="userId", maintain_order="left").with_columns(moment=pl.col("begins") + (1 - pl.col("begins")) * place)
    name = "ml-100k" if folder is not None else "rows of its shape"
    return in_days(f"{name}, by time", ordered), in_days(f"{name}, users who come back", spread.sort("moment", "userId", "movieId"))


def shifting(seed: int = 3, users: int = 600, base: int = 24_000, a_day: int = 3_000) -> World:
    """Each user likes one taste of eight. On the fourth day each likes another one from then on; on every day four new items of each taste
    are met, and twenty new users come."""
    random = np.random.default_rng((seed, 2))
    first = _tasted(random, users, OF_A_TASTE, base, 0)
    later = [_tasted(random, users + 20 * day, OF_A_TASTE + 4 * day, a_day, 3 if day >= SHIFT else 0) for day in range(1, DAYS + 1)]
    rows = pl.concat([first, *later])
    return in_days("tastes that shift on day 4", rows, base / len(rows))


def _tasted(random: np.random.Generator, users: int, of_each: int, rows: int, shift: int) -> pl.DataFrame:
    """Of what is met, a half is of the user's own taste; within a taste some items are met far oftener."""
    user = random.integers(0, users, rows)
    own = random.random(rows) < 0.5
    taste = np.where(own, (user + shift) % TASTES, random.integers(0, TASTES, rows))
    place = (of_each * random.random(rows) ** 1.5).astype(np.int64)
    liked = random.random(rows) < np.where(taste == (user + shift) % TASTES, 0.9, 0.1)
    return pl.DataFrame({"userId": user, "movieId": place * TASTES + taste, "rating": np.where(liked, 5.0, 2.0)})


def _read(folder: Path) -> pl.DataFrame:
    frame = pl.read_csv(folder / "ml-100k.inter", separator="\t", new_columns=["userId", "movieId", "rating", "at"])
    return frame.with_columns(pl.col("rating", "at").cast(pl.Float64))


def _like_it(seed: int) -> pl.DataFrame:
    """As many ratings, users and items, with tastes."""
    random = np.random.default_rng((seed, 3))
    rows, users, items = 100_000, 943, 1_682
    user = np.sort((users * random.random(rows) ** 1.4).astype(np.int64))
    tastes, kinds = random.standard_normal((users, 6)), random.standard_normal((items, 6))
    item = (items * random.random(rows) ** 2).astype(np.int64)
    stars = 3.5 + 0.5 * np.einsum("nd,nd->n", tastes[user], kinds[item]) + random.standard_normal(rows) * 0.7
    frame = pl.DataFrame({"userId": user, "movieId": item, "rating": stars.round().clip(1, 5), "at": np.arange(rows) * 1.0})
    return frame.unique(["userId", "movieId"], keep="first", maintain_order=True)
