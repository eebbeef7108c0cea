"""Decisions of a canary whose versions know different users, by simulation through the code that judges.

    python -m benchmarks.rollout_populations [--runs 200] [--equal-runs 2000] [--log-runs 20] [--users 40000]

Each user has an own rate of hits and several requests; each version knows some of the users and gives the others popular items. The last
step of a canary is judged, half of the users in each variant, with the default guardrails and `max_harm: 10%`, at twenty looks. Some of the
runs go through the event log itself: requests and hits are stored, and the sums are what the log counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import numpy as np
from scipy.stats import beta

from benchmarks.harness import Missed, Outcome, Row, benchmark, databases
from services.eventlog.kpis import SqlKpis
from services.eventlog.sql import SqlEventLog
from services.store.engine import open_engine
from shared.contracts.events import UNKNOWN_USER, Impression, Interaction
from shared.contracts.guardrails import Guardrails
from shared.domain.gate import Verdict
from shared.domain.rollout_plan import RolloutPlan, StepPlan
from shared.domain.sequential_test import VariantSample
from shared.domain.step_analysis import StepLook, judge
from shared.domain.traffic import Traffic, UserShares

HARM = 0.1
LOOKS = 20
ALPHA = 0.01
"""False rollbacks, at most."""
_REQUESTS = ((1, 0.4), (2, 0.3), (5, 0.2), (10, 0.1))
_SPREAD = 6.0
"""Of the users' own rates: a Beta distribution of so many pseudo-counts."""
_T0 = datetime(2026, 1, 1, tzinfo=UTC)
_WINDOW = _ATTRIBUTION = timedelta(hours=1)


@dataclass(frozen=True)
class Group:
    """Users who are alike: their share, and of each version whether it knows them and their rate of hits."""

    share: float
    stable: tuple[bool, float]
    candidate: tuple[bool, float]


@dataclass(frozen=True)
class World:
    name: str
    groups: tuple[Group, ...]
    expected: str
    fallback: str = "< 1.5x"
    """The guardrail on fallback answers; `off`: the goal alone decides."""

    def rate(self, variant: str) -> float:
        return sum(group.share * (group.stable if variant == "stable" else group.candidate)[1] for group in self.groups)


def alike(unknown: float) -> World:
    """A/A: two versions that know the same users."""
    known, new = (True, 0.22), (False, 0.08)
    return World(f"A/A, {unknown:.0%} unknown users", (Group(1 - unknown, known, known), Group(unknown, new, new)), "not rolled back")


BETTER = World(
    "twice as good for new users, equal for known ones",
    (Group(0.55, (True, 0.318), (True, 0.318)), Group(0.45, (False, 0.029), (True, 0.058))),
    "promoted",
)
EQUAL = World(
    "equal, and the candidate knows other users",
    (
        Group(0.60, (True, 0.24), (True, 0.24)),
        Group(0.15, (True, 0.15), (False, 0.11)),
        Group(0.15, (False, 0.11), (True, 0.15)),
        Group(0.10, (False, 0.09), (False, 0.09)),
    ),
    "promoted",
)
WORSE = World(
    "20% worse, and better for those whom it still knows",
    (
        Group(0.35, (True, 0.29), (True, 0.30)),
        Group(0.30, (True, 0.21), (False, 0.10)),
        Group(0.35, (False, 0.138), (False, 0.10)),
    ),
    "never promoted",
)
KINDS = (WORSE, replace(WORSE, name=f"{WORSE.name}, guardrail off", fallback="off"), EQUAL, BETTER)


@dataclass(frozen=True)
class Users:
    """One variant's users, in the order of their first requests."""

    requests: np.ndarray[Any, Any]
    hits: np.ndarray[Any, Any]
    known: np.ndarray[Any, Any]

    def sample(self, count: int, only_known: bool = False) -> VariantSample:
        counted = self.known[:count] if only_known else slice(count)
        requests, hits = self.requests[:count][counted], self.hits[:count][counted]
        rates = hits / requests
        return VariantSample(len(rates), rates.sum(), (rates * rates).sum(), int(requests.sum()), int(hits.sum()), int((hits > 0).sum()))

    def traffic(self, count: int) -> Traffic:
        unknown = float((~self.known[:count]).sum())
        answers = int(self.requests[:count].sum())
        latency = {80: answers}
        return Traffic(count, answers, latency=latency, fallback=UserShares(count, unknown, unknown), empty=UserShares(count))


def simulate(world: World, count: int, rng: np.random.Generator) -> tuple[Users, Users]:
    return _simulate(world, "stable", count, rng), _simulate(world, "candidate", count, rng)


def _simulate(world: World, variant: str, count: int, rng: np.random.Generator) -> Users:
    shares = [group.share for group in world.groups]
    group = rng.choice(len(shares), count, p=shares)
    known, rate = (np.array([getattr(one, variant)[n] for one in world.groups])[group] for n in (0, 1))
    requests = rng.choice([n for n, _ in _REQUESTS], count, p=[share for _, share in _REQUESTS])
    own = rng.beta(rate * _SPREAD, (1 - rate) * _SPREAD)
    return Users(requests, rng.binomial(requests, own), known)


def plan(world: World) -> RolloutPlan:
    rails = Guardrails(fallback=world.fallback).rules()
    return RolloutPlan((StepPlan(0.5, timedelta(days=30), min_users=100, min_answers=100),), HARM, guardrails=rails)


def decide(world: World, stable: Users, candidate: Users, only_known: bool = False) -> str:
    """What the first look that decides says; one failed look rolls back. `only_known`: as if fallback answers did not count."""
    rollout, most = plan(world), len(stable.requests)
    for count in np.unique(np.geomspace(200, most, LOOKS).astype(int)).tolist():
        samples = (stable.sample(count, only_known), candidate.sample(count, only_known))
        report = judge(StepLook(samples, (stable.traffic(count), candidate.traffic(count))), rollout, 0, _T0, world.rate("stable"))
        if report.verdict in (Verdict.PASS, Verdict.FAIL):
            return "promoted" if report.verdict is Verdict.PASS else "rolled back"
    return "undecided"


def run(task: tuple[World, int, int, int]) -> tuple[Counter[str], Counter[str]]:
    """How many runs ended how: by intention to treat, and as if fallback answers did not count."""
    world, runs, count, seed = task
    rng = np.random.default_rng(seed)
    users = (simulate(world, count, rng) for _ in range(runs))
    ends = [(decide(world, *one), decide(world, *one, only_known=True) if world in KINDS else "") for one in users]
    return Counter(end for end, _ in ends), Counter(end for _, end in ends)


def run_through_log(task: tuple[World, int, int]) -> str:
    """The same, with the sums that the event log counts at the last look; they must be those of the simulation."""
    world, count, seed = task
    rng = np.random.default_rng(seed)
    arms = dict(zip(("stable", "candidate"), simulate(world, count, rng), strict=True))
    with databases() as new_database:
        engine = open_engine(new_database("sqlite", migrated=True))
        log, kpis = SqlEventLog(engine), SqlKpis(engine)
        for number, (variant, users) in enumerate(arms.items()):
            _store(log, users, variant, number)
        now = _T0 + _WINDOW + _ATTRIBUTION + timedelta(hours=1)
        samples = kpis.samples("films", 1, _WINDOW, _ATTRIBUTION, now)
        traffic = kpis.traffic("films", 1, now)
        engine.dispose()
    for variant, users in arms.items():
        expected, counted = users.sample(count), samples[variant]
        if (expected.users, expected.answers, expected.hits) != (counted.users, counted.answers, counted.hits):
            raise AssertionError(f"{world.name}: the log counts {counted} of {variant}, expected {expected}")
        if abs(counted.total - expected.total) > 1e-6 or abs(traffic[variant].fallback.total - users.traffic(count).fallback.total) > 1e-6:
            raise AssertionError(f"{world.name}: the log's sums of {variant} differ: {counted}, {traffic[variant]}; {expected}")
    look = StepLook((samples["stable"], samples["candidate"]), (traffic["stable"], traffic["candidate"]))
    verdict = judge(look, plan(world), 0, _T0, world.rate("stable")).verdict
    return {Verdict.PASS: "promoted", Verdict.FAIL: "rolled back"}.get(verdict or Verdict.ERROR, "undecided")


def _store(log: SqlEventLog, users: Users, variant: str, number: int) -> None:
    impressions, interactions = [], []
    for user, (requests, hits, known) in enumerate(zip(users.requests.tolist(), users.hits.tolist(), users.known.tolist(), strict=True)):
        key = 2 * user + number
        for n in range(requests):
            at = _T0 + timedelta(seconds=n)
            name = f"q{key}-{n}"
            impressions.append(
                Impression(
                    request_id=name,
                    recommender="films",
                    user=key,
                    version=1 + number,
                    variant=variant,
                    generation=1,
                    step=0,
                    items=(1, 2, 3),
                    fallback=None if known else UNKNOWN_USER,
                    bucket=80 if known else None,
                    at=at,
                )
            )
            if n < hits:
                interactions.append(Interaction(recommender="films", user=key, item=2, kind="click", request_id=name, at=at))
    for some in range(0, len(impressions), 5000):
        log.impressions(impressions[some : some + 5000])
    for some in range(0, len(interactions), 5000):
        part = interactions[some : some + 5000]
        log.interactions(part, [True] * len(part), _ATTRIBUTION)


@benchmark("rollout-populations")
def rollout_populations(
    runs: int = 200, equal_runs: int = 2000, log_runs: int = 20, users: Annotated[int, "of each variant"] = 40_000
) -> Iterator[Outcome]:
    with ProcessPoolExecutor(2) as pool:
        for seed, world in enumerate(KINDS):
            tasks = [(world, part, users, 1000 * seed + number) for number, part in enumerate(_split(runs, 10))]
            ends, known_alone = _total(pool.map(run, tasks))
            logged = Counter(pool.map(run_through_log, [(world, users, 9000 + 100 * seed + number) for number in range(log_runs)]))
            yield from _rows(world, ends, "eyas, sums")
            yield from _rows(world, logged, "eyas, event log")
            yield from _rows(world, known_alone, "known users alone")
            yield from (Missed(f"{world.name}: {counts}") for counts in (ends, logged) if not _as_promised(world, counts))
        for seed, world in enumerate(alike(unknown) for unknown in (0.0, 0.3, 0.6)):
            tasks = [(world, part, users, 50_000 + 1000 * seed + number) for number, part in enumerate(_split(equal_runs, 20))]
            ends, _ = _total(pool.map(run, tasks))
            yield from _rows(world, ends, "eyas, sums")
            if ends["rolled back"] > ALPHA * equal_runs:
                yield Missed(f"{world.name}: {ends}")


def _total(parts: Iterable[tuple[Counter[str], Counter[str]]]) -> tuple[Counter[str], Counter[str]]:
    firsts, seconds = zip(*parts, strict=True)
    return sum(firsts, Counter[str]()), sum(seconds, Counter[str]())


def _as_promised(world: World, ends: Counter[str]) -> bool:
    runs = ends.total()
    return not runs or (ends["promoted"] == 0 if world.expected == "never promoted" else ends["promoted"] >= 0.95 * runs)


def at_most(count: int, runs: int) -> float:
    """The upper 95% bound of a share (Clopper and Pearson)."""
    if count >= runs:
        return 1.0
    return float(beta.ppf(0.95, count + 1, runs - count))


def _split(runs: int, parts: int) -> Sequence[int]:
    return [runs // parts + (n < runs % parts) for n in range(parts)]


def _rows(world: World, ends: Counter[str], contender: str) -> Iterator[Row]:
    if runs := ends.total():
        case = f"{world.name} (rates {world.rate('stable'):.3f} and {world.rate('candidate'):.3f})"
        note = f"upper 95% bound {at_most(ends['rolled back'], runs):.2%}" if world.expected == "not rolled back" else ""
        for end in ("promoted", "rolled back", "undecided"):
            yield Row(case, contender, f"{end} of {runs}", "runs", [ends[end]], note=note)


if __name__ == "__main__":
    rollout_populations()
