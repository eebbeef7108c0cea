"""How much a recommender is delayed by others that share its gateway and its model server.

    python -m benchmarks.neighbours [--seconds 10] [--rounds 5] [--rate 100] [--part sleeping canary thousand]

A platform process with a real Triton; users ask over HTTP. Parts:

- sleeping: a fast recommender, alone and beside one whose version sleeps 0.5 s in each call
- canary: users of the stable version, beside a 10 % canary as fast as theirs and beside one that sleeps 0.4 s
- thousand: a gateway with 1,000 recommenders loaded, 10 of them busy, against one with these 10 alone

In the first two parts the situations alternate. The measured users come at a steady rate (an open loop: latency counts from when a
request is due). A ratio compares two measurements of one round. The promise: beside a version that sleeps, the p50 and the p95 of others
are at most 1.5 times as high as without it, and no answer fails or falls back. The exit code is 1 if the promise is missed.
"""

from __future__ import annotations

import itertools
import logging
import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import psutil

from benchmarks.harness import Figures, Peak, Row, benchmark, say, scratch, turns
from benchmarks.load import LEAD, TAIL, Load, Outcome, run_loads
from benchmarks.neighbours_world import USERS, Gateways, Neighbourhood, sleeping, split_users
from shared.domain.route import Route
from shared.testing.model_server_suite import tiny_model

PROMISED = 1.5
JUDGED = ("p50, ratio", "p95, ratio")
SHARES = (50, 95, 99)
FAST, SLOW = "fast", "slow"
SLEEP, CANARY_SLEEP = 0.5, 0.4
SLEEP_CLIENTS = 6
WEIGHT = 0.1
BUSY, LOADED = 10, 1_000
CONNECTIONS = 64
"""Of an open loop: more than are ever under way."""
WARM = 2.0
FAILED = "answers that failed or fell back"
ALONE, ALONE_AGAIN = "alone", "alone, measured again"
"""The ratio of the two is the noise of the machine: a ratio of another situation that is no higher shows nothing."""
BESIDE_SLEEPING = f"beside a version that sleeps {SLEEP:g} s"
FAST_CANARY = "canary as fast as the stable version"
SLEEPING_CANARY = f"canary sleeps {CANARY_SLEEP:g} s"
SLEEPERS = (BESIDE_SLEEPING, SLEEPING_CANARY)


def missed_promises(rows: Sequence[Row]) -> list[str]:
    """Of the cases with a sleeping version."""
    missed = []
    for row in rows:
        value = statistics.median(row.values)
        if row.contender in SLEEPERS and row.metric.startswith(JUDGED) and value > PROMISED:
            missed.append(f"{row.case}, {row.contender}: {row.metric} {value:.2f}, expected at most {PROMISED:g}")
        if row.contender in SLEEPERS and row.metric == FAILED and max(row.values) > 0:
            missed.append(f"{row.case}, {row.contender}: up to {max(row.values):.0f} {FAILED}, expected none")
    return missed


@benchmark("neighbours", missed_promises)
def neighbours(
    seconds: Annotated[float, "of each measurement"] = 10,
    rounds: int = 5,
    rate: Annotated[float, "requests a second of the measured users"] = 100,
    part: Sequence[Literal["sleeping", "canary", "thousand"]] = ("sleeping", "canary", "thousand"),
) -> Iterator[Row]:
    logging.basicConfig(level=logging.ERROR)
    parts = {"sleeping": _sleeping, "canary": _canary}
    for name in part:
        say(f"{name}: preparing")
        with scratch() as folder:
            if name == "thousand":
                yield from _thousand(folder, seconds, rounds)
            else:
                with Neighbourhood(folder) as world:
                    yield from parts[name](world, seconds, rounds, rate)


def _sleeping(world: Neighbourhood, seconds: float, rounds: int, rate: float) -> Iterator[Row]:
    world.add(FAST, tiny_model(1))
    world.add(SLOW, sleeping(SLEEP), patient=True)
    fast, slow = world.load(FAST, range(USERS), CONNECTIONS, rate), world.load(SLOW, range(USERS), SLEEP_CLIENTS)
    measured = Rounds("sleeping neighbour", seconds)
    run_loads([fast], WARM)
    alone, again = partial(measured.measure, ALONE, fast), partial(measured.measure, ALONE_AGAIN, fast)
    for measure in turns([alone, partial(measured.measure, BESIDE_SLEEPING, fast, slow, slowest=SLEEP), again], rounds):
        measure()
    yield from measured.rows()


def _canary(world: Neighbourhood, seconds: float, rounds: int, rate: float) -> Iterator[Row]:
    """Two recommenders with the same route and the same stable version; only their canaries differ."""
    route = Route(1, candidate=2, weight=WEIGHT, salt="neighbours", step=0)
    stable, canary = split_users(route, USERS)
    world.add(FAST, tiny_model(1), tiny_model(2), route=route, patient=True)
    world.add(SLOW, tiny_model(1), sleeping(CANARY_SLEEP), route=route, patient=True)
    measured = Rounds("stable users of a canary", seconds)
    own = {name: world.load(name, stable, CONNECTIONS, rate * (1 - WEIGHT)) for name in (FAST, SLOW)}
    for load in own.values():
        run_loads([load], WARM)
    for contender, name, slowest in turns([(FAST_CANARY, FAST, 0.0), (SLEEPING_CANARY, SLOW, CANARY_SLEEP)], rounds):
        measured.measure(contender, own[name], world.load(name, canary, CONNECTIONS, rate * WEIGHT), slowest)
    yield from measured.rows()


class Rounds:
    """The measurements of one part; the contender that comes first is the reference of the others."""

    def __init__(self, case: str, seconds: float) -> None:
        self._case, self._seconds, self._figures = case, seconds, Figures(case)
        self._contenders: dict[str, None] = {}

    def measure(self, contender: str, load: Load, neighbour: Load | None = None, slowest: float = 0.0) -> None:
        """`slowest`: seconds that the version of the neighbour sleeps, or else the measurement is void."""
        own, other = run_loads([load], self._seconds, [neighbour] if neighbour else [])
        say(f"{self._case}, {contender}: {text_of(own)}; {dict(own.kinds)}; neighbour {dict(other.kinds)}")
        self._contenders[contender] = None
        add_latencies(self._figures, contender, own)
        if neighbour:
            median, together = other.percentile(50), LEAD + self._seconds + TAIL
            self._figures.add(contender, "the neighbour's own p50", "ms", median)
            self._figures.add(contender, "the neighbour's answers", "1/s", len(other.milliseconds) / together)
            if median < 1000 * slowest:
                raise SystemExit(f"{contender}: its median answer took {median:.0f} ms: the version isn't as slow as it should be")

    def rows(self) -> Iterator[Row]:
        yield from self._figures.rows()
        first, *later_contenders = self._contenders
        for contender, share in itertools.product(later_contenders, SHARES):
            yield self._figures.ratios(contender, first, f"p{share}", "ms", f"p{share}, ratio to: {first}")


def add_latencies(figures: Figures, contender: str, outcome: Outcome) -> None:
    for name, value in outcome.percentiles(*SHARES).items():
        figures.add(contender, name, "ms", value)
    figures.add(contender, FAILED, "", outcome.failed)


def text_of(outcome: Outcome) -> str:
    return ", ".join(f"{name} {value:.1f} ms" for name, value in outcome.percentiles(*SHARES).items())


def _thousand(folder: Path, seconds: float, rounds: int) -> Iterator[Row]:
    figures = Figures(f"a gateway, {BUSY} recommenders busy")
    with Gateways(folder, BUSY) as gateways:
        for count in (BUSY, LOADED):
            gateways.prepare(count)
        for count in (BUSY, LOADED) * rounds:
            contender = f"{count:,} recommenders loaded"
            with gateways.running(count) as (loads, process), Peak(process.num_threads) as threads:
                figures.add(contender, "threads, before any load", "", process.num_threads())
                run_loads(loads, WARM)
                outcome, _ = run_loads(loads, seconds)
                figures.add(contender, "resident memory", "MiB", resident_memory(process))
            figures.add(contender, "threads, at most", "", threads.value)
            figures.add(contender, "answers", "1/s", len(outcome.milliseconds) / seconds)
            add_latencies(figures, contender, outcome)
            say(f"{contender}: {threads.value} threads, {text_of(outcome)}; {dict(outcome.kinds)}")
    yield from figures.rows()


def resident_memory(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 2**20)


if __name__ == "__main__":
    neighbours()
