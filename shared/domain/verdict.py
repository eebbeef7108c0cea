"""The canary's test: is the candidate's hit rate worse, or surely not worse by more than `max_harm`?

Each user is one observation in [0, 1]: the hit rate of the user's answers, taken once, when the user's window has
closed. The bounds are an asymptotic confidence sequence (a normal mixture: Robbins; Waudby-Smith and others, 2021), so they
hold at every look at once: looking often costs nothing. A step's error is a share of 1%, split over the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from shared.domain.gate import Verdict

ALPHA = 0.01
_TUNED_FOR = 500.0  # observations at which the sequence is tightest
_SEARCH = (-1.0, 20.0)


@dataclass(frozen=True)
class Sample:
    """Users of one variant: how many, the sum and the sum of squares of their values; answers and hits for people."""

    users: int = 0
    total: float = 0.0
    squares: float = 0.0
    answers: int = 0
    hits: int = 0
    converted: int = 0
    """Users with at least one hit."""

    @property
    def mean(self) -> float:
        return self.total / self.users if self.users else 0.0

    @property
    def variance(self) -> float:
        """Shrunk towards that of one more hit and one more miss, so that a few equal values are not certainty."""
        if not self.users:
            return 0.25
        n = self.users + 2
        mean = (self.total + 1) / n
        return max((self.squares + 1) / n - mean * mean, 1e-9)


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    reason: str
    lift: float | None = None
    lower: float | None = None
    upper: float | None = None


def judge_step(stable: Sample, candidate: Sample, *, max_harm: float, min_users: int, steps: int, final: bool) -> Judgement:
    """An intermediate step passes without evidence of harm; the last one needs proof that harm is below `max_harm`."""
    fewest = min(stable.users, candidate.users)
    if fewest < min_users:
        return Judgement(Verdict.INCONCLUSIVE, f"{fewest} of {min_users} users observed in the smaller variant")
    if stable.total <= 0:
        return Judgement(Verdict.INCONCLUSIVE, "the stable version has no hits to compare with")
    lift = candidate.mean / stable.mean - 1
    lower, upper = bounds(stable, candidate, ALPHA / steps)
    numbers = f"hit rate {candidate.mean:.3f} against {stable.mean:.3f} ({lift:+.1%}, surely between {lower:+.1%} and {upper:+.1%})"
    if upper < 0:
        return Judgement(Verdict.FAIL, f"the candidate earns fewer hits: {numbers}", lift, lower, upper)
    if not final:
        return Judgement(Verdict.PASS, f"no evidence of harm: {numbers}", lift, lower, upper)
    if lower > -max_harm:
        return Judgement(Verdict.PASS, f"harm above {max_harm:.1%} is excluded: {numbers}", lift, lower, upper)
    return Judgement(Verdict.INCONCLUSIVE, f"harm above {max_harm:.1%} is not excluded yet: {numbers}", lift, lower, upper)


def bounds(stable: Sample, candidate: Sample, alpha: float) -> tuple[float, float]:
    """Relative lifts r that the sequence doesn't exclude: those where candidate - (1 + r) stable may be zero."""

    def margin(r: float, sign: int) -> float:
        contrast = candidate.mean - (1 + r) * stable.mean
        return contrast + sign * radius(stable, candidate, r, alpha)

    return _root(lambda r: margin(r, -1)), _root(lambda r: margin(r, +1))


def radius(stable: Sample, candidate: Sample, r: float, alpha: float) -> float:
    """Half the width of the sequence for the mean of candidate - (1 + r) stable, after all users so far."""
    n = stable.users + candidate.users
    per_user = n * (candidate.variance / candidate.users + (1 + r) ** 2 * stable.variance / stable.users)
    rho2 = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / _TUNED_FOR
    spread = n * rho2 + 1
    return math.sqrt(per_user) * math.sqrt(2 * spread / (n * n * rho2) * math.log(math.sqrt(spread) / (alpha / 2)))


def _root(falling: Callable[[float], float]) -> float:
    """Where a falling function of r crosses zero, within the searched lifts."""
    low, high = _SEARCH
    if falling(low) <= 0:
        return low
    if falling(high) >= 0:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2
