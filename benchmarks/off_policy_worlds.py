"""A shop whose users' likes are known exactly: what it logs under exploration, and what any order of its items really earns.

Who likes what is the planted world's of the demo (`pipelines.data.synthetic`): each item of an answer is liked by itself, and seen with a
chance that depends on its place. Chances are those that the gateway keeps (`services.gateway.exploration`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.data.synthetic import World
from pipelines.evaluation.off_policy import Candidate, LoggedRows, OffPolicyForecast, attention_of, foretell
from pipelines.evaluation.reward_model import ShownAnswers, expected_likes
from services.gateway.exploration import Propensities

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
        found = np.empty_like(self.lines)
        np.put_along_axis(found, self.lines, np.arange(self.lines.shape[1])[None, :], axis=1)
        return found


@dataclass(frozen=True, eq=False)
class Shop:
    liking: Floats
    """That a user likes an item that is seen."""
    seen: Floats
    """That an item in this place is seen."""
    rate: float = 0.05
    among: int = 50

    @classmethod
    def planted(cls, users: int, items: int, k: int = 10, fall: float = 0.0, seed: int = 0, **exploring: Any) -> Shop:
        """`fall`: how fast attention falls from place to place; 0: not at all."""
        return cls(World.create(users, items, seed=seed).liking(), np.arange(1, k + 1) ** -fall, **exploring)

    @property
    def k(self) -> int:
        return len(self.seen)

    def orders(self, seed: int) -> tuple[Order, list[Order]]:
        """The one that serves, and candidates that are better, worse, like it, and popular alone."""
        rng = np.random.default_rng([seed, 11])
        truth = np.log(self.liking / (1 - self.liking))
        noise = rng.normal(size=truth.shape)
        serving = Order.by("serving", truth + 2.0 * noise)
        others = [
            Order.by("the same again", truth + 2.0 * noise),
            Order.by("a little other", truth + 2.0 * noise + 0.5 * rng.normal(size=truth.shape)),
            Order.by("as good, by itself", truth + 2.0 * rng.normal(size=truth.shape)),
            Order.by("a little better", truth + 1.8 * noise),
            Order.by("better", truth + 1.4 * noise),
            Order.by("best there is", truth),
            Order.by("worse", truth + 3.0 * noise),
            Order.by("popular", np.tile(self.liking.mean(axis=0), (len(truth), 1)) + 1e-9 * noise),
        ]
        return serving, others

    def log(self, serving: Order, answers: int, seed: int) -> tuple[LoggedRows, Ints]:
        """Answers, in the order of their users, and the items that they showed."""
        rng = np.random.default_rng([seed, 12])
        users = np.sort(rng.integers(len(self.liking), size=answers))
        items = serving.lines[users, : self.k].copy()
        propensities = np.tile(Propensities.equal(self.k, self.among, self.rate).shown, (answers, 1))
        explored = np.flatnonzero(rng.random(answers) < self.rate)
        place, which = rng.integers(self.k, size=len(explored)), rng.integers(self.among, size=len(explored))
        items[explored, place] = serving.lines[users[explored], self.k + which]
        propensities[explored, place] = self.rate / self.k / self.among
        liked = rng.random(items.shape) < self.liking[users[:, None], items] * self.seen[None, :]
        owners = np.unique(users, return_inverse=True)[1].astype(np.int64)
        return LoggedRows(owners, propensities, np.ones(items.shape, bool), liked), items

    def foretold(self, log: tuple[LoggedRows, Ints], users: Ints, order: Order, by_place: bool = False) -> OffPolicyForecast:
        """What is estimated of an order, as evaluate does. `users`: of each answer."""
        logged, items = log
        others = np.full(len(users), self.among, np.int64)
        candidate = Candidate(order.ranks()[users[:, None], items], others, self.rate)
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
        shown = self.liking[users, order.lines[:, : self.k]] * self.seen[None, :]
        pool = self.liking[users, order.lines[:, self.k : self.k + self.among]].mean(axis=1, keepdims=True) * self.seen[None, :]
        likes = shown.sum(axis=1) + self.rate * (pool - shown).mean(axis=1)
        none = np.prod(1 - shown, axis=1)
        swapped = (none[:, None] / (1 - shown) * (1 - pool)).mean(axis=1)
        return float(likes.mean()), float(1 - ((1 - self.rate) * none + self.rate * swapped).mean())


def users_of(shop: Shop, answers: int, seed: int) -> Ints:
    """Of each answer of that log."""
    return np.sort(np.random.default_rng([seed, 12]).integers(len(shop.liking), size=answers))
