"""What the canary's test promises and what it costs, by simulation through the code that judges: false rollbacks, false promotions,
users needed; beside it a z-test for a fixed number of users that is looked at equally often.

    python -m benchmarks.rollout_evidence [--runs 1000] [--quick]
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlog1py, xlogy
from scipy.stats import betabinom

from benchmarks.harness import Row, benchmark
from benchmarks.trials import quantile, workers
from shared.domain.gate import Verdict
from shared.domain.sequential_test import ALPHA, StepTerms, VariantSample, surely_above, surely_below, verdict

RATES = (0.02, 0.1, 0.3)
WEIGHTS = (0.01, 0.05, 0.1, 0.25, 0.5)
STEPS = (0.05, 0.25, 0.5)
MIN_USERS = 200
BATCH = 100
"""Runs that are simulated together."""
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
    """A simulated canary, the verdict that is counted, and how many users are simulated at most."""

    question: str
    rate: float
    weight: float
    lift: float
    max_harm: float
    horizon: float
    answers: Answers = COIN
    base: float | None = None
    growth: float = 1.05

    @property
    def name(self) -> str:
        several = ", several answers a user" if self.answers != COIN else ""
        base = "" if self.base is None else f", told a base rate of {self.base:.0%}"
        rates = f"base rate {self.rate:.0%}, weight {self.weight:.0%}, lift {self.lift:+.0%}, max_harm {self.max_harm:.0%}"
        return f"{rates}{several}{base}"

    def terms(self, steps: int = 1, final: bool = True) -> StepTerms:
        return StepTerms(max_harm=self.max_harm, min_users=MIN_USERS, steps=steps, final=final, base=self.base, weight=self.weight)


@dataclass(frozen=True)
class Counts:
    """For each run the users (all, and in the candidate) at the verdict in question, infinite without it."""

    users: list[float]
    candidate: list[float]
    naive: int
    """Runs in which the z-test comes to that verdict at any look."""


@dataclass(frozen=True)
class Sums:
    """Sums after each look, run by run; the stable version's first."""

    users: Sequence[Floats]
    total: Sequence[Floats]
    squares: Sequence[Floats]

    def samples(self, run: int, look: int) -> tuple[VariantSample, VariantSample]:
        stable, candidate = (
            VariantSample(int(users[run, look]), float(total[run, look]), float(squares[run, look]))
            for users, total, squares in zip(self.users, self.total, self.squares, strict=True)
        )
        return stable, candidate


def false_cases(horizon: float) -> Iterator[Case]:
    grid = list(itertools.product(RATES, WEIGHTS))
    for answers in (COIN, SEVERAL):
        yield from (Case("false rollback", rate, weight, 0.0, 0.02, horizon, answers) for rate, weight in grid)
        for harm in (0.02, 0.05):
            yield from (Case("false promotion", rate, weight, -harm, harm, horizon, answers) for rate, weight in grid)
    for rate, weight, factor in itertools.product(RATES, (0.05, 0.5), (1, 2)):
        yield Case("false rollback", rate, weight, 0.0, 0.02, horizon, base=factor * rate)


def cost_cases(horizon: float) -> Iterator[Case]:
    for rate, weight in itertools.product(RATES, WEIGHTS):
        for lift in (-0.05, -0.1, -0.2):
            yield Case("rollback", rate, weight, lift, 0.02, horizon, growth=1.08)
        for harm, lift in itertools.product((0.02, 0.05), (0.0, 0.05)):
            yield Case("promote", rate, weight, lift, harm, horizon, growth=1.08)


def values(rate: float, answers: Answers) -> tuple[Floats, Floats]:
    """The values that users can have, and how likely each is."""
    if answers == COIN:
        return np.array([0.0, 1.0]), np.array([1 - rate, rate])
    chances: Counter[float] = Counter()
    for count, share in answers:
        hits = np.arange(count + 1)
        likely = share * betabinom.pmf(hits, count, rate * _SPREAD, (1 - rate) * _SPREAD)
        chances.update(dict(zip((hits / count).tolist(), likely.tolist(), strict=True)))
    return np.array(list(chances)), np.array(list(chances.values())) / chances.total()


def simulate(case: Case, runs: int, rng: np.random.Generator) -> Sums:
    """Batches of users that grow with those before, so that looks are as frequent at the start as at the end."""
    first = MIN_USERS / min(case.weight, 1 - case.weight)
    count = math.ceil(math.log(case.horizon / first) / math.log(case.growth)) + 1
    batches = np.diff(np.unique(np.round(first * case.growth ** np.arange(count))), prepend=0).astype(np.int64)
    candidate = rng.binomial(batches, case.weight, (runs, len(batches)))
    arms: list[tuple[Floats, Floats, Floats]] = []
    for users, rate in ((batches - candidate, case.rate), (candidate, case.rate * (1 + case.lift))):
        if case.answers == COIN:
            total = squares = rng.binomial(users, rate).cumsum(axis=1).astype(float)
        else:
            value, chance = values(rate, case.answers)
            counts = rng.multinomial(users, chance).cumsum(axis=1)
            total, squares = counts @ value, counts @ (value * value)
        arms.append((users.cumsum(axis=1).astype(float), total, squares))
    return Sums(*zip(*arms, strict=True))


def hopeful(sums: Sums, ratio: float, sign: int, steps: int, coins: bool) -> NDArray[np.bool_]:
    """Looks at which the evidence could be enough; the others aren't worth a call.

    For coins no evidence exceeds the likelihood ratio, so nothing is lost. For values between 0 and 1 that ratio is scaled by how much
    less than coins they vary, and a wide margin is left.
    """
    (n0, n1), (s0, s1) = sums.users, sums.total
    b, c = ratio * (n1 + s0) + n0 + s1, s0 + s1
    mean = np.clip(2 * c / (b + np.sqrt(np.maximum(b * b - 4 * ratio * (n0 + n1) * c, 0))), 1e-12, min(1.0, 1 / ratio) - 1e-12)
    best = sum(_likelihood(n, s, s / np.maximum(n, 1)) - _likelihood(n, s, m) for n, s, m in ((n0, s0, mean), (n1, s1, ratio * mean)))
    needed = -math.log(ALPHA / steps) - 1e-6
    if not coins:
        pooled = c / (n0 + n1)
        best = best * pooled * (1 - pooled) / np.maximum(sum(sums.squares) / (n0 + n1) - pooled**2, 1e-9)
        needed -= 1.5
    right = sign * (s1 * n0 - ratio * s0 * n1) > 0
    return np.asarray((best >= needed) & right & (np.minimum(n0, n1) >= MIN_USERS))


def _likelihood(count: Floats, total: Floats, mean: Floats) -> Floats:
    return np.asarray(xlogy(total, mean) + xlog1py(count - total, -mean))


def naive(case: Case, sums: Sums) -> int:
    """Runs in which a z-test at 1% comes to the verdict at any look: the fault of looking."""
    worse = case.question == "false rollback"
    ratio = 1.0 if worse else 1 - case.max_harm
    users = [np.maximum(count, 1) for count in sums.users]
    means = [sums.total[arm] / users[arm] for arm in (0, 1)]
    varies = [np.maximum(sums.squares[arm] / users[arm] - means[arm] ** 2, 1e-12) for arm in (0, 1)]
    score = (means[1] - ratio * means[0]) / np.sqrt(varies[1] / users[1] + ratio**2 * varies[0] / users[0])
    enough = np.minimum(*sums.users) >= MIN_USERS
    return int((((score < -Z) if worse else (score > Z)) & enough).any(axis=1).sum())


def measure(case: Case, runs: int, seed: int) -> Counts:
    users: list[float] = []
    candidate: list[float] = []
    count = 0
    for part in range(0, runs, BATCH):
        sums = simulate(case, min(BATCH, runs - part), np.random.default_rng([seed, part]))
        for run, look in enumerate(_ends(case, sums)):
            stable_users, candidate_users = (math.inf if look is None else float(arm[run, look]) for arm in sums.users)
            users.append(stable_users + candidate_users)
            candidate.append(candidate_users)
        count += naive(case, sums) if "false" in case.question else 0
    return Counts(users, candidate, count)


def _ends(case: Case, sums: Sums) -> list[int | None]:
    """For each run the look of the verdict in question. A false one is looked for to the end of the run: longer than a rollout lasts."""
    coins = case.answers == COIN
    worse = hopeful(sums, 1.0, -1, 1, coins)
    better = hopeful(sums, 1 - case.max_harm, +1, 1, coins)
    looks = {"false rollback": worse, "false promotion": better}.get(case.question, worse | better)
    return [_end(case, sums, run, np.flatnonzero(looks[run]).tolist()) for run in range(len(looks))]


def _end(case: Case, sums: Sums, run: int, looks: Sequence[int]) -> int | None:
    expected = Verdict.FAIL if case.question == "rollback" else Verdict.PASS
    for look in looks:
        stable, candidate = sums.samples(run, look)
        if not stable.total:
            continue
        if case.question == "false rollback":
            if surely_below(stable.sums, candidate.sums, 0.0, case.terms()):
                return look
        elif case.question == "false promotion":
            if surely_above(stable.sums, candidate.sums, -case.max_harm, case.terms()):
                return look
        elif (result := verdict(stable, candidate, case.terms())) is not Verdict.INCONCLUSIVE:
            return look if result is expected else None
    return None


def whole(case: Case, users: int, runs: int, seed: int) -> Counter[str]:
    """How rollouts end by the same verdicts in the same order as the state machine's. Each step but the last lasts for so many users."""
    ends = Counter({"promoted": 0, "rolled back": 0, "undecided": 0})
    ends.update(_rollout(case, users, np.random.default_rng([seed, run])) for run in range(runs))
    return ends


def _rollout(case: Case, users: int, rng: np.random.Generator) -> str:
    for step, weight in enumerate(STEPS):
        final = step == len(STEPS) - 1
        case = replace(case, weight=weight)
        sums = simulate(case if final else replace(case, horizon=max(users, 2 * MIN_USERS / weight)), 1, rng)
        looks = hopeful(sums, 1.0, -1, len(STEPS), True)
        if final:
            looks |= hopeful(sums, 1 - case.max_harm, +1, 1, True)
        looks[0, -1] = True
        result = Verdict.INCONCLUSIVE
        for look in np.flatnonzero(looks[0]).tolist():
            result = verdict(*sums.samples(0, look), case.terms(len(STEPS), final))
            if result is Verdict.FAIL:
                return "rolled back"
            if final and result is Verdict.PASS:
                return "promoted"
        if result is not Verdict.PASS:
            return "undecided"
        case = replace(case, base=sums.samples(0, -1)[0].mean)
    return "undecided"


def seconds_of_a_verdict(answers: Answers, rng: np.random.Generator) -> list[float]:
    """Processor time, averaged over the looks of one canary each: undecided ones are most of them."""
    case, seconds = Case("rollback", 0.1, 0.1, -0.05, 0.02, 1e6, answers, base=0.1), []
    for _ in range(20):
        sums = simulate(case, 1, rng)
        samples = [sums.samples(0, look) for look in range(sums.users[0].shape[1])]
        start = time.process_time()
        for stable, candidate in samples:
            verdict(stable, candidate, case.terms())
        seconds.append((time.process_time() - start) / len(samples))
    return seconds


def _cost_rows(case: Case, counts: Counts) -> Iterator[Row]:
    for population, users, horizon in (
        ("users", counts.users, case.horizon),
        ("users in the candidate", counts.candidate, case.horizon * case.weight),
    ):
        for share, label in ((0.5, "median"), (0.9, "90%")):
            value = quantile(users, share)
            reached = math.isfinite(value)
            metric = f"{population} to {case.question}, {label}" + ("" if reached else ", more than the watched")
            yield Row(case.name, "eyas", metric, "users", [value if reached else horizon])


@benchmark("rollout-evidence")
def rollout_evidence(runs: int = 1000, quick: Annotated[bool, "short horizons: shows that it runs"] = False) -> Iterator[Row]:
    false = list(false_cases(1e5 if quick else 2e6))
    cost = list(cost_cases(1e6 if quick else 3e8))
    rollouts = [
        (Case("whole", rate, 0.0, lift, 0.02, 1e5 if quick else 3e7), users)
        for rate in RATES
        for lift, users in ((0.0, 0), (0.0, 20_000 if quick else 300_000), (-0.02, 0))
    ]
    with workers() as pool:
        for case, counts in zip(false, pool.map(measure, false, itertools.repeat(runs), itertools.count()), strict=True):
            metric = f"{case.question} in {runs:,} runs"
            yield Row(case.name, "eyas", metric, "runs", [sum(map(math.isfinite, counts.users))])
            yield Row(case.name, "z-test", metric, "runs", [counts.naive])
        for case, counts in zip(cost, pool.map(measure, cost, itertools.repeat(max(runs // 4, 1)), itertools.count(1000)), strict=True):
            yield from _cost_rows(case, counts)
        ends = pool.map(whole, *zip(*rollouts, strict=True), itertools.repeat(runs), itertools.count(5000))
        for (case, users), end in zip(rollouts, ends, strict=True):
            duration = f", steps held for {users:,} users" if users else ""
            name = f"whole rollout, base rate {case.rate:.0%}, lift {case.lift:+.0%}, max_harm {case.max_harm:.0%}{duration}"
            for result, count in end.items():
                yield Row(name, "eyas", f"{result} of {runs:,} runs", "runs", [count])
    rng = np.random.default_rng(9)
    for answers, label in ((COIN, "one answer a user"), (SEVERAL, "several answers a user")):
        microseconds = [seconds * 1e6 for seconds in seconds_of_a_verdict(answers, rng)]
        yield Row(label, "eyas", "processor time of a verdict", "us", microseconds)


if __name__ == "__main__":
    rollout_evidence()
