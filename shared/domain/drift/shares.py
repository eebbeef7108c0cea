"""Two-sample test of how the likes of users are spread over values. One user is one observation.

The likes of one user are not independent, so each user counts once, with the shares of that user's likes. The statistic is the sum over
bins of (q - p)^2 / c, where c is the common share; it equals the PSI to second order. It is a quadratic form in a difference of two means.
Without drift its mean is the trace of the users' covariance over c, times 1/n + 1/m: for users with one like each, (bins - 1)(1/n + 1/m),
the known bias of the PSI. Its distribution is a scaled chi-square (Satterthwaite), an F because the covariance is estimated. Larger samples
make the test sharper, not the statistic larger.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared.domain.drift.distributions import f_tail

BINS = 20
FEWEST = 30
"""Minimum number of users on each side; below it there is no result."""
_IN_A_BIN = 5
"""Expected users of the smaller side in each bin."""
OTHER = "other values"

Shares = Sequence[Mapping[str, float]]
"""Shares of each user's likes over the values; they add up to 1."""


@dataclass(frozen=True)
class ShareComparison:
    before: Mapping[str, float]
    after: Mapping[str, float]
    psi: float
    bias: float
    """Mean of the PSI without drift."""
    chance: float
    users: tuple[int, int]


def compare(first: Shares, now: Shares) -> ShareComparison | None:
    """Returns None if a side has too few users."""
    n, m = len(first), len(now)
    if min(n, m) < FEWEST:
        return None
    names = _bins(first, now)
    before, after = _folded(first, names), _folded(now, names)
    p, q = _mean(before), _mean(after)
    common = {name: (n * p.get(name, 0.0) + m * q.get(name, 0.0)) / (n + m) for name in p.keys() | q.keys()}
    if len(common) < 2:
        return ShareComparison(p, q, 0.0, 0.0, 1.0, (n, m))
    apart = math.fsum((q.get(name, 0.0) - p.get(name, 0.0)) ** 2 / share for name, share in common.items())
    trace, square = _spread(((before, p), (after, q)), common, n + m - 2)
    if trace <= 0:  # users are identical, so any difference is real
        return ShareComparison(p, q, _psi(p, q, n, m), 0.0, 0.0 if apart > 0 else 1.0, (n, m))
    bias = (1 / n + 1 / m) * trace
    return ShareComparison(p, q, _psi(p, q, n, m), bias, f_tail(apart / bias, trace * trace / square, n + m - 2), (n, m))


def _bins(first: Shares, now: Shares) -> frozenset[str]:
    """Returns the most frequent values of both sides together; rare values share one bin."""
    totals: dict[str, float] = {}
    for user in (*first, *now):
        for name, share in user.items():
            totals[name] = totals.get(name, 0.0) + share
    enough = _IN_A_BIN * (len(first) + len(now)) / min(len(first), len(now))
    common = sorted((-total, name) for name, total in totals.items() if total >= enough)
    names = [name for _, name in common[:BINS]]
    left = math.fsum(total for name, total in totals.items() if name not in set(names))
    if names and ((len(names) == BINS and len(totals) > BINS) or 0 < left < enough):
        names.pop()  # the bin of the other values needs this place or more users
    return frozenset(names)


def _folded(users: Shares, names: frozenset[str]) -> list[dict[str, float]]:
    folded = []
    for user in users:
        binned: dict[str, float] = {}
        for name, share in user.items():
            if not share:
                continue
            bin = name if name in names else OTHER
            binned[bin] = binned.get(bin, 0.0) + share
        folded.append(binned)
    return folded


def _mean(users: Shares) -> dict[str, float]:
    total: dict[str, float] = {}
    for user in users:
        for name, share in user.items():
            total[name] = total.get(name, 0.0) + share / len(users)
    return total


def _spread(sides: Sequence[tuple[Shares, Mapping[str, float]]], common: Mapping[str, float], freedom: int) -> tuple[float, float]:
    """Returns the traces of the pooled within-side covariance over the common shares, and of its square."""
    products: dict[tuple[str, str], float] = {}
    for users, mean in sides:
        for user in users:
            shares = list(user.items())
            for name, share in shares:
                for other, also in shares:
                    if name <= other:
                        products[name, other] = products.get((name, other), 0.0) + share * also
        for name in mean:
            for other in mean:
                if name <= other:
                    products[name, other] = products.get((name, other), 0.0) - len(users) * mean[name] * mean[other]
    trace = square = 0.0
    for (name, other), product in products.items():
        covariance = product / freedom
        if name == other:
            trace += covariance / common[name]
        square += (1 if name == other else 2) * covariance * covariance / (common[name] * common[other])
    return trace, square


def _psi(p: Mapping[str, float], q: Mapping[str, float], n: int, m: int) -> float:
    """Sum over bins of (q - p) ln(q / p); an empty bin counts as half a user."""
    result = 0.0
    for name in sorted(p.keys() | q.keys()):
        before, after = max(p.get(name, 0.0), 0.5 / n), max(q.get(name, 0.0), 0.5 / m)
        result += (after - before) * math.log(after / before)
    return result
