"""Synthetic populations of users whose tastes and hit rates are known exactly; everything follows from seeds.

- hits: users with own hit rates (`hit_rates`, `Earning`)
- likes: a stable world and one that shifts at a known like (`Planted`), and MovieLens 100K (`MovieLens`)
- a shop: what it logs under exploration, and what any order of its items really earns (`Shop`)
- a month: who comes when, what they click and pick unasked, and how their tastes shift (`Scene`, `Crowd`)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from pipelines.data.synthetic import Floats, Ints, World
from pipelines.evaluation.off_policy import Candidate, LoggedRows, OffPolicyForecast, attention_of, foretell
from pipelines.evaluation.reward_model import ShownAnswers, expected_likes
from services.gateway.exploration import Propensities
from shared.domain.drift.hit_rate_detector import Block
from shared.domain.drift.reading import DriftColumn, DriftValue
from shared.domain.sequential_test import VariantSample

START = datetime(2026, 1, 1, tzinfo=UTC)


def hit_rates(random: np.random.Generator, rate: float | Floats, spread: float, users: int) -> Floats:
    """Draws the users' own hit rates from a Beta distribution with so many pseudo-counts."""
    return random.beta(rate * spread, (1 - rate) * spread, users)


def sample_of(answers: Ints, hits: Ints) -> VariantSample:
    """Sums of a variant, from the answers and hits of each user."""
    rates = hits / answers
    squares = float((rates * rates).sum())
    return VariantSample(len(rates), float(rates.sum()), squares, int(answers.sum()), int(hits.sum()), int((hits > 0).sum()))


@dataclass(frozen=True)
class Earning:
    """A hit rate of answers to users who differ, two answers each in a quarter of a window on average."""

    rate: float
    fall: float = 0.0
    users: int = 250

    def blocks(self, seed: int, stable: int) -> Iterator[Block]:
        random = np.random.default_rng([seed, 73])
        number = 0
        while True:
            rate = self.rate * (1 - (self.fall if number >= stable else 0))
            number += 1
            answers = random.poisson(1, self.users) + 1
            hits = random.binomial(answers, hit_rates(random, rate, 8, self.users))
            yield Block(START + timedelta(minutes=15 * number), sample_of(answers, hits))


GENRES = ("drama", "comedy", "action", "thriller", "romance", "crime", "horror", "western", "war", "noir", "musical", "animation")
DECADES = ("2020s", "2010s", "2000s", "1990s", "older")
USERS = 20_000


@dataclass(frozen=True)
class Event:
    """A like, and the score that its item had in the answer. `genres`: () if missing, None if the version does not know the item."""

    user: int
    genres: tuple[str, ...] | None
    decade: str
    score: float


@dataclass(frozen=True)
class Shift:
    """Change of the likes from a known like on."""

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
    def column(kind: Literal["key", "feature", "scores"], name: str) -> DriftColumn:
        before, after = (tuple(_values(events, name)) for events in (first, now))
        return DriftColumn(kind, name, before, after)

    return [column("key", "item"), column("feature", "genres"), column("feature", "decade"), column("scores", "score")]


def _values(events: Sequence[Event], column: str) -> Iterator[DriftValue]:
    for event in events:
        if column == "item":
            yield DriftValue(event.user, None if event.genres is None else ("known",))
        elif column == "score":
            yield DriftValue(event.user, (), event.score)
        elif event.genres is not None:
            yield DriftValue(event.user, event.genres if column == "genres" else (event.decade,))


def changed(event: Event, shift: Shift, random: np.random.Generator) -> Event:
    if shift.genre and random.random() < shift.genre:
        event = replace(event, genres=("Western" if event.genres and event.genres[0][0].isupper() else "western",))
    if shift.new and random.random() < shift.new:
        event = replace(event, genres=None)
    if shift.nulls and event.genres is not None and random.random() < shift.nulls:
        event = replace(event, genres=())
    return replace(event, score=event.score + shift.score * 0.76) if shift.score else event


class Planted:
    """Users with tastes of their own, some of them far busier than others; who likes one film of a kind likes more of it."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng([seed, 71])
        weights = 1 / np.arange(1, len(GENRES) + 1) ** 0.7
        self._tastes = self._random.dirichlet(weights / weights.sum() * 4, USERS)
        busy = 1 / np.arange(20, USERS + 20) ** 0.6
        self._busy = busy / busy.sum()

    def events(self, count: int, shift: Shift = STABLE) -> list[Event]:
        random = self._random
        tastes = np.roll(self._tastes, USERS // 2, axis=0) if shift.tastes else self._tastes
        users = random.choice(USERS, count, p=self._busy)
        events = []
        for user, draw in zip(users.tolist(), random.random((count, 4)).tolist(), strict=True):
            genre = GENRES[min(int(np.searchsorted(np.cumsum(tastes[user]), draw[0])), len(GENRES) - 1)]
            decade = DECADES[int(draw[1] ** 1.5 * len(DECADES))]
            events.append(Event(user, (genre,), decade, math.sin(user) + draw[3]))
        return [changed(event, shift, random) for event in events]


class MovieLens:
    """The likes (4 stars and more) of ml-100k: a user's come within an hour or so, a hundred and more of them."""

    def __init__(self, folder: Path) -> None:
        items = {}
        for line in (folder / "ml-100k.item").read_text(encoding="latin-1").splitlines()[1:]:
            item, _, year, genres = line.split("\t")
            items[item] = (tuple(genres.split()), f"{year[:3]}0s" if year[:4].isdigit() else "unknown")
        rows = [line.split("\t") for line in (folder / "ml-100k.inter").read_text().splitlines()[1:]]
        likes = sorted((float(at), int(user), item) for user, item, stars, at in rows if float(stars) >= 4)
        self.events = [Event(user, *items[item], 0.0) for _, user, item in likes]

    def shuffled(self, seed: int) -> list[Event]:
        """Users in another order, each with all of the own likes at once: nothing moves, and likes come as they really do."""
        users: dict[int, list[Event]] = {}
        for event in self.events:
            users.setdefault(event.user, []).append(event)
        order = np.random.default_rng([seed, 72]).permutation(sorted(users))
        return [event for user in order.tolist() for event in users[user]]


@dataclass(frozen=True, eq=False)
class Order:
    """A version: by user, all items as it would show them, best first, and how far each stands out."""

    name: str
    lines: Ints
    scores: Floats

    @classmethod
    def by(cls, name: str, scores: Floats) -> Order:
        spread = scores - scores.mean(axis=1, keepdims=True)
        width = np.maximum(spread.std(axis=1, keepdims=True), 1e-12)
        return cls(name, np.argsort(-scores, axis=1, kind="stable"), spread / width)

    def ranks(self) -> Ints:
        ranks = np.empty_like(self.lines)
        np.put_along_axis(ranks, self.lines, np.arange(self.lines.shape[1])[None, :], axis=1)
        return ranks


@dataclass(frozen=True, eq=False)
class Shop:
    """Each item of an answer is liked by itself, and seen with a chance that depends on its place. The propensities are the gateway's."""

    liking: Floats
    """That a user likes an item that is seen."""
    attention: Floats
    """That an item in this place is seen."""
    rate: float = 0.05
    among: int = 50

    @classmethod
    def planted(cls, users: int, items: int, k: int = 10, fall: float = 0.0, seed: int = 0, **exploration: Any) -> Shop:
        """`fall`: how fast attention falls from place to place; 0: not at all."""
        return cls(World.create(users, items, seed=seed).liking(), np.arange(1, k + 1, dtype=np.float64) ** -fall, **exploration)

    @property
    def k(self) -> int:
        return len(self.attention)

    def orders(self, seed: int) -> tuple[Order, list[Order]]:
        """Returns the serving version's order, and those of candidates: better, worse, as good, and by popularity alone."""
        random = np.random.default_rng([seed, 11])
        truth = np.log(self.liking / (1 - self.liking))
        noise = random.normal(size=truth.shape)
        serving = Order.by("serving", truth + 2.0 * noise)
        candidates = [
            Order.by("the same again", truth + 2.0 * noise),
            Order.by("a little other", truth + 2.0 * noise + 0.5 * random.normal(size=truth.shape)),
            Order.by("as good, by itself", truth + 2.0 * random.normal(size=truth.shape)),
            Order.by("a little better", truth + 1.8 * noise),
            Order.by("better", truth + 1.4 * noise),
            Order.by("best there is", truth),
            Order.by("worse", truth + 3.0 * noise),
            Order.by("popular", np.tile(self.liking.mean(axis=0), (len(truth), 1)) + 1e-9 * noise),
        ]
        return serving, candidates

    def log(self, serving: Order, answers: int, seed: int) -> tuple[LoggedRows, Ints]:
        """Answers, in the order of their users, and the items that they showed."""
        random = np.random.default_rng([seed, 12])
        users = np.sort(random.integers(len(self.liking), size=answers))
        items = serving.lines[users, : self.k].copy()
        propensities = np.tile(Propensities.equal(self.k, self.among, self.rate).shown, (answers, 1))
        explored = np.flatnonzero(random.random(answers) < self.rate)
        place, choice = random.integers(self.k, size=len(explored)), random.integers(self.among, size=len(explored))
        items[explored, place] = serving.lines[users[explored], self.k + choice]
        propensities[explored, place] = self.rate / self.k / self.among
        liked = random.random(items.shape) < self.liking[users[:, None], items] * self.attention[None, :]
        owners = np.unique(users, return_inverse=True)[1].astype(np.int64)
        return LoggedRows(owners, propensities, np.ones(items.shape, bool), liked), items

    def foretold(self, log: tuple[LoggedRows, Ints], users: Ints, order: Order, by_place: bool = False) -> OffPolicyForecast:
        """Estimates an order's hit rate as evaluate does. `users`: of each answer."""
        logged, items = log
        lengths = np.full(len(users), self.among, np.int64)
        candidate = Candidate(order.ranks()[users[:, None], items], lengths, self.rate)
        if by_place:
            return foretell(logged, candidate, by_place=True)
        would = order.lines[users, : self.k + self.among]
        was = ShownAnswers(items, order.scores[users[:, None], items])
        lists = ShownAnswers(would, order.scores[users[:, None], would])
        likes = expected_likes(logged, candidate, was, lists, attention_of(logged), self.liking.shape[1])
        return foretell(logged, candidate, likes)

    def earns(self, order: Order) -> tuple[float, float]:
        """Likes an answer, and the share of answers with any: exactly, under the same exploration."""
        users = np.arange(len(self.liking))[:, None]
        shown = self.liking[users, order.lines[:, : self.k]] * self.attention[None, :]
        pool = self.liking[users, order.lines[:, self.k : self.k + self.among]].mean(axis=1, keepdims=True) * self.attention[None, :]
        likes = shown.sum(axis=1) + self.rate * (pool - shown).mean(axis=1)
        none = np.prod(1 - shown, axis=1)
        swapped = (none[:, None] / (1 - shown) * (1 - pool)).mean(axis=1)
        return float(likes.mean()), float(1 - ((1 - self.rate) * none + self.rate * swapped).mean())


def users_of(shop: Shop, answers: int, seed: int) -> Ints:
    """The user of each answer of that log."""
    return np.sort(np.random.default_rng([seed, 12]).integers(len(shop.liking), size=answers))


FASHION, EXCHANGE = "the fashion changes", "tastes are exchanged"


@dataclass(frozen=True)
class Scene:
    """Size of a simulated month, and the days on which tastes shift."""

    users: int = 1000
    items: int = 600
    ratings: int = 40_000
    visits: int = 2000
    """A day."""
    days: int = 30
    fashion: int = 10
    exchange: int = 20
    shown: int = 5
    organic: int = 2
    seed: int = 1

    @property
    def shifts(self) -> dict[int, str]:
        return {self.fashion: FASHION, self.exchange: EXCHANGE}

    def phase(self, day: int) -> int:
        return (day >= self.fashion) + (day >= self.exchange)

    def worlds(self) -> tuple[World, World, World]:
        """Of each phase: at first; half of a fashion's genres in, half out, others than before; and users with each other's tastes."""
        plain = World.create(self.users, self.items, seed=self.seed)
        later = plain.in_fashion(2)
        return plain.in_fashion(1), later, later.exchanged(3)


class Crowd:
    """Visitors of one day, and what they would do. A visit is the same in every arm, down to its luck: what a user would click is drawn
    before it is known what is shown."""

    def __init__(self, scene: Scene, world: World, day: int) -> None:
        self._scene = scene
        self._world = world
        random = np.random.default_rng([scene.seed, day, 81])
        rounds = -(-scene.visits // scene.users)
        self.users: list[int] = np.concatenate([random.permutation(world.user_ids) for _ in range(rounds)])[: scene.visits].tolist()
        self._luck = random.random((scene.visits, scene.items), dtype=np.float32)
        self._picks = random.spawn(scene.visits)
        self._chances = world.liking()
        best = np.sort(np.partition(self._chances, -scene.shown, axis=1)[:, -scene.shown :], axis=1)
        self._most = 1 - np.prod(1 - best, axis=1)

    def clicked(self, visit: int, shown: Sequence[int]) -> list[int]:
        clicks = self._luck[visit, self._columns(shown)] < self._liked(visit, shown)
        return [item for item, click in zip(shown, clicks, strict=True) if click]

    def promise(self, visit: int, shown: Sequence[int]) -> float:
        """The chance that these earn a click."""
        return float(1 - np.prod(1 - self._liked(visit, shown)))

    def picked(self, visit: int) -> tuple[Ints, Floats]:
        """Items that the user rates unasked, and their stars."""
        return self._world.organic(self.users[visit], self._scene.organic, self._picks[visit])

    def oracle(self) -> float:
        """The hit rate of a recommender that knows the tastes."""
        return float(self._most[np.asarray(self.users) - 1].mean())

    def _columns(self, shown: Sequence[int]) -> Ints:
        return np.searchsorted(self._world.item_ids, shown)

    def _liked(self, visit: int, shown: Sequence[int]) -> Floats:
        return cast(Floats, self._chances[self.users[visit] - 1, self._columns(shown)])


def crowds(scene: Scene) -> Iterator[tuple[int, Crowd]]:
    worlds = scene.worlds()
    for day in range(scene.days):
        yield day, Crowd(scene, worlds[scene.phase(day)], day)
