"""Evidence of sums against a claim about means: exact and valid at every look, for independent values between 0 and 1.

Each function returns the logarithm of an e-value: while the claim is true, it reaches 1 / alpha with probability at most alpha, for any
number of looks (Ville). So evidence of -log(alpha) refutes the claim, and looks cost nothing.

All functions use one inequality. For x in [0, 1], a tilt t and b(t) = exp(-|t|) - 1 + |t|,

    exp(t x + b(t) x (1 - x)) <= 1 + x (exp(t) - 1),

whose mean is 1 + m (exp(t) - 1) for values with mean m. For binary values it is an equality, the likelihood ratio. Other values in [0, 1]
vary less, and b adds evidence for that. A product over users is then a fair bet against the mean m, and so is an average of such bets whose
weights are fixed before the first user.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

Effects = tuple[tuple[float, float], ...]
"""Ratios of the candidate's mean to the claimed mean, all above or all below 1, each with its share of the bets."""

NOTHING = -math.inf
_FREE = 0.1
"""Share of the bets that do not use the weight."""
_CENTRES = (0.03, 0.2, 0.45, 0.75)
_TRUSTED = 0.7
"""Share of the bets on the given base rate; the other bets use the usual centres."""
_CONCENTRATIONS = (2.0, 30.0, 500.0, 10_000.0)
_FACTORS = (1.25, 1.6, 2.2, 3.5, 6.0, 12.0, 30.0)
"""Factors by which bets on one mean raise or lower the odds."""
_EDGE = 1e-9


class ValueSums(NamedTuple):
    """Sums over one variant's values: count, sum, and the sum of x (1 - x), which is 0 for binary values."""

    users: float
    total: float
    between: float = 0.0


class _PairBet(NamedTuple):
    """One bet on both variants together, chosen so that the unknown common mean cancels."""

    prior: float
    candidate: float
    stable: float
    candidate_pays: float
    stable_pays: float
    candidate_grows: float
    stable_grows: float


def against_ratio(
    stable: ValueSums,
    candidate: ValueSums,
    ratio: float,
    effects: Effects,
    weight: float | None = None,
    base: float | None = None,
    enough: float = NOTHING,
) -> float:
    """Evidence against "the candidate's mean is at least `ratio` times the stable's" for effects below 1, "at most" for effects above 1.

    `weight`, the candidate's share of the users, and `base`, the stable's mean, are prior guesses that sharpen the bets; a wrong guess
    costs users, not validity. Without a weight the evidence is weaker. If no bet can reach `enough`, the function stops early and returns a
    value below `enough`.
    """
    if not stable.users or not candidate.users:
        return NOTHING
    sign = 1 if effects[0][0] > 1 else -1
    if sign * (candidate.total / candidate.users - ratio * stable.total / stable.users) <= 0:
        return NOTHING
    allowed = _best(stable, candidate, ratio)
    coins = stable.between + candidate.between <= _EDGE * (stable.users + candidate.users)
    if coins:
        ceiling = _likelihood(*stable[:2]) + _likelihood(*candidate[:2]) - allowed
        if ceiling < enough:
            return ceiling
    free = _free(stable, candidate, base) - allowed
    if weight is None:
        return free
    tilts = _tilts(ratio, effects, min(max(weight, _EDGE), 1 - _EDGE), base)
    most = 1 / max(ratio, 1.0)
    bets = [tilt.prior + _least(tilt, stable, candidate, most) for tilt in tilts]
    return _sum_of_logs([math.log(_FREE) + free, *bets])


def against_most(count: float, total: float, share: float) -> float:
    """Evidence against "the mean is at most `share`", from one variant."""
    if not count or total <= share * count:
        return NOTHING
    share = min(max(share, _EDGE), 1 - _EDGE)
    return _sum_of_logs([_tilted(count, total, share, math.log(factor)) for factor in _FACTORS]) - math.log(len(_FACTORS))


def against_share(count: float, total: float, share: float) -> float:
    """Two-sided evidence against "the mean is `share`"."""
    if not count:
        return NOTHING
    share = min(max(share, _EDGE), 1 - _EDGE)
    bets = [_learned(count, total, share, concentration) for concentration in _CONCENTRATIONS]
    return _sum_of_logs(bets) - math.log(len(bets)) - total * math.log(share) - (count - total) * math.log1p(-share)


def pays(tilt: float) -> float:
    """b(t): the evidence that a value between 0 and 1 adds because it varies less than a binary value."""
    return math.exp(-abs(tilt)) - 1 + abs(tilt)


def _tilted(count: float, total: float, share: float, tilt: float) -> float:
    return tilt * total - count * math.log1p(share * math.expm1(tilt))


def _least(tilt: _PairBet, stable: ValueSums, candidate: ValueSums, most: float) -> float:
    """Returns the bet's evidence at the stable mean that explains the sums best: the minimum, because the evidence is convex."""
    a, b = tilt.candidate_grows, tilt.stable_grows
    slope = candidate.users * a + stable.users * b
    curve = -a * b * (candidate.users + stable.users)
    mean = min(max(slope / curve, 0.0), most) if curve else (most if slope > 0 else 0.0)
    won = tilt.candidate * candidate.total + tilt.stable * stable.total
    won += tilt.candidate_pays * candidate.between + tilt.stable_pays * stable.between
    return won - candidate.users * math.log1p(a * mean) - stable.users * math.log1p(b * mean)


@lru_cache(maxsize=64)
def _tilts(ratio: float, effects: Effects, weight: float, base: float | None) -> tuple[_PairBet, ...]:
    centres = [(centre, (1 - (_TRUSTED if base else 0)) / len(_CENTRES)) for centre in _CENTRES]
    if base:
        centres.append((base, _TRUSTED))
    total = sum(share for _, share in effects)
    return tuple(
        _tilt(ratio, effect, weight, centre, math.log((1 - _FREE) * share * part / total))
        for centre, share in centres
        for effect, part in effects
    )


def _tilt(ratio: float, effect: float, weight: float, centre: float, prior: float) -> _PairBet:
    """Returns the best bet on `effect` whose value does not change if the stable mean moves slightly away from `centre`."""
    mean = min(max(centre, 1e-4), 0.95, 0.95 / ratio)
    claimed = ratio * mean
    candidate_weight, stable_weight = weight / (1 - claimed), (1 - weight) / (1 - mean)
    stable = (candidate_weight * claimed + stable_weight * mean) / (candidate_weight * ratio * effect + stable_weight)
    expected = min(ratio * effect * stable, 1 - (1 - claimed) / 8)
    stable = min(max(mean - (expected - claimed) * candidate_weight / stable_weight, mean / 8), 1 - (1 - mean) / 8)
    candidate_tilt, stable_tilt = _logit(expected) - _logit(claimed), _logit(stable) - _logit(mean)
    return _PairBet(
        prior,
        candidate_tilt,
        stable_tilt,
        pays(candidate_tilt),
        pays(stable_tilt),
        ratio * math.expm1(candidate_tilt),
        math.expm1(stable_tilt),
    )


def _free(stable: ValueSums, candidate: ValueSums, base: float | None) -> float:
    """Learns both means separately: a mixture of Beta distributions around the base."""
    centre = 0.5 if base is None else min(max(base, 1e-3), 1 - 1e-3)
    bets = [_learned(*stable[:2], centre, c) + _learned(*candidate[:2], centre, c) for c in _CONCENTRATIONS]
    return _sum_of_logs(bets) - math.log(len(bets))


def _best(stable: ValueSums, candidate: ValueSums, ratio: float) -> float:
    """Returns the greatest log-likelihood with the candidate's mean at `ratio` times the stable's (Farrington and Manning)."""
    n0, n1, s0, s1 = stable.users, candidate.users, stable.total, candidate.total
    a, b, c = ratio * (n0 + n1), ratio * (n1 + s0) + n0 + s1, s0 + s1
    mean = 2 * c / (b + math.sqrt(max(b * b - 4 * a * c, 0.0)))
    mean = min(max(mean, 0.0), 1 / max(ratio, 1.0))
    return _likelihood(n0, s0, mean) + _likelihood(n1, s1, min(ratio * mean, 1.0))


def _likelihood(count: float, total: float, mean: float | None = None) -> float:
    """Returns the log-likelihood; without a mean, the maximum."""
    if mean is None:
        mean = total / count
    hit = total * math.log(mean) if total > 0 and mean > 0 else 0.0
    missed = (count - total) * math.log1p(-mean) if total < count and mean < 1 else 0.0
    return hit + missed


def _learned(count: float, total: float, centre: float, concentration: float) -> float:
    """Returns the log-likelihood averaged over a Beta distribution."""
    hits, misses = concentration * centre, concentration * (1 - centre)
    return _log_beta(hits + total, misses + count - total) - _log_beta(hits, misses)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _logit(mean: float) -> float:
    return math.log(mean) - math.log1p(-mean)


def _sum_of_logs(logs: Sequence[float]) -> float:
    most = max(logs)
    return most if most == NOTHING else most + math.log(math.fsum(math.exp(log - most) for log in logs))
