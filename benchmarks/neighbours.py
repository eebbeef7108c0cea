"""How much a recommender is delayed by others that share its gateway and its model server.

    python -m benchmarks.neighbours [--seconds 10] [--rounds 5] [--rate 100] [--part sleeping computing canary thousand]

A platform process with a real Triton; users ask over HTTP. Parts:

- sleeping: a fast recommender, alone and beside one whose version sleeps 0.5 s in each call
- computing: the same beside one whose version computes for 50 ms, and beside an unrelated process that uses as much CPU
- canary: users of the stable version, beside a 10 % canary as fast as theirs and beside one that sleeps 0.4 s
- thousand: a gateway with 1,000 recommenders loaded, 10 of them busy, against one with these 10 alone

In the first three parts the situations alternate. The measured users come at a steady rate (an open loop: latency counts from when a
request is due). A ratio compares two measurements of one round. The promise: beside a version that sleeps, the p50 and the p95 of others
are at most 1.5 times as high as without it, and no answer fails or falls back. The exit code is 1 if the promise is missed.
"""

from __future__ import annotations

import logging
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import psutil

from benchmarks.harness import Row, benchmark, cpu_seconds, say, scratch, turns
from benchmarks.load import LEAD, TAIL, Load, Outcome, run_loads
from benchmarks.neighbours_world import USERS, Gateways, Neighbourhood, burning, computing, sleeping, split_users
from shared.domain.route import Route
from shared.testing.model_server_suite import tiny_model

PROMISED = 1.5
JUDGED = ("p50, ratio", "p95, ratio")
SHARES = (50, 95, 99)
FAST, SLOW = "fast", "slow"
SLEEP, CANARY_SLEEP, COMPUTE = 0.5, 0.4, 0.05
SLEEP_CLIENTS, COMPUTE_CLIENTS = 6, 4
WEIGHT = 0.1
BUSY, LOADED = 10, 1_000
CONNECTIONS = 64
"""Of an open loop: more than are ever under way."""
WARM = 2.0
FAILED = "answers that failed or fell back"
ALONE, ALONE_AGAIN = "alone", "alone, measured again"
"""The ratio of the two is the noise of the machine: a ratio of another situation that is no higher shows nothing."""
BESIDE_SLEEPING = f"beside a version that sleeps {SLEEP:g} s"
BESIDE_COMPUTING = f"beside a version that computes {1000 * COMPUTE:g} ms"
BESIDE_BURNING = "beside a process that uses as much CPU"
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
    part: Sequence[Literal["sleeping", "computing", "canary", "thousand"]] = ("sleeping", "computing", "canary", "thousand"),
) -> Iterator[Row]:
    logging.basicConfig(level=logging.ERROR)
    parts = {"sleeping": _sleeping, "computing": _computing, "canary": _canary}
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


def _computing(world: Neighbourhood, seconds: float, rounds: int, rate: float) -> Iterator[Row]:
    world.add(FAST, tiny_model(1))
    world.add(SLOW, computing(COMPUTE), patient=True)
    fast, slow = world.load(FAST, range(USERS), CONNECTIONS, rate), world.load(SLOW, range(USERS), COMPUTE_CLIENTS)
    measured = Rounds("computing neighbour", seconds)
    used: dict[str, list[float]] = {BESIDE_COMPUTING: [], BESIDE_BURNING: []}

    def compute() -> None:
        used[BESIDE_COMPUTING].append(_cores(lambda: world.cpu(SLOW), lambda: measured.measure(BESIDE_COMPUTING, fast, slow)))

    def burn() -> None:
        """As much as the version used when it was measured last."""
        with burning(used[BESIDE_COMPUTING][-1]) as process:
            used[BESIDE_BURNING].append(_cores(lambda: cpu_seconds([process]), lambda: measured.measure(BESIDE_BURNING, fast)))

    run_loads([fast], WARM)
    alone: Callable[[], None] = partial(measured.measure, ALONE, fast)
    for number in range(rounds):
        for measure in (burn, compute, alone) if number % 2 else (alone, compute, burn):
            measure()
    yield from measured.rows()
    yield from measured.ratios(BESIDE_COMPUTING, BESIDE_BURNING)
    for contender, values in used.items():
        yield Row(measured.case, contender, "CPU that the neighbour used", "cores", values)


def _cores(seconds: Callable[[], float], measure: Callable[[], None]) -> float:
    began, before = time.perf_counter(), seconds()
    measure()
    return (seconds() - before) / (time.perf_counter() - began)


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
        self.case, self._seconds = case, seconds
        self._own: dict[str, list[Outcome]] = defaultdict(list)
        self._others: dict[str, list[Outcome]] = defaultdict(list)

    def measure(self, contender: str, load: Load, neighbour: Load | None = None, slowest: float = 0.0) -> None:
        """`slowest`: seconds that the version of the neighbour sleeps, or else the measurement is void."""
        own, other = run_loads([load], self._seconds, [neighbour] if neighbour else [])
        self._own[contender].append(own)
        say(f"{self.case}, {contender}: {figures(own)}; {dict(own.kinds)}; neighbour {dict(other.kinds)}")
        if neighbour:
            self._others[contender].append(other)
            if (median := other.percentile(50)) < 1000 * slowest:
                raise SystemExit(f"{contender}: its median answer took {median:.0f} ms: the version isn't as slow as it should be")

    def rows(self) -> Iterator[Row]:
        first, together = next(iter(self._own)), LEAD + self._seconds + TAIL
        for contender, outcomes in self._own.items():
            for share in SHARES:
                yield Row(self.case, contender, f"p{share}", "ms", [outcome.percentile(share) for outcome in outcomes])
            if contender != first:
                yield from self.ratios(contender, first)
            yield Row(self.case, contender, FAILED, "", [outcome.failed for outcome in outcomes])
            if others := self._others[contender]:
                answers = [len(outcome.milliseconds) / together for outcome in others]
                yield Row(self.case, contender, "the neighbour's own p50", "ms", [outcome.percentile(50) for outcome in others])
                yield Row(self.case, contender, "the neighbour's answers", "1/s", answers)

    def ratios(self, contender: str, reference: str) -> Iterator[Row]:
        for share in SHARES:
            pairs = zip(self._own[contender], self._own[reference], strict=True)
            ratios = [outcome.percentile(share) / other.percentile(share) for outcome, other in pairs]
            yield Row(self.case, contender, f"p{share}, ratio to: {reference}", "x", ratios)


def figures(outcome: Outcome) -> str:
    return ", ".join(f"{name} {value:.1f} ms" for name, value in outcome.percentiles(*SHARES).items())


def _thousand(folder: Path, seconds: float, rounds: int) -> Iterator[Row]:
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    with Gateways(folder, BUSY) as gateways:
        for count in (BUSY, LOADED):
            gateways.prepare(count)
        for _ in range(rounds):
            for count in (BUSY, LOADED):
                contender = f"{count:,} recommenders loaded"
                with gateways.running(count) as (loads, process), Peak(process.num_threads) as threads:
                    values[contender, "threads, before any load", ""].append(process.num_threads())
                    run_loads(loads, WARM)
                    outcome, _ = run_loads(loads, seconds)
                    resident = resident_memory(process)
                values[contender, "threads, at most", ""].append(threads.value)
                values[contender, "resident memory", "MiB"].append(resident)
                for name, value in outcome.percentiles(*SHARES).items():
                    values[contender, name, "ms"].append(value)
                values[contender, "answers", "1/s"].append(len(outcome.milliseconds) / seconds)
                values[contender, FAILED, ""].append(outcome.failed)
                say(f"{contender}: {threads.value} threads, {resident:.0f} MiB, {figures(outcome)}; {dict(outcome.kinds)}")
    for (contender, metric, unit), own in values.items():
        yield Row(f"a gateway, {BUSY} recommenders busy", contender, metric, unit, own)


def resident_memory(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 2**20)


class Peak:
    """The highest value of a figure while the context is open, read ten times a second."""

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read
        self._over = threading.Event()
        self.value = read()

    def __enter__(self) -> Peak:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self.value = max(self.value, self._read())


if __name__ == "__main__":
    neighbours()
