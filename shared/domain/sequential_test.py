"""Sequential test of a canary: is the candidate's hit rate worse, or is harm of `max_harm` or more excluded?

Each user is one observation in [0, 1]: the hit rate of the user's answers, taken once, after the user's attribution window. Both questions
use exact evidence (`shared.domain.evidence`), valid at every look. A candidate as good as the stable version is rolled back with a
probability of 1% at most, over all steps; a candidate that harms by `max_harm` or more is promoted with a probability of 1% at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from shared.domain.evidence import Effects, ValueSums, against_ratio, against_share
from shared.domain.gate import Verdict
from shared.domain.traffic import Traffic

Goal = Literal["hit_rate", "conversion"]
ALPHA = 0.01
SPLIT_ALPHA = 0.001
FEWER: Effects = tuple((1 - harm, 1.0) for harm in (0.02, 0.04, 0.07, 0.13, 0.24, 0.45, 0.8))
"""Losses that the rollback test bets on."""
_TIMES = ((0.55, 0.15), (1.0, 0.5), (2.0, 0.2), (4.0, 0.1), (8.0, 0.05))
"""Multiples of the advantage of an equal candidate over one that harms by `max_harm`, with their shares of the bets."""
_FAR = ((1.2, 0.04), (1.8, 0.03))
_MOST = 20.0
"""Largest lift that is searched."""


@dataclass(frozen=True)
class VariantSample:
    """Values of one variant's users: count, sum and sum of squares; answers and hits for display."""

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

    def plus(self, other: VariantSample) -> VariantSample:
        """Adds two samples without common users."""
        return VariantSample(
            self.users + other.users,
            self.total + other.total,
            self.squares + other.squares,
            self.answers + other.answers,
            self.hits + other.hits,
            self.converted + other.converted,
        )

    @property
    def sums(self) -> ValueSums:
        total = min(max(self.total, 0.0), float(self.users))
        return ValueSums(self.users, total, max(total - self.squares, 0.0))


def of_goal(sample: VariantSample, goal: Goal) -> VariantSample:
    """Selects each user's value: the share of answers with a hit; for conversion, 1 if there is a hit."""
    return sample if goal == "hit_rate" else replace(sample, total=float(sample.converted), squares=float(sample.converted))


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    reason: str
    lift: float | None = None
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True)
class GoalTexts:
    """Phrases of the goal for reasons: its name, a lower value, no value."""

    goal: str
    less: str
    nothing: str


HITS = GoalTexts("hit rate", "earns fewer hits", "has no hits")
CONVERSION = GoalTexts("conversion", "converts fewer users", "has no user with a hit")
WORDS: Mapping[Goal, GoalTexts] = {"hit_rate": HITS, "conversion": CONVERSION}


@dataclass(frozen=True, kw_only=True)
class StepTerms:
    """Parameters of a step's test. `base`, the stable version's hit rate before the step, and `weight`, the candidate's share of users,
    sharpen the test; the test is valid without them and if they are wrong."""

    max_harm: float
    min_users: int = 1
    steps: int = 1
    """Number of steps that share the probability of a false rollback."""
    final: bool = True
    base: float | None = None
    weight: float | None = None
    words: GoalTexts = HITS


@lru_cache(maxsize=256)
def more(max_harm: float) -> Effects:
    """Effects that a promotion bets on, relative to a candidate that harms by `max_harm`; an equal candidate has the largest share."""
    equal = max_harm / (1 - max_harm)
    return (*((1 + equal * times, share) for times, share in _TIMES), *_FAR)


def judge_step(stable: VariantSample, candidate: VariantSample, terms: StepTerms) -> Judgement:
    """An intermediate step passes without evidence of harm; the last step needs evidence that harm is below `max_harm`."""
    words = terms.words
    if not all(math.isfinite(value) for sample in (stable, candidate) for value in (sample.total, sample.squares)):
        return Judgement(Verdict.ERROR, f"{words.goal} is not a number: total {stable.total:g} stable, {candidate.total:g} candidate")
    fewest = min(stable.users, candidate.users)
    if fewest < terms.min_users:
        return Judgement(Verdict.INCONCLUSIVE, f"{fewest} of {terms.min_users} users observed in the smaller variant")
    if stable.total <= 0:
        return Judgement(Verdict.INCONCLUSIVE, f"the stable version {words.nothing} to compare with")
    outcome = verdict(stable, candidate, terms)
    lift = candidate.mean / stable.mean - 1
    lower, upper = bounds(stable, candidate, terms)
    numbers = f"{words.goal} {candidate.mean:.3f} against {stable.mean:.3f} ({lift:+.1%}, confidence interval {lower:+.1%} to {upper:+.1%})"
    if outcome is Verdict.FAIL:
        reason = f"the candidate {words.less}: {numbers}"
    elif not terms.final:
        reason = f"no evidence of harm: {numbers}"
    elif outcome is Verdict.PASS:
        reason = f"harm above {terms.max_harm:.1%} is excluded: {numbers}"
    else:
        reason = f"harm above {terms.max_harm:.1%} is not excluded yet: {numbers}"
    return Judgement(outcome, reason, lift, lower, upper)


def verdict(stable: VariantSample, candidate: VariantSample, terms: StepTerms) -> Verdict:
    """Returns the verdict of `judge_step` without the numbers in its reason, for simulations."""
    if min(stable.users, candidate.users) < terms.min_users or stable.total <= 0:
        return Verdict.INCONCLUSIVE
    stable_sums, candidate_sums = stable.sums, candidate.sums
    if surely_below(stable_sums, candidate_sums, 0.0, terms):
        return Verdict.FAIL
    if not terms.final:
        return Verdict.PASS
    return Verdict.PASS if surely_above(stable_sums, candidate_sums, -terms.max_harm, terms) else Verdict.INCONCLUSIVE


def surely_below(stable: ValueSums, candidate: ValueSums, lift: float, terms: StepTerms) -> bool:
    """Whether the evidence shows that the candidate's true lift is below this lift."""
    needed = -math.log(ALPHA / terms.steps)
    return against_ratio(stable, candidate, 1 + lift, FEWER, terms.weight, terms.base, needed) >= needed


def surely_above(stable: ValueSums, candidate: ValueSums, lift: float, terms: StepTerms) -> bool:
    """Whether the evidence shows that the candidate's true lift is above this lift; sharpest at -max_harm."""
    needed = -math.log(ALPHA)
    return against_ratio(stable, candidate, 1 + lift, more(terms.max_harm), terms.weight, terms.base, needed) >= needed


def bounds(stable: VariantSample, candidate: VariantSample, terms: StepTerms) -> tuple[float, float]:
    """Returns the confidence interval of the lift. It agrees with the tests: an upper bound below 0 is a rollback, a lower bound above
    -max_harm a promotion."""
    stable_sums, candidate_sums = stable.sums, candidate.sums
    estimate = candidate.mean / stable.mean - 1 if stable.total > 0 else _MOST

    def refuted_from_below(lift: float) -> bool:
        return surely_above(stable_sums, candidate_sums, lift, terms)

    def refuted_from_above(lift: float) -> bool:
        return surely_below(stable_sums, candidate_sums, lift, terms)

    lower = -1.0 if candidate_sums.total <= 0 else _edge(refuted_from_below, -1 + 1e-6, min(estimate, _MOST), -terms.max_harm)
    upper = _edge(refuted_from_above, _MOST, max(estimate, -1 + 1e-6), 0.0)
    return lower, upper


def judge_split(stable: Traffic, candidate: Traffic, weight: float) -> Judgement:
    """Tests whether the users were split by the weight. If not, the comparison is not valid."""
    users = stable.users + candidate.users
    if not users:
        return Judgement(Verdict.PASS, "no answers yet")
    share = candidate.users / users
    numbers = f"{candidate.users:,} of {users:,} users saw the candidate: {share:.2%}, expected {weight:.2%}"
    if against_share(users, candidate.users, weight) >= -math.log(SPLIT_ALPHA):
        return Judgement(Verdict.ERROR, f"the split of users is not as expected, so the variants cannot be compared: {numbers}")
    return Judgement(Verdict.PASS, f"the split of users is as expected: {numbers}")


def _edge(refuted: Callable[[float], bool], far: float, near: float, threshold: float) -> float:
    """Bisects the edge of the refuted lifts between a far lift and the estimate; stays on the verdict's side of `threshold`."""
    if not refuted(far):
        return far
    low, high = far, near
    if min(far, near) < threshold < max(far, near):
        low, high = (threshold, near) if refuted(threshold) else (far, threshold)
    for _ in range(22):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
