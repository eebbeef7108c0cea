"""A small model of what users like of what is shown, learned from the log, for the doubly robust estimate.

A logistic regression on three things: how far the candidate's score of an item stands out for this user; whether the serving version chose
the item for the user; and how much oftener the item was liked by others than is usual. What a version chooses is liked more than what it
doesn't, so of the rest those showings speak that came by chance. A like in a place that is little seen says more. It is learned on the
answers of half the users and asked about the other half, so that no like foretells itself. It need not be right: where it errs, weighed
likes put it right; where nothing was logged, it is all there is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.evaluation.off_policy import Candidate, Floats, Ints, Likes, Logged, Mask

HALVES = 2
USUAL = 20.0
"""Showings of an item that nobody has seen: it is taken for a usual one."""
ENOUGH = 500_000
"""Showings to learn from."""
_STEPS, _RIDGE = 25, 1.0


@dataclass(frozen=True, eq=False)
class Shown:
    """Rows of the catalogue (-1: none) by answer and place, and the candidate's scores of them, in standard deviations of the user's."""

    items: Ints
    scores: Floats


def expected_likes(logged: Logged, candidate: Candidate, was: Shown, would: Shown, attention: Floats, catalogue: int) -> Likes:
    """`was`: what was shown. `would`: what the candidate would show, and after that what could stand in its explored place."""
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
    return Likes(expected, direct)


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
    """Which items the serving version itself has shown to a user, in any answer."""

    def __init__(self, logged: Logged, items: Ints, catalogue: int) -> None:
        self._owners, self._catalogue = logged.owners, catalogue
        own = logged.there & ~logged.explored & (items >= 0)
        self._pairs = np.unique(self._numbered(items, np.ones(len(items), bool))[own])

    def of(self, shown: Shown, some: Mask) -> Mask:
        items = shown.items[some]
        return (items >= 0) & np.isin(self._numbered(items, some), self._pairs)

    def _numbered(self, items: Ints, some: Mask) -> Ints:
        return np.asarray(self._owners[some][:, None] * self._catalogue + items)


def _rates(items: Ints, there: Mask, liked: Mask, chosen: Mask, attention: Floats, catalogue: int) -> Floats:
    """Of each item, as a logarithm: how much oftener it was liked than is usual of what is chosen, or isn't, where it was shown; drawn
    towards the usual where it seldom was."""
    exposure = np.broadcast_to(attention, there.shape)
    usual = np.array([(liked & of).sum() / max(exposure[of].sum(), 1.0) for of in (there & ~chosen, there & chosen)])
    in_catalogue = there & (items >= 0)
    expected = np.bincount(items[in_catalogue], (exposure * usual[chosen.astype(np.int64)])[in_catalogue], minlength=catalogue)
    likes = np.bincount(items[in_catalogue & liked], minlength=catalogue)
    prior = max(USUAL * float(liked[there].mean()), 1e-6)
    return np.asarray(np.log((likes + prior) / (expected + prior)))


def _columns(shown: Shown, some: Mask, chosen: Mask, rates: Floats) -> Floats:
    items = shown.items[some]
    return np.stack([np.ones(items.shape), np.clip(shown.scores[some], -10, 10), chosen, rates[np.maximum(items, 0)]], axis=-1)


def _learned(columns: Floats, liked: Mask, there: Mask, attention: Floats) -> Floats:
    """Newton's steps on the penalised likelihood."""
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
