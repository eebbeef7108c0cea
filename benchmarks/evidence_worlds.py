"""Simulated canaries, batch after batch, and what the code that judges says of them: what `rollout_evidence` counts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.domain.gate import Verdict
from shared.domain.sequential_test import ALPHA, StepTerms, VariantSample, surely_above, surely_below, verdict

STEPS = (0.05, 0.25, 0.5)
MIN_USERS = 200
Z = statistics.NormalDist().inv_cdf(1 - ALPHA)
Floats = NDArray[np.float64]
Answers = tuple[tuple[int, float], ...]
"""How many answers users get, with their shares."""
COIN: Answers = ((1, 1.0),)
SEVERAL: Answers = ((1, 0.3), (2, 0.3), (5, 0.25), (10, 0.15))
"""Each user has an own hit rate besides, spread by a Beta distribution."""
_SPREAD = 4.0


@dataclass(frozen=True)
class Case:
    """One cell: what is asked, of which world, and how far it is watched."""

    question: str
    rate: float
    weight: float
    lift: float
    max_harm: float
    horizon: float
    answers: Answers = COIN
    base: float | None = None
    growth: float = 1.05


@dataclass(frozen=True)
class Found:
    """For each run the users (all, and in the candidate) at the verdict that was asked for, infinite without one."""

    users: list[float]
    candidate: list[float]
    naive: int
    """Runs in which the z-test said so at any look."""


@dataclass(frozen=True)
class Runs:
    """Sums after each look, run by run; the stable version's first."""

    users: Sequence[Floats]
    total: Sequence[Floats]
    squares: Sequence[Floats]

    def sample(self, arm: int, run: int, look: int) -> VariantSample:
        return VariantSample(int(self.users[arm][run, look]), float(self.total[arm][run, look]), float(self.squares[arm][run, look]))


def values(rate: float, answers: Answers) -> tuple[Floats, Floats]:
    """The values that users can have, and how likely each is."""
    if answers == COIN:
        return np.array([0.0, 1.0]), np.array([1 - rate, rate])
    a, b = rate * _SPREAD, (1 - rate) * _SPREAD
    propensities: dict[float, float] = {}
    for count, share in answers:
        for hits in range(count + 1):
            log = math.log(math.comb(count, hits)) + _log_beta(hits + a, count - hits + b) - _log_beta(a, b)
            propensities[hits / count] = propensities.get(hits / count, 0.0) + share * math.exp(log)
    return np.array(list(propensities)), np.array(list(propensities.values())) / sum(propensities.values())


def simulate(case: Case, runs: int, rng: np.random.Generator) -> Runs:
    """Batches of users that grow with those seen, so that looks are as frequent at the start as at the end."""
    first = MIN_USERS / min(case.weight, 1 - case.weight)
    count = math.ceil(math.log(case.horizon / first) / math.log(case.growth)) + 1
    batches = np.diff(np.unique(np.round(first * case.growth ** np.arange(count))), prepend=0).astype(np.int64)
    here = rng.binomial(batches, case.weight, (runs, len(batches)))
    arms: list[tuple[Floats, Floats, Floats]] = []
    for users, rate in ((batches - here, case.rate), (here, case.rate * (1 + case.lift))):
        if case.answers == COIN:
            hits = rng.binomial(users, rate).cumsum(axis=1).astype(float)
            arms.append((users.cumsum(axis=1).astype(float), hits, hits))
        else:
            value, chance = values(rate, case.answers)
            counts = rng.multinomial(users, chance).cumsum(axis=1)
            arms.append((users.cumsum(axis=1).astype(float), counts @ value, counts @ (value * value)))
    users_, total, squares = zip(*arms, strict=True)
    return Runs(users_, total, squares)


def hopeful(seen: Runs, ratio: float, sign: int, steps: int, coins: bool) -> NDArray[np.bool_]:
    """Looks at which the evidence could be enough; the others aren't worth a call.

    For coins no evidence exceeds the likelihood ratio, so nothing is lost. For values between 0 and 1 that ratio is scaled by how much
    less than coins they vary, and a wide margin is left.
    """
    (n0, n1), (s0, s1) = seen.users, seen.total
    b, c = ratio * (n1 + s0) + n0 + s1, s0 + s1
    mean = np.clip(2 * c / (b + np.sqrt(np.maximum(b * b - 4 * ratio * (n0 + n1) * c, 0))), 1e-12, min(1.0, 1 / ratio) - 1e-12)
    best = sum(_likelihood(n, s, s / np.maximum(n, 1)) - _likelihood(n, s, m) for n, s, m in ((n0, s0, mean), (n1, s1, ratio * mean)))
    needed = -math.log(ALPHA / steps) - 1e-6
    if not coins:
        pooled = c / (n0 + n1)
        best = best * pooled * (1 - pooled) / np.maximum(sum(seen.squares) / (n0 + n1) - pooled**2, 1e-9)
        needed -= 1.5
    right = sign * (s1 * n0 - ratio * s0 * n1) > 0
    found: NDArray[np.bool_] = (best >= needed) & right & (np.minimum(n0, n1) >= MIN_USERS)
    return found


def naive(case: Case, seen: Runs) -> int:
    """Runs in which a z-test at 1% says so at any look: the fault of looking."""
    worse = case.question == "false rollback"
    ratio = 1.0 if worse else 1 - case.max_harm
    means = [seen.total[arm] / np.maximum(seen.users[arm], 1) for arm in (0, 1)]
    varies = [np.maximum(seen.squares[arm] / np.maximum(seen.users[arm], 1) - means[arm] ** 2, 1e-12) for arm in (0, 1)]
    error = np.sqrt(varies[1] / np.maximum(seen.users[1], 1) + ratio**2 * varies[0] / np.maximum(seen.users[0], 1))
    score = (means[1] - ratio * means[0]) / error
    enough = np.minimum(*seen.users) >= MIN_USERS
    return int((((score < -Z) if worse else (score > Z)) & enough).any(axis=1).sum())


def work(task: tuple[Case, int, int]) -> Found:
    case, runs, seed = task
    users: list[float] = []
    candidate: list[float] = []
    said = 0
    for part in range(0, runs, 100):
        seen = simulate(case, min(100, runs - part), np.random.default_rng([seed, part]))
        ends = _ends(case, seen)
        users += [math.inf if look is None else float(seen.users[0][run, look] + seen.users[1][run, look]) for run, look in enumerate(ends)]
        candidate += [math.inf if look is None else float(seen.users[1][run, look]) for run, look in enumerate(ends)]
        said += naive(case, seen) if "false" in case.question else 0
    return Found(users, candidate, said)


def _ends(case: Case, seen: Runs) -> list[int | None]:
    """For each run the look at which what is asked for is found.

    What is false is looked for to the end of the run, whatever else is found: that is more than a real rollout, which ends.
    """
    coins = case.answers == COIN
    worse = hopeful(seen, 1.0, -1, 1, coins)
    better = hopeful(seen, 1 - case.max_harm, +1, 1, coins)
    looks = {"false rollback": worse, "false promotion": better}.get(case.question, worse | better)
    return [_end(case, seen, run, np.flatnonzero(looks[run]).tolist()) for run in range(len(looks))]


def _end(case: Case, seen: Runs, run: int, looks: Sequence[int]) -> int | None:
    asked = Verdict.FAIL if case.question == "rollback" else Verdict.PASS
    for look in looks:
        stable, candidate = seen.sample(0, run, look), seen.sample(1, run, look)
        if not stable.total:
            continue
        if case.question == "false rollback":
            if surely_below(stable.sums, candidate.sums, 0.0, _terms(case)):
                return look
        elif case.question == "false promotion":
            if surely_above(stable.sums, candidate.sums, -case.max_harm, _terms(case)):
                return look
        else:
            found = verdict(stable, candidate, _terms(case))
            if found is not Verdict.INCONCLUSIVE:
                return look if found is asked else None
    return None


@dataclass(frozen=True)
class Whole:
    """Rollouts through the default steps; each step but the last is held for so many users."""

    rate: float
    lift: float
    max_harm: float
    held: int
    horizon: float


def whole(task: tuple[Whole, int, int]) -> dict[str, int]:
    """How the rollouts end, by the same verdicts in the same order as the state machine's."""
    asked, runs, seed = task
    ends = {"promoted": 0, "rolled back": 0, "undecided": 0}
    for run in range(runs):
        ends[_rollout(asked, np.random.default_rng([seed, run]))] += 1
    return ends


def _rollout(asked: Whole, rng: np.random.Generator) -> str:
    base: float | None = None
    for step, weight in enumerate(STEPS):
        final = step == len(STEPS) - 1
        horizon = asked.horizon if final else max(asked.held, 2 * MIN_USERS / weight)
        case = Case("whole", asked.rate, weight, asked.lift, asked.max_harm, horizon, base=base)
        seen = simulate(case, 1, rng)
        looks = hopeful(seen, 1.0, -1, len(STEPS), True)
        if final:
            looks |= hopeful(seen, 1 - asked.max_harm, +1, 1, True)
        looks[0, -1] = True
        found = Verdict.INCONCLUSIVE
        for look in np.flatnonzero(looks[0]).tolist():
            found = verdict(seen.sample(0, 0, look), seen.sample(1, 0, look), _terms(case, len(STEPS), final))
            if found is Verdict.FAIL:
                return "rolled back"
            if final and found is Verdict.PASS:
                return "promoted"
        if found is not Verdict.PASS:
            return "undecided"
        base = seen.sample(0, 0, -1).mean
    return "undecided"


def _terms(case: Case, steps: int = 1, final: bool = True) -> StepTerms:
    return StepTerms(max_harm=case.max_harm, min_users=MIN_USERS, steps=steps, final=final, base=case.base, weight=case.weight)


def _likelihood(count: Floats, total: Floats, mean: Floats) -> Floats:
    found: Floats = total * np.log(np.maximum(mean, 1e-300)) + (count - total) * np.log1p(-np.minimum(mean, 1 - 1e-16))
    return found


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
