"""The canary's test by simulation, through the code that judges: false rollbacks, false promotions, users needed; beside it a z-test for
a fixed number of users that is applied equally often.

    python -m benchmarks.rollout_evidence [--runs 1000] [--quick]
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated, Any

import numpy as np

from benchmarks.evidence_worlds import COIN, MIN_USERS, SEVERAL, Answers, Case, Whole, simulate, whole, work
from benchmarks.harness import Row, benchmark
from shared.domain.sequential_test import StepTerms, verdict

RATES = (0.02, 0.1, 0.3)
WEIGHTS = (0.01, 0.05, 0.1, 0.25, 0.5)


def false_cases(horizon: float) -> Iterator[Case]:
    for answers, weights in ((COIN, WEIGHTS), (SEVERAL, WEIGHTS)):
        grid = list(itertools.product(RATES, weights))
        yield from (Case("false rollback", rate, weight, 0.0, 0.02, horizon, answers) for rate, weight in grid)
        for harm in (0.02, 0.05):
            yield from (Case("false promotion", rate, weight, -harm, harm, horizon, answers) for rate, weight in grid)
    for rate, weight in itertools.product(RATES, (0.05, 0.5)):
        yield Case("false rollback", rate, weight, 0.0, 0.02, horizon, base=rate)
        yield Case("false rollback", rate, weight, 0.0, 0.02, horizon, base=2 * rate)


def cost_cases(horizon: float) -> Iterator[Case]:
    for rate, weight in itertools.product(RATES, WEIGHTS):
        for lift in (-0.05, -0.1, -0.2):
            yield Case("rollback", rate, weight, lift, 0.02, horizon, growth=1.08)
        for harm, lift in itertools.product((0.02, 0.05), (0.0, 0.05)):
            yield Case("promote", rate, weight, lift, harm, horizon, growth=1.08)


def rollouts(quick: bool) -> Iterator[Whole]:
    horizon = 1e5 if quick else 3e7
    for rate in RATES:
        yield Whole(rate, 0.0, 0.02, 0, horizon)
        yield Whole(rate, 0.0, 0.02, 20_000 if quick else 300_000, horizon)
        yield Whole(rate, -0.02, 0.02, 0, horizon)


def quantile(users: Sequence[float], share: float) -> float:
    return sorted(users)[math.ceil(share * len(users)) - 1]


def name(case: Case) -> str:
    several = ", several answers a user" if case.answers != COIN else ""
    base = "" if case.base is None else f", told a base rate of {case.base:.0%}"
    return f"base rate {case.rate:.0%}, weight {case.weight:.0%}, lift {case.lift:+.0%}, max_harm {case.max_harm:.0%}{several}{base}"


def seconds_of_a_verdict(answers: Answers, rng: np.random.Generator) -> list[float]:
    """Processor time, averaged over the looks of one canary each: undecided ones are most of them."""
    case = Case("rollback", 0.1, 0.1, -0.05, 0.02, 1e6, answers)
    seconds = []
    for _ in range(20):
        simulated = simulate(case, 1, rng)
        samples = [(simulated.sample(0, 0, look), simulated.sample(1, 0, look)) for look in range(simulated.users[0].shape[1])]
        start = time.process_time()
        for stable, candidate in samples:
            verdict(stable, candidate, StepTerms(max_harm=0.02, min_users=MIN_USERS, steps=1, final=True, weight=0.1, base=0.1))
        seconds.append((time.process_time() - start) / len(samples))
    return seconds


@benchmark("rollout-evidence")
def rollout_evidence(runs: int = 1000, quick: Annotated[bool, "short horizons: shows that it runs"] = False) -> Iterator[Row]:
    fewer = max(runs // 4, 1)
    with ProcessPoolExecutor(2) as pool:

        def simulated(function: Callable[..., Any], cases: Sequence[Any], times: int, seed: int) -> Iterator[tuple[Any, Any]]:
            return zip(cases, pool.map(function, [(case, times, seed + number) for number, case in enumerate(cases)]), strict=True)

        for case, result in simulated(work, list(false_cases(1e5 if quick else 2e6)), runs, 0):
            metric = f"{case.question} in {runs:,} runs"
            yield Row(name(case), "eyas", metric, "runs", [sum(math.isfinite(users) for users in result.users)])
            yield Row(name(case), "z-test", metric, "runs", [result.naive])
        for case, result in simulated(work, list(cost_cases(1e6 if quick else 3e8)), fewer, 1000):
            for group, users, part in (("users", result.users, 1.0), ("users in the candidate", result.candidate, case.weight)):
                for share, label in ((0.5, "median"), (0.9, "90%")):
                    value = quantile(users, share)
                    more = "" if math.isfinite(value) else ", more than the watched"
                    metric = f"{group} to {case.question}, {label}{more}"
                    yield Row(name(case), "eyas", metric, "users", [value if math.isfinite(value) else part * case.horizon])
        for rollout, ends in simulated(whole, list(rollouts(quick)), runs, 5000):
            pause = f", steps held for {rollout.held:,} users" if rollout.held else ""
            label = f"whole rollout, base rate {rollout.rate:.0%}, lift {rollout.lift:+.0%}, max_harm {rollout.max_harm:.0%}{pause}"
            for end, count in ends.items():
                yield Row(label, "eyas", f"{end} of {runs:,} runs", "runs", [count])
    rng = np.random.default_rng(9)
    for answers, label in ((COIN, "one answer a user"), (SEVERAL, "several answers a user")):
        yield Row(label, "eyas", "processor time of a verdict", "us", [1e6 * seconds for seconds in seconds_of_a_verdict(answers, rng)])


if __name__ == "__main__":
    rollout_evidence()
