"""A small model of likes, learned from the log, for the doubly robust estimate.

A logistic regression on three features: the candidate's score of the item, relative to the user's other items; whether the serving version
chose the item for the user; and how much more often than usual other users liked the item. Items that a version chooses are liked more than
others, so only explored showings are evidence for the others. Likes in places with little attention count more. The model learns on the
answers of half the users and predicts the other half, so that no like predicts itself. Weighted likes correct its errors where items were
logged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.evaluation.off_policy import Candidate, ExpectedLikes, Floats, Ints, LoggedRows, Mask

HALVES = 2
USUAL = 20.0
"""Prior showings of each item, at the usual rate of likes."""
ENOUGH = 500_000
"""Most showings to learn from."""
_STEPS, _RIDGE = 25, 1.0


@dataclass(frozen=True, eq=False)
class ShownAnswers:
    """Rows of the catalogue (-1 for none) by answer and place, and the candidate's scores, in standard deviations of the user's scores."""

    items: Ints
    scores: Floats


def expected_likes(
    logged: LoggedRows, candidate: Candidate, was: ShownAnswers, would: ShownAnswers, attention: Floats, catalogue: int
) -> ExpectedLikes:
    """Predicts likes; `was` was shown, and `would` is what the candidate would show, followed by the items that it could explore."""
    expected, direct = np.zeros(logged.there.shape), np.zeros(len(logged.owners))
    half, chosen = logged.owners % HALVES, _Chosen(logged, was.items, catalogue)
    for number in range(HALVES):
        learn, ask = half != number, half == number
        if not learn.any() or not ask.any():
            continue
        there, liked, own = logged.there[learn], logged.liked[learn], chosen.of(was, learn)
        rates = _rates(was.items[learn], there, liked, own, attention, catalogue)
        weights = _learned(_columns(was, learn, own, rates), liked, there, attention)
        expected[ask] = _chance(_columns(was, ask, chosen.of(was, ask), rates), weights)
        lists = np.where(would.items[ask] >= 0, _chance(_columns(would, ask, chosen.of(would, ask), rates), weights), 0.0)
        direct[ask] = _direct(
            lists, logged.lengths[ask], candidate.others[ask], candidate.unexplored(logged.lengths)[ask], candidate, attention
        )
    return ExpectedLikes(expected, direct)


def _direct(lists: Floats, lengths: Ints, others: Ints, unexplored: Floats, candidate: Candidate, attention: Floats) -> Floats:
    place = np.arange(lists.shape[1])[None, :]
    top, pool = place < lengths[:, None], (place >= lengths[:, None]) & (place < (lengths + others)[:, None])
    sums = np.concatenate([[0.0], np.cumsum(attention)])
    padded = np.zeros(lists.shape[1])
    padded[: len(attention)] = attention
    own = unexplored * np.where(top, lists * padded[None, :], 0.0).sum(axis=1)
    explored = candidate.rate / np.maximum(lengths * others, 1) * sums[lengths] * np.where(pool, lists, 0.0).sum(axis=1)
    return np.asarray(own + explored)


class _Chosen:
    """Items that the serving version itself has shown to a user, in any answer."""

    def __init__(self, logged: LoggedRows, items: Ints, catalogue: int) -> None:
        self._owners, self._catalogue = logged.owners, catalogue
        own = logged.there & ~logged.explored & (items >= 0)
        self._pairs = np.unique(self._numbered(items, np.ones(len(items), bool))[own])

    def of(self, shown: ShownAnswers, some: Mask) -> Mask:
        items = shown.items[some]
        return (items >= 0) & np.isin(self._numbered(items, some), self._pairs)

    def _numbered(self, items: Ints, some: Mask) -> Ints:
        return np.asarray(self._owners[some][:, None] * self._catalogue + items)


def _rates(items: Ints, there: Mask, liked: Mask, chosen: Mask, attention: Floats, catalogue: int) -> Floats:
    """Returns for each item the log of its likes relative to the usual rate of (not) chosen items, shrunk for few showings."""
    exposure = np.broadcast_to(attention, there.shape)
    usual = np.array([(liked & of).sum() / max(exposure[of].sum(), 1.0) for of in (there & ~chosen, there & chosen)])
    in_catalogue = there & (items >= 0)
    expected = np.bincount(items[in_catalogue], (exposure * usual[chosen.astype(np.int64)])[in_catalogue], minlength=catalogue)
    likes = np.bincount(items[in_catalogue & liked], minlength=catalogue)
    prior = max(USUAL * float(liked[there].mean()), 1e-6)
    return np.asarray(np.log((likes + prior) / (expected + prior)))


def _columns(shown: ShownAnswers, some: Mask, chosen: Mask, rates: Floats) -> Floats:
    items = shown.items[some]
    return np.stack([np.ones(items.shape), np.clip(shown.scores[some], -10, 10), chosen, rates[np.maximum(items, 0)]], axis=-1)


def _learned(columns: Floats, liked: Mask, there: Mask, attention: Floats) -> Floats:
    """Fits by Newton's method on the penalised likelihood."""
    x, y = columns[there], liked[there].astype(np.float64)
    log_exposure = np.log(np.broadcast_to(attention, there.shape)[there])
    if len(y) > ENOUGH:
        step = len(y) // ENOUGH + 1
        x, y, log_exposure = x[::step], y[::step], log_exposure[::step]
    usual = min(max(float(y.mean()), 1e-6), 1 - 1e-6)
    weights = np.array([np.log(usual / (1 - usual)), 0.0, 0.0, 0.0])
    ridge = np.diag([1e-6, _RIDGE, _RIDGE, _RIDGE])
    for _ in range(_STEPS):
        chance = _chance(x, weights, log_exposure)
        slope = x.T @ (y - chance) - ridge @ weights
        step_ = np.linalg.solve((x * (chance * (1 - chance))[:, None]).T @ x + ridge, slope)
        weights = weights + np.clip(step_, -2, 2)
        if np.abs(step_).max() < 1e-6:
            break
    return weights


def _chance(columns: Floats, weights: Floats, log_exposure: Floats | float = 0.0) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(columns @ weights + log_exposure, -30, 30))))
