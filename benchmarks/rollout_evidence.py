"""What the canary's test promises and what it costs, by simulation through the code that judges: false rollbacks, false promotions,
users needed; beside it a z-test for a fixed number of users that is looked at equally often.

    python -m benchmarks.rollout_evidence [--runs 1000] [--quick]
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.evidence_worlds import COIN, MIN_USERS, SEVERAL, Answers, Case, Found, Whole, simulate, whole, work
from benchmarks.report import Row, publish
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


def spoken(users: float, horizon: float) -> str:
    if math.isinf(users):
        return f"> {spoken(horizon, horizon)}"
    return f"{users / 1e6:.3g} M" if users >= 999_500 else f"{users / 1e3:.3g} k" if users >= 1000 else f"{users:.0f}"


def name(case: Case) -> str:
    several = ", several answers a user" if case.answers != COIN else ""
    told = "" if case.base is None else f", told a base rate of {case.base:.0%}"
    return f"base rate {case.rate:.0%}, weight {case.weight:.0%}, lift {case.lift:+.0%}, max_harm {case.max_harm:.0%}{several}{told}"


def false_rows(found: Mapping[Case, Found], runs: int) -> list[Row]:
    rows = []
    for case, one in found.items():
        said = sum(math.isfinite(users) for users in one.users)
        rows.append(Row(name(case), "eyas", f"{case.question} in {runs:,} runs", "runs", [said]))
        rows.append(Row(name(case), "z-test", f"{case.question} in {runs:,} runs", "runs", [one.naive]))
    return rows


def cost_rows(found: Mapping[Case, Found]) -> list[Row]:
    rows = []
    for case, one in found.items():
        for whose, users, horizon in (
            ("users", one.users, case.horizon),
            ("users in the candidate", one.candidate, case.horizon * case.weight),
        ):
            for share, label in ((0.5, "median"), (0.9, "90%")):
                value = quantile(users, share)
                reached = math.isfinite(value)
                more = "" if reached else ", more than the watched"
                metric = f"{whose} to {case.question}, {label}{more}"
                rows.append(Row(name(case), "eyas", metric, "users", [value if reached else horizon]))
    return rows


def print_false(say: Console, found: Mapping[Case, Found], runs: int) -> None:
    for question, harm, answers in dict.fromkeys((case.question, case.max_harm, case.answers) for case in found):
        world = f", true harm = max_harm = {harm:.0%}" if "promotion" in question else " (A/A)"
        title = f"{question}, of {runs:,} runs{world}" + ("" if answers == COIN else ", several answers a user")
        table = Table("base rate", *(f"weight {weight:.0%}" for weight in WEIGHTS), title=title)
        for rate in RATES:
            alike = {
                one.weight: found[one] for one in found if one == Case(question, rate, one.weight, one.lift, harm, one.horizon, answers)
            }
            cells = [alike.get(weight) for weight in WEIGHTS]
            said = [f"{sum(map(math.isfinite, one.users))} (z-test {one.naive})" if one else "" for one in cells]
            table.add_row(f"{rate:.0%}", *said)
        say.print(table)


def print_cost(say: Console, found: Mapping[Case, Found]) -> None:
    for whose in ("users", "users in the candidate"):
        table = Table("base rate", "question", *(f"weight {weight:.0%}" for weight in WEIGHTS), title=f"{whose} needed: median / 90%")
        for rate in RATES:
            for asked in dict.fromkeys((case.question, case.lift, case.max_harm) for case in found):
                cells = {case: one for case, one in found.items() if (case.rate, case.question, case.lift, case.max_harm) == (rate, *asked)}
                harm = f" (max_harm {asked[2]:.0%})" if asked[0] == "promote" else ""
                texts = []
                for case, one in cells.items():
                    users, part = (one.users, 1.0) if whose == "users" else (one.candidate, case.weight)
                    texts.append(" / ".join(spoken(quantile(users, share), part * case.horizon) for share in (0.5, 0.9)))
                table.add_row(f"{rate:.0%}", f"{asked[0]} {asked[1]:+.0%}{harm}", *texts)
        say.print(table)


def seconds_of_a_verdict(answers: Answers, rng: np.random.Generator) -> list[float]:
    """Processor time, averaged over the looks of one canary each: undecided ones are most of them."""
    case = Case("rollback", 0.1, 0.1, -0.05, 0.02, 1e6, answers)
    taken = []
    for _ in range(20):
        seen = simulate(case, 1, rng)
        samples = [(seen.sample(0, 0, look), seen.sample(1, 0, look)) for look in range(seen.users[0].shape[1])]
        start = time.process_time()
        for stable, candidate in samples:
            verdict(stable, candidate, StepTerms(max_harm=0.02, min_users=MIN_USERS, steps=1, final=True, weight=0.1, base=0.1))
        taken.append((time.process_time() - start) / len(samples))
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="short horizons: shows that it runs")
    given = parser.parse_args()
    say = Console(width=160)
    false = list(false_cases(1e5 if given.quick else 2e6))
    cost = list(cost_cases(1e6 if given.quick else 3e8))
    some = max(given.runs // 4, 1)
    began = time.monotonic()

    def told(done: int, of: int, what: str) -> None:
        say.print(f"{time.monotonic() - began:6.0f} s  {what}: {done} of {of}")

    with ProcessPoolExecutor(2) as pool:
        found_false: dict[Case, Found] = {}
        for case, one in zip(false, pool.map(work, [(case, given.runs, seed) for seed, case in enumerate(false)]), strict=True):
            found_false[case] = one
            told(len(found_false), len(false), f"{case.question}, {name(case)}")
        found_cost: dict[Case, Found] = {}
        for case, one in zip(cost, pool.map(work, [(case, some, 1000 + seed) for seed, case in enumerate(cost)]), strict=True):
            found_cost[case] = one
            told(len(found_cost), len(cost), f"{case.question}, {name(case)}")
        ends: dict[Whole, dict[str, int]] = {}
        asked = list(rollouts(given.quick))
        for one_rollout, end in zip(
            asked, pool.map(whole, [(one, given.runs, 5000 + seed) for seed, one in enumerate(asked)]), strict=True
        ):
            ends[one_rollout] = end
            told(len(ends), len(asked), f"whole rollouts, base rate {one_rollout.rate:.0%}, lift {one_rollout.lift:+.0%}: {end}")
    rows = false_rows(found_false, given.runs) + cost_rows(found_cost)
    for one_rollout, end in ends.items():
        held = f", steps held for {one_rollout.held:,} users" if one_rollout.held else ""
        case_name = (
            f"whole rollout, base rate {one_rollout.rate:.0%}, lift {one_rollout.lift:+.0%}, max_harm {one_rollout.max_harm:.0%}{held}"
        )
        rows += [Row(case_name, "eyas", f"{end_name} of {given.runs:,} runs", "runs", [count]) for end_name, count in end.items()]
    rng = np.random.default_rng(9)
    for answers, label in ((COIN, "one answer a user"), (SEVERAL, "several answers a user")):
        rows.append(Row(label, "eyas", "processor time of a verdict", "us", [one * 1e6 for one in seconds_of_a_verdict(answers, rng)]))
    publish("rollout-evidence", rows)
    print_false(say, found_false, given.runs)
    print_cost(say, found_cost)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
