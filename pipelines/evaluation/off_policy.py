"""What other answers would have earned, told from logged ones and the chances with which they were shown.

An answer has places, and a like belongs to the item in one of them. It is assumed that whether a user likes a shown item depends on both
and on the place, by a factor that is the same for all (`attention`), and not on what else is shown. Then a like of item `a` counts

    w = sum over places p of P(candidate shows a in p) attention(p)  /  the same sum of P(logged)

times: how much likelier the candidate has it seen. Attention is read off the explored places, which were drawn by chance. Weights are cut
at `CLIP`, which the share of cut ones goes with. The sum of the weights of an answer is its number of items, on average, if the log could
have shown all that the candidate shows; `support` is how much of it there is.

- `ips` adds weighed likes up: what the log couldn't have shown counts as not liked.
- `snips` divides by what the weights come to instead of what they should: what is missing counts like the rest, and its spread is less.
- `dr` takes a model of likes for everything, and weighs only where likes differ from it.

They estimate likes an answer. How many answers have any (hits) follows by the one curve that has as many hits as the log at the log's
likes: 1 - (1 + c likes)^(-1/c), which is exact for independent likes of users who differ, by a gamma distribution, in how much they like.

Intervals rest on users, whose answers resemble each other, by the influence of each on the estimate. Two things are added to their spread:
one like more at the heaviest weight, so that what was never seen isn't taken for impossible; and half of what the part would earn that
the log surely couldn't have shown, for nobody knows whether it earns nothing or as much as the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

CLIP = 5_000.0
"""The greatest weight: with 5% explored among 50 candidates an item that none of the logged answers has weighs about 1,000."""
PRIOR = 2.0
"""Likes that speak for every place getting the same attention."""
FEWEST_USERS, FEWEST_EFFECTIVE, LEAST_SUPPORT = 30, 50, 0.8
"""Users, answers' worth of evidence, and the share of the candidate's items that the log can have shown, below which nothing is said."""
_SURE = 1.28
"""Standard errors by which support must lack before it counts as lacking."""


@dataclass(frozen=True, eq=False)
class Logged:
    """Answers by row, their places by column."""

    owners: Ints
    """Of each answer its user, from 0."""
    chances: Floats
    """That the item stood in its place."""
    there: Mask
    """Answers may be of different lengths."""
    liked: Mask

    @property
    def users(self) -> int:
        return int(self.owners.max(initial=-1)) + 1

    @property
    def lengths(self) -> Ints:
        return np.asarray(self.there.sum(axis=1))

    @property
    def free(self) -> Mask:
        """Places that may be given away by chance."""
        return self.there & (self.chances < 1)

    @property
    def explored(self) -> Mask:
        """Items that came by chance: of two free places at most half the answers can give one away, of more fewer."""
        return self.free & (self.chances < 0.5)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Where the candidate would have shown the logged items: the first places, or among the `others` that come next and are explored."""

    ranks: Ints
    """From 0, by answer and place; -1 where it can't show the item."""
    others: Ints
    """Of each answer, how many could stand in an explored place."""
    rate: float
    """The share of answers in which one place is explored."""

    def unexplored(self, lengths: Ints) -> Floats:
        """That a place shows what belongs there."""
        return np.where((self.others > 0) & (lengths > 0), 1 - self.rate / np.maximum(lengths, 1), 1.0)


@dataclass(frozen=True, eq=False)
class Likes:
    """What a model expects, without attention."""

    logged: Floats
    """Of the logged items, by answer and place."""
    direct: Floats
    """Of each answer as the candidate would give it."""


@dataclass(frozen=True)
class Estimate:
    likes: float
    likes_se: float
    hit_rate: float
    se: float
    se_to_logged: float
    """Of the difference to the hit rate of the logged answers."""


@dataclass(frozen=True, eq=False)
class Foretold:
    """`logged` is what the answers in the log earned themselves."""

    logged: Estimate
    by: Mapping[str, Estimate]
    answers: int
    users: int
    effective: float
    """So many answers of the candidate's own would say as much, judged by its weights."""
    support: float
    cut: float
    """The share of the weights that were cut."""
    attention: tuple[float, ...]

    @property
    def too_little(self) -> str | None:
        """Why nothing can be said."""
        if self.users < FEWEST_USERS:
            return f"the answers are of {self.users} users; {FEWEST_USERS} are needed"
        if self.effective < FEWEST_EFFECTIVE:
            return (
                f"{self.answers:,} answers say as much of the candidate as {self.effective:.0f} of its own; {FEWEST_EFFECTIVE} are needed: "
                "wait for more, or raise serve.order.explore.rate"
            )
        if self.support < LEAST_SUPPORT:
            return (
                f"answers can have shown {self.support:.0%} of what the candidate would show; {LEAST_SUPPORT:.0%} are needed: raise "
                "serve.order.explore.among"
            )
        return None


def foretell(logged: Logged, candidate: Candidate, likes: Likes | None = None, clip: float = CLIP, by_place: bool = False) -> Foretold:
    """`by_place`: an item counts only in the very place in which it was shown, whatever attention that gets; needs far more answers."""
    attention = np.ones(logged.there.shape[1]) if by_place else attention_of(logged)
    raw = place_weights(logged, candidate) if by_place else item_weights(logged, candidate, attention)
    weights = np.minimum(raw, clip)
    earned = (weights * logged.liked).sum(axis=1)
    exposure = np.where(logged.there, attention, 0.0)
    came = (weights * exposure).sum(axis=1) / np.maximum(exposure.sum(axis=1), 1e-12)
    heaviest = float(weights.max(initial=0.0))

    count = len(logged.owners)
    own = _mean(logged.liked.sum(axis=1).astype(np.float64), logged)
    hits = _mean(logged.liked.any(axis=1).astype(np.float64), logged)
    estimates = {"ips": _mean(earned, logged)}
    if came.sum() > 0:
        estimates["snips"] = _ratio(earned, came, logged)
    if likes is not None:
        right = (weights * (logged.liked - likes.logged * exposure)).sum(axis=1)
        estimates["dr"] = _mean(likes.direct + right, logged)
    curve = _Curve(own, hits)
    support = _mean(came, logged)
    unknown = max(1 - support.value - _SURE * support.error, 0.0) / 2
    squares = float((weights**2).sum())
    items = logged.there.sum() / max(count, 1)
    return Foretold(
        logged=Estimate(own.value, own.error, hits.value, hits.error, 0.0),
        by={
            name: curve.of(
                estimate, float(np.hypot(heaviest / max(came.sum() if name == "snips" else count, 1e-12), unknown * estimate.value))
            )
            for name, estimate in estimates.items()
        },
        answers=count,
        users=logged.users,
        effective=float(weights.sum()) ** 2 / squares / items if squares else 0.0,
        support=support.value,
        cut=float((raw > clip).sum() / max((raw > 0).sum(), 1)),
        attention=tuple(attention.tolist()),
    )


def attention_of(logged: Logged) -> Floats:
    """Of each place, 1 on average: how often explored items were liked there, drawn towards 1 where that is little to go by."""
    shown, liked = logged.explored.sum(axis=0), (logged.explored & logged.liked).sum(axis=0)
    usual = liked.sum() / max(shown.sum(), 1)
    attention = (liked + PRIOR) / (shown * usual + PRIOR)
    return np.asarray(attention / attention.mean())


def item_weights(logged: Logged, candidate: Candidate, attention: Floats) -> Floats:
    """By answer and place: how much likelier the candidate has the item seen, wherever it stands."""
    lengths, width = logged.lengths[:, None], logged.there.shape[1]
    sums = np.concatenate([[0.0], np.cumsum(attention)])
    ranks, others = candidate.ranks, candidate.others[:, None]
    top, pool = _top_and_pool(candidate, lengths)
    shown = np.where(top, candidate.unexplored(logged.lengths)[:, None] * attention[np.clip(ranks, 0, width - 1)], 0.0)
    shown += np.where(pool, candidate.rate / np.maximum(lengths * others, 1) * sums[lengths], 0.0)
    free = np.where(logged.free, attention, 0.0).sum(axis=1)[:, None]
    was = logged.chances * np.where(logged.explored, free, attention[None, :])
    return np.where(logged.there, shown / np.where(was > 0, was, 1.0), 0.0)


def place_weights(logged: Logged, candidate: Candidate) -> Floats:
    """How much likelier the candidate shows the item in that very place."""
    lengths, others = logged.lengths[:, None], candidate.others[:, None]
    top, pool = _top_and_pool(candidate, lengths)
    same = top & (candidate.ranks == np.arange(logged.there.shape[1])[None, :])
    shown = np.where(same, candidate.unexplored(logged.lengths)[:, None], 0.0) + np.where(
        pool, candidate.rate / np.maximum(lengths * others, 1), 0.0
    )
    return np.where(logged.there, shown / np.where(logged.chances > 0, logged.chances, 1.0), 0.0)


def _top_and_pool(candidate: Candidate, lengths: Ints) -> tuple[Mask, Mask]:
    ranks, others = candidate.ranks, candidate.others[:, None]
    return (ranks >= 0) & (ranks < lengths), (ranks >= lengths) & (ranks < lengths + others)


@dataclass(frozen=True, eq=False)
class _Figure:
    """A figure, and what each user adds to its error."""

    value: float
    influence: Floats

    @property
    def error(self) -> float:
        return error_of(self.influence)


def error_of(influence: Floats) -> float:
    """The standard error of what these users' influences make up."""
    count = len(influence)
    return float(np.sqrt((influence**2).sum() * count / max(count - 1, 1)))


def _mean(values: Floats, logged: Logged) -> _Figure:
    return _ratio(values, np.ones(len(values)), logged)


def _ratio(values: Floats, of: Floats, logged: Logged) -> _Figure:
    total = max(float(of.sum()), 1e-12)
    value = float(values.sum()) / total
    return _Figure(value, np.bincount(logged.owners, (values - value * of) / total, minlength=logged.users).astype(np.float64))


class _Curve:
    """From likes an answer to the share of answers with any, through the logged point."""

    def __init__(self, likes: _Figure, hits: _Figure) -> None:
        self._likes, self._hits = likes, hits

    def of(self, figure: _Figure, more: float) -> Estimate:
        """`more`: what isn't seen in what the users add."""
        at = (figure.value, self._likes.value, self._hits.value)
        slopes = [_slope(at, place) for place in range(3)]
        influence = slopes[0] * figure.influence + slopes[1] * self._likes.influence + slopes[2] * self._hits.influence
        extra = slopes[0] * more
        return Estimate(
            figure.value,
            float(np.hypot(figure.error, more)),
            hits_at(*at),
            float(np.hypot(error_of(influence), extra)),
            float(np.hypot(error_of(influence - self._hits.influence), extra)),
        )


def hits_at(likes: float, logged_likes: float, logged_hits: float) -> float:
    """The share of answers with a like where there are so many likes an answer."""
    bend = _bend(logged_likes, logged_hits)
    return _hits(max(likes, 0.0), bend)


def _hits(likes: float, bend: float) -> float:
    if abs(bend) < 1e-9:
        return float(-np.expm1(-likes))
    inner = 1 + bend * likes
    return 1.0 if inner <= 0 else float(-np.expm1(-np.log(inner) / bend))


def _bend(likes: float, hits: float) -> float:
    """The curve's one parameter, by bisection: -1 where no answer has two likes; the more answers share their likes, the greater."""
    if likes <= 0 or hits >= likes:
        return -1.0
    low, high = -1.0, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _hits(likes, middle) > hits else (low, middle)
    return (low + high) / 2


def _slope(at: tuple[float, float, float], place: int) -> float:
    step = 1e-4 * max(at[place], 1e-6)
    up, down = (list(at), list(at))
    up[place] += step
    down[place] -= step
    return (_at(up) - _at(down)) / (2 * step)


def _at(values: Any) -> float:
    return hits_at(values[0], values[1], values[2])
