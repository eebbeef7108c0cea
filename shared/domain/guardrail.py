"""Guardrails: limits of a candidate's errors, latency, fallback and empty answers, coverage, score shift and conversion.

A guardrail fails only on evidence. For counted shares (errors, latency) the evidence is exact and valid at every look: a latency five times
as high is detected after a few answers, and one slow answer is not a failure. A guardrail passes if nothing speaks against the candidate.
Otherwise, and if the stable version has nothing to compare with, the guardrail is inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shared.domain import traffic
from shared.domain.evidence import ValueSums, against_most, against_ratio
from shared.domain.gate import Verdict
from shared.domain.sequential_test import FEWER, Judgement, VariantSample
from shared.domain.traffic import Buckets, ShadowCounts, Traffic, UserShares

METRICS = ("errors", "latency_p50", "latency_p99", "fallback", "empty", "coverage", "score_shift", "conversion")
ALPHA = 0.001
"""Probability that one guardrail fails at any look of a step although the candidate keeps it."""
MIRRORED = frozenset({"errors", "latency_p50", "latency_p99"})
"""Guardrails that apply to a shadow."""
_NEEDED = -math.log(ALPHA)
_SHARES = ("fallback", "empty")
_FEW = 3
_QUANTILES = {"latency_p50": 0.5, "latency_p99": 0.99}
LEAST_DIFFERENCE = 0.01
"""Smallest difference of the shares of fallback and empty answers that breaks a guardrail: a multiple of a tiny share is still tiny."""
_WORSE = tuple((factor, 1.0) for factor in (1.25, 1.6, 2.5, 5.0, 15.0, 50.0))


@dataclass(frozen=True)
class Guardrail:
    """Limit of one metric. `bound` is a share of answers or a multiple of the stable version's share (errors, fallback, empty), seconds or
    a multiple of the stable version's latency (latency), the least multiple (coverage), standard deviations (score_shift), or the least
    relative change (conversion)."""

    metric: str
    bound: float
    relative: bool = False

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"guardrail {self.metric!r}: expected one of {', '.join(METRICS)}")

    def __str__(self) -> str:
        if self.metric == "coverage":
            return f"coverage > {self.bound:g}x"
        if self.metric == "conversion":
            return f"conversion > {self.bound:+.1%}"
        if self.metric == "score_shift":
            return f"score_shift < {self.bound:g}"
        if self.relative:
            return f"{self.metric} < {self.bound:g}x"
        return f"{self.metric} < {self.bound:.2%}" if self.metric in ("errors", *_SHARES) else f"{self.metric} < {_spoken(self.bound)}"


def judge_guardrail(
    rail: Guardrail, stable: Traffic, candidate: Traffic, samples: tuple[VariantSample, VariantSample] | None, min_answers: int
) -> Judgement:
    """`samples`: users of the stable version and of the candidate, for conversion."""
    if rail.metric == "conversion":
        return _conversion(rail, samples, min_answers)
    if rail.metric == "errors":
        judgement = _errors(rail, stable, candidate)
    elif rail.metric in _SHARES:
        judgement = _share(rail, *(getattr(variant, rail.metric) for variant in (stable, candidate)))
    elif rail.metric in _QUANTILES:
        judgement = _latency(rail, stable.latency, candidate.latency)
        return _enough(judgement, sum(stable.latency.values()), sum(candidate.latency.values()), min_answers, "timed answers")
    elif rail.metric == "coverage":
        judgement = _coverage(rail, stable, candidate)
    else:
        judgement = _score_shift(rail, stable, candidate)
    return _enough(judgement, stable.answers, candidate.answers, min_answers)


def judge_mirror(rails: Sequence[Guardrail], mirror: ShadowCounts, min_answers: int) -> Judgement:
    """Returns the worst verdict of a shadow's guardrails and a summary. Guardrails that need users are skipped."""
    stable = Traffic(answers=mirror.compared, latency=mirror.stable)
    candidate = Traffic(answers=mirror.compared, errors=mirror.errors, latency=mirror.candidate)
    applicable = [rail for rail in rails if rail.metric in MIRRORED]
    judgements = [(rail, judge_guardrail(rail, stable, candidate, None, min_answers)) for rail in applicable]
    for verdict in (Verdict.FAIL, Verdict.ERROR, Verdict.INCONCLUSIVE):
        reasons = [f"{rail.metric}: {judgement.reason}" for rail, judgement in judgements if judgement.verdict is verdict]
        if reasons:
            return Judgement(verdict, "; ".join(reasons))
    if mirror.compared < min_answers:
        return Judgement(Verdict.INCONCLUSIVE, f"{mirror.compared:,} of {min_answers:,} requests compared")
    summary = (
        f"{mirror.compared:,} requests compared, {mirror.overlap / mirror.compared if mirror.compared else 0:.0%} of the items are the same"
    )
    dropped = f", {mirror.dropped:,} not mirrored" if mirror.dropped else ""
    return Judgement(Verdict.PASS, "; ".join([summary + dropped, *(judgement.reason for _, judgement in judgements)]))


def _enough(judgement: Judgement, stable: int, candidate: int, min_answers: int, unit: str = "answers") -> Judgement:
    """Requires a minimum of answers for a pass; a failure needs no minimum."""
    if judgement.verdict is Verdict.PASS and min(stable, candidate) < min_answers:
        few = f"{min(stable, candidate):,} of {min_answers:,} {unit} in the smaller variant"
        return replace(judgement, verdict=Verdict.INCONCLUSIVE, reason=f"{few}; so far {judgement.reason}")
    return judgement


def _errors(rail: Guardrail, stable: Traffic, candidate: Traffic) -> Judgement:
    if not stable.answers or not candidate.answers:
        return _nothing("answers", stable.answers)
    theirs, ours = stable.errors / stable.answers, candidate.errors / candidate.answers
    numbers = f"{ours:.2%} of {candidate.answers:,} answers failed, {theirs:.2%} of the stable version's {stable.answers:,}"
    if rail.relative:
        proof = against_ratio(ValueSums(stable.answers, stable.errors), ValueSums(candidate.answers, candidate.errors), rail.bound, _WORSE)
        return _judged(rail, proof, ours <= rail.bound * theirs, numbers)
    if against_most(stable.answers, stable.errors, rail.bound) >= _NEEDED:
        return Judgement(Verdict.INCONCLUSIVE, f"the stable version itself is above {rail.bound:.2%}: {numbers}")
    return _judged(rail, against_most(candidate.answers, candidate.errors, rail.bound), ours <= rail.bound, numbers)


def _share(rail: Guardrail, stable: UserShares, candidate: UserShares) -> Judgement:
    """Compares the shares per user, because the answers of one user are not independent."""
    if not stable.users or not candidate.users:
        return _nothing("answers", stable.users)
    theirs, ours = stable.mean, candidate.mean
    kind = "empty" if rail.metric == "empty" else "fallbacks"
    numbers = (
        f"{ours:.2%} of the answers are {kind} (mean of {candidate.users:,} users), "
        f"{theirs:.2%} of the stable version's ({stable.users:,} users)"
    )
    stable_sums, candidate_sums = (
        ValueSums(shares.users, shares.total, max(shares.total - shares.squares, 0.0)) for shares in (stable, candidate)
    )
    if rail.relative:
        allowed = max(rail.bound * theirs, theirs + LEAST_DIFFERENCE)
        passes = (ours - allowed) * candidate.users <= _FEW  # a few users by chance do not prevent a pass
        multiple = against_ratio(stable_sums, candidate_sums, rail.bound, _WORSE)
        difference = against_most(
            candidate_sums.users, candidate_sums.total, _at_most(stable_sums.users, stable_sums.total, 0.0) + LEAST_DIFFERENCE
        )
        return _judged(rail, min(multiple, difference), passes, numbers)
    if against_most(stable_sums.users, stable_sums.total, rail.bound) >= _NEEDED:
        return Judgement(Verdict.INCONCLUSIVE, f"the stable version itself is above {rail.bound:.2%}: {numbers}")
    return _judged(rail, against_most(candidate_sums.users, candidate_sums.total, rail.bound), ours <= rail.bound, numbers)


def _latency(rail: Guardrail, stable: Buckets, candidate: Buckets) -> Judgement:
    """Tests whether at most 1 - q of the candidate's answers are slower than the limit.

    If the limit is a multiple of the stable version's quantile, which few answers estimate badly, a failure also needs a share above the
    confidence bound of that version's own share beyond its quantile. A few slow answers do not prevent a pass.
    """
    q = _QUANTILES[rail.metric]
    stable_quantile, candidate_quantile = traffic.quantile(stable, q), traffic.quantile(candidate, q)
    if stable_quantile is None or candidate_quantile is None:
        return _nothing("timed answers", sum(stable.values()))
    limit = rail.bound * stable_quantile if rail.relative else rail.bound
    answers, slow = sum(candidate.values()), traffic.slower(candidate, limit)
    numbers = (
        f"{rail.metric[-3:]} is {_spoken(candidate_quantile)}, the stable version's {_spoken(stable_quantile)}; "
        f"{slow:,} of {answers:,} answers took more than {_spoken(limit)}"
    )
    allowed = 1 - q
    if rail.relative:
        allowed = _at_most(sum(stable.values()), traffic.slower(stable, stable_quantile), allowed)
    elif against_most(sum(stable.values()), traffic.slower(stable, limit), allowed) >= _NEEDED:
        return Judgement(Verdict.INCONCLUSIVE, f"the stable version itself is above {_spoken(limit)}: {numbers}")
    return _judged(rail, against_most(answers, slow, allowed), slow <= max((1 - q) * answers, _FEW), numbers)


def _coverage(rail: Guardrail, stable: Traffic, candidate: Traffic) -> Judgement:
    """The number of shown items grows at most in proportion to the answers; this bounds the number for equally many answers."""
    if not stable.looked or not candidate.looked or not stable.shown:
        return _nothing("items shown", stable.shown)
    scale = candidate.looked / stable.looked
    least, most = stable.shown * min(1.0, scale), stable.shown * max(1.0, scale)
    numbers = (
        f"{candidate.shown:,} different items in {candidate.looked:,} answers, "
        f"{stable.shown:,} in {stable.looked:,} of the stable version's ({candidate.shown / stable.shown:.2f}x)"
    )
    if candidate.shown < rail.bound * least:
        return Judgement(Verdict.FAIL, f"{rail} is broken: {numbers}")
    if candidate.shown >= rail.bound * most:
        return Judgement(Verdict.PASS, f"{rail} holds: {numbers}")
    return Judgement(Verdict.INCONCLUSIVE, f"{rail} is undecided: {numbers}")


def _score_shift(rail: Guardrail, stable: Traffic, candidate: Traffic) -> Judgement:
    """Scores have no bounds, so this test is asymptotic: a normal mixture around the difference of the means."""
    if not stable.scored or not candidate.scored:
        return _nothing("scores", stable.scored)
    (stable_mean, stable_variance), (candidate_mean, candidate_variance) = _moments(stable), _moments(candidate)
    spread = math.sqrt(stable_variance)
    if spread <= 0:
        return Judgement(Verdict.INCONCLUSIVE, "the stable version's scores do not vary, so a shift cannot be measured")
    shift = abs(candidate_mean - stable_mean) / spread
    fewest = min(stable.scored, candidate.scored)
    error = math.sqrt(stable_variance / stable.scored + candidate_variance / candidate.scored) / spread
    radius = error * math.sqrt(2 * (_NEEDED + math.log(fewest + 1) / 2 + math.log(2)))
    surely = max(shift - radius, 0.0)
    numbers = (
        f"the mean score moved from {stable_mean:.4g} to {candidate_mean:.4g}, "
        f"{shift:.2f} standard deviations (at least {surely:.2f} with {1 - ALPHA:.1%} confidence)"
    )
    if shift - radius > rail.bound:
        return Judgement(Verdict.FAIL, f"{rail} is broken: {numbers}")
    if shift <= rail.bound:
        return Judgement(Verdict.PASS, f"{rail} holds: {numbers}")
    return Judgement(Verdict.INCONCLUSIVE, f"{rail} is undecided: {numbers}")


def _conversion(rail: Guardrail, samples: tuple[VariantSample, VariantSample] | None, min_answers: int) -> Judgement:
    if samples is None:
        return Judgement(Verdict.INCONCLUSIVE, "users' events cannot be counted")
    stable, candidate = samples
    if not stable.users or not candidate.users or not stable.converted:
        return _nothing("users who converted", stable.converted)
    theirs, ours = stable.converted / stable.users, candidate.converted / candidate.users
    numbers = (
        f"{ours:.2%} of {candidate.users:,} users converted, {theirs:.2%} of the stable version's {stable.users:,} "
        f"({ours / theirs - 1:+.1%})"
    )
    proof = against_ratio(ValueSums(stable.users, stable.converted), ValueSums(candidate.users, candidate.converted), 1 + rail.bound, FEWER)
    judgement = _judged(rail, proof, ours >= (1 + rail.bound) * theirs, numbers)
    return _enough(judgement, stable.users, candidate.users, min_answers)


def _judged(rail: Guardrail, proof: float, passes: bool, numbers: str) -> Judgement:
    if proof >= _NEEDED:
        return Judgement(Verdict.FAIL, f"{rail} is broken: {numbers}")
    if passes:
        return Judgement(Verdict.PASS, f"{rail} holds: {numbers}")
    return Judgement(Verdict.INCONCLUSIVE, f"{rail} is undecided: {numbers}")


def _nothing(unit: str, stable: int) -> Judgement:
    whose = "the candidate" if stable else "the stable version"
    return Judgement(Verdict.INCONCLUSIVE, f"{whose} has no {unit} to compare with" if not stable else f"{whose} has no {unit} yet")


def _at_most(count: float, total: float, least: float) -> float:
    """Returns an upper confidence bound of the share: the smallest share that the evidence refutes from above."""
    low, high = max(least, total / count), 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if against_most(count, count - total, 1 - middle) >= _NEEDED else (middle, high)
    return high


def _moments(variant: Traffic) -> tuple[float, float]:
    mean = variant.score_total / variant.scored
    return mean, max(variant.score_squares / variant.scored - mean * mean, 0.0)


def _spoken(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
