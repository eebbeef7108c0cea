"""Likes, scores and hits whose truth is known: a stable world, and one that shifts at a known like. Everything follows from seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from shared.domain.drift.hit_rate_detector import Block
from shared.domain.drift.reading import DriftColumn, DriftValue
from shared.domain.sequential_test import VariantSample

GENRES = ("drama", "comedy", "action", "thriller", "romance", "crime", "horror", "western", "war", "noir", "musical", "animation")
DECADES = ("2020s", "2010s", "2000s", "1990s", "older")
USERS = 20_000
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Event:
    """One like, and the score of the answer that was shown with it. No genres: missing; None: the version doesn't know the item."""

    user: int
    genres: tuple[str, ...] | None
    decade: str
    score: float


@dataclass(frozen=True)
class Shift:
    """What is different from some like on."""

    name: str
    genre: float = 0.0
    """This share of the likes goes to one genre, whatever the taste."""
    new: float = 0.0
    nulls: float = 0.0
    score: float = 0.0
    """In standard deviations."""
    tastes: bool = False
    """Every user has another taste; all of them together are as before."""


STABLE = Shift("nothing")
SHIFTS = (
    Shift("feature: 40% of the likes go to one genre", genre=0.4),
    Shift("feature: 25% of the likes go to one genre", genre=0.25),
    Shift("category: 20% of the likes are of new items", new=0.2),
    Shift("category: 10% of the likes are of new items", new=0.1),
    Shift("missing: 20% of the items liked have no genre", nulls=0.2),
    Shift("taste: every user has another one, all together the same", tastes=True),
    Shift("scores: higher by half a standard deviation", score=0.5),
)


def columns(first: Sequence[Event], now: Sequence[Event]) -> list[DriftColumn]:
    def values(events: Sequence[Event], column: str) -> tuple[DriftValue, ...]:
        known = [one for one in events if one.genres is not None]
        if column == "item":
            return tuple(DriftValue(event.user, None if event.genres is None else ("known",)) for event in events)
        if column == "score":
            return tuple(DriftValue(event.user, (), event.score) for event in events)
        return tuple(DriftValue(like.user, like.genres if column == "genres" else (like.decade,)) for like in known)

    kinds = (("key", "item"), ("feature", "genres"), ("feature", "decade"), ("scores", "score"))
    return [DriftColumn(kind, column, values(first, column), values(now, column)) for kind, column in kinds]  # type: ignore[arg-type]


class Planted:
    """Users with tastes of their own, some of them far busier than others; who likes one film of a kind likes more of it."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 71])
        weights = 1 / np.arange(1, len(GENRES) + 1) ** 0.7
        self._tastes = self._rng.dirichlet(weights / weights.sum() * 4, USERS)
        busy = 1 / np.arange(20, USERS + 20) ** 0.6
        self._busy = busy / busy.sum()

    def events(self, count: int, shift: Shift = STABLE) -> list[Event]:
        rng = self._rng
        tastes = np.roll(self._tastes, USERS // 2, axis=0) if shift.tastes else self._tastes
        users = rng.choice(USERS, count, p=self._busy)
        found = []
        for user, draw in zip(users.tolist(), rng.random((count, 4)).tolist(), strict=True):
            genre = GENRES[min(int(np.searchsorted(np.cumsum(tastes[user]), draw[0])), len(GENRES) - 1)]
            decade = DECADES[int(draw[1] ** 1.5 * len(DECADES))]
            found.append(Event(user, (genre,), decade, math.sin(user) + draw[3]))
        return [changed(one, shift, rng) for one in found]


def changed(one: Event, shift: Shift, rng: np.random.Generator) -> Event:
    if shift.genre and rng.random() < shift.genre:
        one = replace(one, genres=("Western" if one.genres and one.genres[0][0].isupper() else "western",))
    if shift.new and rng.random() < shift.new:
        one = replace(one, genres=None)
    if shift.nulls and one.genres is not None and rng.random() < shift.nulls:
        one = replace(one, genres=())
    return replace(one, score=one.score + shift.score * 0.76) if shift.score else one


class MovieLens:
    """The likes (4 stars and more) of ml-100k: a user's come within an hour or so, a hundred and more of them."""

    def __init__(self, folder: Path) -> None:
        items = {}
        for line in (folder / "ml-100k.item").read_text(encoding="latin-1").splitlines()[1:]:
            item, _, year, genres = line.split("\t")
            items[item] = (tuple(genres.split()), f"{year[:3]}0s" if year[:4].isdigit() else "unknown")
        rows = [line.split("\t") for line in (folder / "ml-100k.inter").read_text().splitlines()[1:]]
        liked = sorted((float(at), int(user), item) for user, item, stars, at in rows if float(stars) >= 4)
        self.events = [Event(user, *items[item], 0.0) for _, user, item in liked]

    def shuffled(self, seed: int) -> list[Event]:
        """Users in another order, each with all of the own likes at once: nothing moves, and likes come as they really do."""
        users: dict[int, list[Event]] = {}
        for one in self.events:
            users.setdefault(one.user, []).append(one)
        order = np.random.default_rng([seed, 72]).permutation(sorted(users))
        return [one for user in order.tolist() for one in users[user]]


@dataclass(frozen=True)
class Earning:
    """A hit rate of answers to users who differ, two answers each in a quarter of a window on average."""

    rate: float
    fall: float = 0.0
    users: int = 250

    def blocks(self, seed: int, stable: int) -> Iterator[Block]:
        rng = np.random.default_rng([seed, 73])
        number = 0
        while True:
            rate = self.rate * (1 - (self.fall if number >= stable else 0))
            number += 1
            answers = rng.poisson(1, self.users) + 1
            hits = rng.binomial(answers, rng.beta(rate * 8, (1 - rate) * 8, self.users))
            values = hits / answers
            total, squares = float(values.sum()), float((values * values).sum())
            sample = VariantSample(self.users, total, squares, int(answers.sum()), int(hits.sum()), int((hits > 0).sum()))
            yield Block(START + timedelta(minutes=15 * number), sample)
