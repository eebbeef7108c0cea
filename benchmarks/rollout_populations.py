"""What a canary decides where the versions know different users: by simulation through the code that judges.

    python -m benchmarks.rollout_populations [--runs 200] [--equal-runs 2000] [--log-runs 20] [--users 40000]

Each user has an own rate of hits and several requests; each version knows some of the users and gives the others popular items. The last
step of a canary is judged, half of the users in each variant, with the default guardrails and `max_harm: 10%`, at twenty looks. Some of the
runs go through the event log itself: requests and hits are stored, and the sums are what the log counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import numpy as np

from benchmarks.harness import Missed, Outcome, Row, benchmark, scratch
from benchmarks.populations import hit_rates, sample_of
from benchmarks.trials import at_most, workers
from services.eventlog.kpis import SqlKpis
from services.eventlog.sql import SqlEventLog
from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
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
    old, new = (True, 0.22), (False, 0.08)
    return World(f"A/A, {unknown:.0%} unknown users", (Group(1 - unknown, old, old), Group(unknown, new, new)), "not rolled back")


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


ENDS = {Verdict.PASS: "promoted", Verdict.FAIL: "rolled back"}


@dataclass(frozen=True)
class Users:
    """One variant's users, in the order of their first requests."""

    requests: np.ndarray[Any, Any]
    hits: np.ndarray[Any, Any]
    recognised: np.ndarray[Any, Any]

    def sample(self, count: int, only_recognised: bool = False) -> VariantSample:
        counted = self.recognised[:count] if only_recognised else slice(count)
        return sample_of(self.requests[:count][counted], self.hits[:count][counted])

    def traffic(self, count: int) -> Traffic:
        unknown = float((~self.recognised[:count]).sum())
        answers = int(self.requests[:count].sum())
        return Traffic(count, answers, latency={80: answers}, fallback=UserShares(count, unknown, unknown), empty=UserShares(count))


def simulate(world: World, count: int, rng: np.random.Generator) -> tuple[Users, Users]:
    return _simulate(world, "stable", count, rng), _simulate(world, "candidate", count, rng)


def _simulate(world: World, variant: str, count: int, rng: np.random.Generator) -> Users:
    shares = [group.share for group in world.groups]
    group = rng.choice(len(shares), count, p=shares)
    recognised, rate = (np.array([getattr(part, variant)[n] for part in world.groups])[group] for n in (0, 1))
    requests = rng.choice([n for n, _ in _REQUESTS], count, p=[share for _, share in _REQUESTS])
    return Users(requests, rng.binomial(requests, hit_rates(rng, rate, _SPREAD, count)), recognised)


def _judge(world: World, samples: Iterable[VariantSample], traffic: Iterable[Traffic]) -> Verdict | None:
    steps = (StepPlan(0.5, timedelta(days=30), min_users=100, min_answers=100),)
    plan = RolloutPlan(steps, HARM, guardrails=Guardrails(fallback=world.fallback).rules())
    stable, candidate = samples
    stable_traffic, candidate_traffic = traffic
    look = StepLook((stable, candidate), (stable_traffic, candidate_traffic))
    return judge(look, plan, 0, _T0, world.rate("stable")).verdict


def decide(world: World, stable: Users, candidate: Users, only_recognised: bool = False) -> str:
    """How the first look that decides ends the canary; one failed look rolls back. `only_recognised`: as if fallback answers did not
    count."""
    arms = (stable, candidate)
    for count in np.unique(np.geomspace(200, len(stable.requests), LOOKS).astype(int)).tolist():
        samples = (users.sample(count, only_recognised) for users in arms)
        if end := ENDS.get(_judge(world, samples, (users.traffic(count) for users in arms)) or Verdict.ERROR):
            return end
    return "undecided"


def run(world: World, runs: int, count: int, seed: int) -> tuple[Counter[str], Counter[str]]:
    """How many runs ended how: by intention to treat, and as if fallback answers did not count."""
    rng = np.random.default_rng(seed)
    ends, wrong_ends = Counter[str](), Counter[str]()
    for _ in range(runs):
        arms = simulate(world, count, rng)
        ends[decide(world, *arms)] += 1
        wrong_ends[decide(world, *arms, only_recognised=True) if world in KINDS else ""] += 1
    return ends, wrong_ends


def run_through_log(world: World, count: int, seed: int) -> str:
    """The same, with the sums that the event log counts at the last look; they must be those of the simulation."""
    arms = dict(zip(("stable", "candidate"), simulate(world, count, np.random.default_rng(seed)), strict=True))
    with scratch() as folder:
        engine = open_engine(sqlite_url(folder / "events.db"))
        upgrade(engine)
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
            raise AssertionError(f"{world.name}: the log counts {counted} of {variant}, and {expected} happened")
        differences = (counted.total - expected.total, traffic[variant].fallback.total - users.traffic(count).fallback.total)
        if max(map(abs, differences)) > 1e-6:
            raise AssertionError(f"{world.name}: the log's sums of {variant} differ: {counted}, {traffic[variant]}; {expected}")
    verdict = _judge(world, (samples[variant] for variant in arms), (traffic[variant] for variant in arms))
    return ENDS.get(verdict or Verdict.ERROR, "undecided")


def _store(log: SqlEventLog, users: Users, variant: str, number: int) -> None:
    impressions, interactions = [], []
    every = zip(users.requests.tolist(), users.hits.tolist(), users.recognised.tolist(), strict=True)
    for user, (requests, hits, recognised) in enumerate(every):
        key = 2 * user + number
        outcome = {"bucket": 80} if recognised else {"fallback": UNKNOWN_USER}
        for n in range(requests):
            common = {"recommender": "films", "user": key, "request_id": f"q{key}-{n}", "at": _T0 + timedelta(seconds=n)}
            shown = {"version": 1 + number, "variant": variant, "generation": 1, "step": 0, "items": (1, 2, 3)}
            impressions.append(Impression.model_validate(common | shown | outcome))
            if n < hits:
                interactions.append(Interaction.model_validate(common | {"item": 2, "kind": "click"}))
    for start in range(0, len(impressions), 5000):
        log.impressions(impressions[start : start + 5000])
    for start in range(0, len(interactions), 5000):
        part = interactions[start : start + 5000]
        log.interactions(part, [True] * len(part), _ATTRIBUTION)


def _run_in_parts(pool: ProcessPoolExecutor, world: World, runs: int, parts: int, users: int, seed: int) -> list[Counter[str]]:
    """All runs in so many parts, the n-th with the n-th seed."""
    sizes = [runs // parts + (n < runs % parts) for n in range(parts)]
    results = pool.map(run, [world] * parts, sizes, [users] * parts, range(seed, seed + parts))
    return [sum(ends, Counter[str]()) for ends in zip(*results, strict=True)]


def _rows(world: World, ends: Counter[str], contender: str) -> Iterator[Row]:
    if runs := ends.total():
        case = f"{world.name} (rates {world.rate('stable'):.3f} and {world.rate('candidate'):.3f})"
        note = f"upper 95% bound {at_most(ends['rolled back'], runs):.2%}" if world.expected == "not rolled back" else ""
        yield from (Row(case, contender, f"{end} of {runs}", "runs", [ends[end]], note=note) for end in (*ENDS.values(), "undecided"))


def _as_promised(world: World, ends: Counter[str]) -> bool:
    if world.expected == "not rolled back":
        return ends["rolled back"] <= ALPHA * ends.total()
    return ends["promoted"] == 0 if world.expected == "never promoted" else ends["promoted"] >= 0.95 * ends.total()


@benchmark("rollout-populations")
def rollout_populations(
    runs: int = 200, equal_runs: int = 2000, log_runs: int = 20, users: Annotated[int, "of each variant"] = 40_000
) -> Iterator[Outcome]:
    with workers() as pool:
        for number, world in enumerate(KINDS):
            ends, wrong_ends = _run_in_parts(pool, world, runs, 10, users, 1000 * number)
            seeds = range(9000 + 100 * number, 9000 + 100 * number + log_runs)
            logged = Counter(pool.map(run_through_log, [world] * log_runs, [users] * log_runs, seeds))
            yield from _rows(world, ends, "eyas, sums")
            yield from _rows(world, logged, "eyas, event log")
            yield from _rows(world, wrong_ends, "known users alone")
            yield from (Missed(f"{world.name}: {counts}") for counts in (ends, logged) if not _as_promised(world, counts))
        for number, world in enumerate(alike(unknown) for unknown in (0.0, 0.3, 0.6)):
            ends, _ = _run_in_parts(pool, world, equal_runs, 20, users, 50_000 + 1000 * number)
            yield from _rows(world, ends, "eyas, sums")
            if not _as_promised(world, ends):
                yield Missed(f"{world.name}: {ends}")


if __name__ == "__main__":
    rollout_populations()
