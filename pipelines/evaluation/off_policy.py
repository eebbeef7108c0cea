"""Off-policy evaluation: estimates what a candidate's answers would earn, from logged answers and their propensities.

An answer has places, and a like belongs to the item in one of them. A like is assumed to depend on the user and the item, and on the place
by a factor that is the same for all (`attention`), but not on the other items. Then a like of item `a` has the weight

    w = sum over places p of P(candidate shows a in p) attention(p)  /  the same sum of P(logged)

which says how much more likely the item is seen with the candidate. Attention is estimated from explored places, whose items were drawn at
random. Weights are clipped at `CLIP`, and the share of clipped weights is reported. The weights of an answer sum to its number of items, on
average, if the log can show all that the candidate shows; `support` is the actual share.

- `ips` sums weighted likes: items that the log could not show count as not liked.
- `snips` divides by the actual sum of the weights instead of the expected sum: missing items count like the rest, with less variance.
- `dr` takes a model of likes for everything, and weights only the differences of the likes from the model.

They estimate likes per answer. The share of answers with any like (hits) follows from the single curve through the log's hits and likes: 1
- (1 + c likes)^(-1/c), which is exact for independent likes of users whose rates have a gamma distribution.

Intervals rest on users, because a user's answers are similar, by each user's influence on the estimate. Two terms are added to their
spread: one more like at the largest weight, so that unseen likes are not impossible; and half of what the part would earn that the log
certainly could not show, because it may earn nothing or as much as the rest.
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
"""Largest weight: with 5% explored among 50 candidates an item in none of the logged answers weighs about 1,000."""
PRIOR = 2.0
"""Prior weight, in likes, of equal attention in every place."""
FEWEST_USERS, FEWEST_EFFECTIVE, LEAST_SUPPORT = 30, 50, 0.8
"""Fewest users, fewest effective answers, and least share of the candidate's items that the log can show; below these there is no estimate.
"""
_SURE = 1.28
"""Standard errors by which support must be below 1 to count as missing."""


@dataclass(frozen=True, eq=False)
class LoggedRows:
    """Answers by row, their places by column."""

    owners: Ints
    """User of each answer, from 0."""
    propensities: Floats
    """Propensity of the item in its place."""
    there: Mask
    """Places that exist, because answers have different lengths."""
    liked: Mask

    @property
    def users(self) -> int:
        return int(self.owners.max(initial=-1)) + 1

    @property
    def lengths(self) -> Ints:
        return np.asarray(self.there.sum(axis=1))

    @property
    def free(self) -> Mask:
        """Places that exploration can fill."""
        return self.there & (self.propensities < 1)

    @property
    def explored(self) -> Mask:
        """Items from exploration: with two free places at most half the answers explore a given place, with more places fewer."""
        return self.free & (self.propensities < 0.5)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Ranks of the logged items with the candidate: in the first places, or among the `others` that follow and can be explored."""

    ranks: Ints
    """From 0, by answer and place; -1 if the candidate cannot show the item."""
    others: Ints
    """Number of items that can be in an explored place, for each answer."""
    rate: float
    """Share of answers with an explored place."""

    def unexplored(self, lengths: Ints) -> Floats:
        """Returns the probability that a place shows its regular item."""
        return np.where((self.others > 0) & (lengths > 0), 1 - self.rate / np.maximum(lengths, 1), 1.0)


@dataclass(frozen=True, eq=False)
class ExpectedLikes:
    """Likes that a model expects, without attention."""

    logged: Floats
    """Likes of the logged items, by answer and place."""
    direct: Floats
    """Likes of each answer as the candidate would give it."""


@dataclass(frozen=True)
class Estimate:
    likes: float
    likes_se: float
    hit_rate: float
    se: float
    se_to_logged: float
    """Standard error of the difference to the hit rate of the logged answers."""


@dataclass(frozen=True, eq=False)
class OffPolicyForecast:
    """Estimates of the candidate by method; `logged` is what the logged answers earned."""

    logged: Estimate
    by: Mapping[str, Estimate]
    answers: int
    users: int
    effective: float
    """Number of the candidate's own answers with equal information, from the weights."""
    support: float
    cut: float
    """Share of the weights that were clipped."""
    attention: tuple[float, ...]

    @property
    def too_little(self) -> str | None:
        """Why there are too few data for an estimate, or None."""
        if self.users < FEWEST_USERS:
            return f"answers of only {self.users} users; at least {FEWEST_USERS} needed"
        if self.effective < FEWEST_EFFECTIVE:
            return (
                f"{self.answers:,} answers are worth {self.effective:.0f} answers of the candidate; at least {FEWEST_EFFECTIVE} needed: "
                "wait for more, or raise serve.order.explore.rate"
            )
        if self.support < LEAST_SUPPORT:
            return (
                f"answers could show only {self.support:.0%} of the candidate's items; at least {LEAST_SUPPORT:.0%} needed: raise "
                "serve.order.explore.among"
            )
        return None


def foretell(
    logged: LoggedRows, candidate: Candidate, likes: ExpectedLikes | None = None, clip: float = CLIP, by_place: bool = False
) -> OffPolicyForecast:
    """Estimates the candidate; with `by_place` an item counts only in the place in which it was shown, which needs far more answers."""
    attention = np.ones(logged.there.shape[1]) if by_place else attention_of(logged)
    raw = place_weights(logged, candidate) if by_place else item_weights(logged, candidate, attention)
    weights = np.minimum(raw, clip)
    earned: Floats = (weights * logged.liked).sum(axis=1)
    exposure = np.where(logged.there, attention, 0.0)
    came = (weights * exposure).sum(axis=1) / np.maximum(exposure.sum(axis=1), 1e-12)
    heaviest = float(weights.max(initial=0.0))

    count = len(logged.owners)
    own = _mean(logged.liked.sum(axis=1).astype(np.float64), logged)
    hits = _mean(np.asarray(logged.liked.any(axis=1), np.float64), logged)
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
    return OffPolicyForecast(
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


def attention_of(logged: LoggedRows) -> Floats:
    """Returns the attention of each place, 1 on average: the share of likes among its explored items, shrunk towards 1 for few items."""
    shown, liked = logged.explored.sum(axis=0), (logged.explored & logged.liked).sum(axis=0)
    usual = liked.sum() / max(shown.sum(), 1)
    attention = (liked + PRIOR) / (shown * usual + PRIOR)
    return np.asarray(attention / attention.mean())


def item_weights(logged: LoggedRows, candidate: Candidate, attention: Floats) -> Floats:
    """Returns by answer and place how much more likely the item is seen with the candidate, in any place."""
    lengths, width = logged.lengths[:, None], logged.there.shape[1]
    sums = np.concatenate([[0.0], np.cumsum(attention)])
    ranks, others = candidate.ranks, candidate.others[:, None]
    top, pool = _top_and_pool(candidate, lengths)
    shown = np.where(top, candidate.unexplored(logged.lengths)[:, None] * attention[np.clip(ranks, 0, width - 1)], 0.0)
    shown += np.where(pool, candidate.rate / np.maximum(lengths * others, 1) * sums[lengths], 0.0)
    free = np.where(logged.free, attention, 0.0).sum(axis=1)[:, None]
    was = logged.propensities * np.where(logged.explored, free, attention[None, :])
    return np.where(logged.there, shown / np.where(was > 0, was, 1.0), 0.0)


def place_weights(logged: LoggedRows, candidate: Candidate) -> Floats:
    """Returns how much more likely the candidate shows the item in this place."""
    lengths, others = logged.lengths[:, None], candidate.others[:, None]
    top, pool = _top_and_pool(candidate, lengths)
    same = top & (candidate.ranks == np.arange(logged.there.shape[1])[None, :])
    shown = np.where(same, candidate.unexplored(logged.lengths)[:, None], 0.0) + np.where(
        pool, candidate.rate / np.maximum(lengths * others, 1), 0.0
    )
    return np.where(logged.there, shown / np.where(logged.propensities > 0, logged.propensities, 1.0), 0.0)


def _top_and_pool(candidate: Candidate, lengths: Ints) -> tuple[Mask, Mask]:
    ranks, others = candidate.ranks, candidate.others[:, None]
    return (ranks >= 0) & (ranks < lengths), (ranks >= lengths) & (ranks < lengths + others)


@dataclass(frozen=True, eq=False)
class _Estimate:
    """A value, and each user's influence on its error."""

    value: float
    influence: Floats

    @property
    def error(self) -> float:
        return error_of(self.influence)


def error_of(influence: Floats) -> float:
    """Returns the standard error from the users' influences."""
    count = len(influence)
    return float(np.sqrt((influence**2).sum() * count / max(count - 1, 1)))


def _mean(values: Floats, logged: LoggedRows) -> _Estimate:
    return _ratio(values, np.ones(len(values)), logged)


def _ratio(values: Floats, of: Floats, logged: LoggedRows) -> _Estimate:
    total = max(float(of.sum()), 1e-12)
    value = float(values.sum()) / total
    return _Estimate(value, np.bincount(logged.owners, (values - value * of) / total, minlength=logged.users).astype(np.float64))


class _Curve:
    """The curve from likes per answer to the share of answers with any like, through the logged point."""

    def __init__(self, likes: _Estimate, hits: _Estimate) -> None:
        self._likes, self._hits = likes, hits

    def of(self, figure: _Estimate, more: float) -> Estimate:
        """Returns the estimate; `more` is added to the error for unseen likes and support."""
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
    """Returns the share of answers with a like for this number of likes per answer."""
    bend = _bend(logged_likes, logged_hits)
    return _hits(max(likes, 0.0), bend)


def _hits(likes: float, bend: float) -> float:
    if abs(bend) < 1e-9:
        return float(-np.expm1(-likes))
    inner = 1 + bend * likes
    return 1.0 if inner <= 0 else float(-np.expm1(-np.log(inner) / bend))


def _bend(likes: float, hits: float) -> float:
    """Returns the curve's parameter, by bisection: -1 if no answer has two likes; larger if likes concentrate on fewer answers."""
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
