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

import argparse
import logging
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from benchmarks.neighbours_world import (
    LEAD,
    TAIL,
    USERS,
    Gateways,
    Load,
    Neighbourhood,
    Outcome,
    burning,
    computing,
    cpu_seconds,
    sleeping,
    split_users,
)
from benchmarks.report import Row, exit_code, publish
from shared.domain.route import Route
from shared.testing.model_server_suite import tiny_model

T = TypeVar("T")

PROMISED = 1.5
JUDGED = ("p50", "p95")
PERCENTILES = {"p50": 50, "p95": 95, "p99": 99}
FAST, SLOW = "fast", "slow"
SLEEP, CANARY_SLEEP, COMPUTE = 0.5, 0.4, 0.05
SLEEP_CLIENTS, COMPUTE_CLIENTS = 6, 4
WEIGHT = 0.1
BUSY, LOADED = 10, 1_000
_CONNECTIONS = 64
"""Of an open loop: more than are ever under way."""
_WARM = 2.0
FAILED = "answers that failed or fell back"
ALONE, ALONE_AGAIN = "alone", "alone, measured again"
"""The ratio of the two is the noise of the machine: a ratio of another situation that is no higher shows nothing."""
BESIDE_SLEEPING = f"beside a version that sleeps {SLEEP:g} s"
BESIDE_COMPUTING = f"beside a version that computes {1000 * COMPUTE:g} ms"
BESIDE_BURNING = "beside a process that uses as much CPU"
FAST_CANARY = "canary as fast as the stable version"
SLEEPING_CANARY = f"canary sleeps {CANARY_SLEEP:g} s"
SLEEPERS = (BESIDE_SLEEPING, SLEEPING_CANARY)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=100, help="requests a second of the measured users")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    rows: list[Row] = []
    for part in given.part:
        with tempfile.TemporaryDirectory(prefix="eyas-neighbours-") as folder:
            _say(f"{part}: preparing")
            rows += PARTS[part](Path(folder), given)
    publish("neighbours", rows)
    return exit_code(missed_promises(rows))


def missed_promises(rows: Sequence[Row]) -> list[str]:
    """Of the cases with a sleeping version."""
    found = []
    for row in rows:
        value = statistics.median(row.values)
        judged = row.contender in SLEEPERS and row.metric.startswith(tuple(f"{one}, ratio" for one in JUDGED))
        if judged and value > PROMISED:
            found.append(f"{row.case}, {row.contender}: {row.metric} {value:.2f}, expected at most {PROMISED:g}")
        if row.metric == FAILED and row.contender in SLEEPERS and max(row.values) > 0:
            found.append(f"{row.case}, {row.contender}: up to {max(row.values):.0f} {FAILED}, expected none")
    return found


def _sleeping(folder: Path, given: argparse.Namespace) -> list[Row]:
    with Neighbourhood(folder) as world:
        world.add(FAST, tiny_model(1))
        world.add(SLOW, sleeping(SLEEP), patient=True)
        fast, slow = Load(FAST, range(USERS), _CONNECTIONS, given.rate), Load(SLOW, range(USERS), SLEEP_CLIENTS)
        rounds = Rounds("sleeping neighbour", world, given)
        world.api.run([fast], _WARM)
        alone = partial(rounds.measure, ALONE, fast)
        beside = partial(rounds.measure, BESIDE_SLEEPING, fast, slow, slowest=SLEEP)
        again = partial(rounds.measure, ALONE_AGAIN, fast)
        for number in range(given.rounds):
            for measure in _in_turn(number, alone, beside, again):
                measure()
    return rounds.rows()


def _computing(folder: Path, given: argparse.Namespace) -> list[Row]:
    with Neighbourhood(folder) as world:
        world.add(FAST, tiny_model(1))
        world.add(SLOW, computing(COMPUTE), patient=True)
        fast, slow = Load(FAST, range(USERS), _CONNECTIONS, given.rate), Load(SLOW, range(USERS), COMPUTE_CLIENTS)
        rounds = Rounds("computing neighbour", world, given)
        used: dict[str, list[float]] = {BESIDE_COMPUTING: [], BESIDE_BURNING: []}

        def compute() -> None:
            used[BESIDE_COMPUTING].append(_cores(lambda: world.cpu(SLOW), lambda: rounds.measure(BESIDE_COMPUTING, fast, slow)))

        def burn() -> None:
            """As much as the version used when it was measured last."""
            with burning(used[BESIDE_COMPUTING][-1]) as process:
                used[BESIDE_BURNING].append(_cores(lambda: cpu_seconds(process), lambda: rounds.measure(BESIDE_BURNING, fast)))

        alone: Callable[[], None] = partial(rounds.measure, ALONE, fast)
        world.api.run([fast], _WARM)
        for number in range(given.rounds):
            for measure in _in_turn(number, alone, compute, burn):
                measure()
    rows = [Row(rounds.case, contender, "CPU that the neighbour used", "cores", values) for contender, values in used.items()]
    return [*rounds.rows(), *rounds.ratios(BESIDE_COMPUTING, BESIDE_BURNING), *rows]


def _cores(seconds: Callable[[], float], measure: Callable[[], None]) -> float:
    began, before = time.perf_counter(), seconds()
    measure()
    return (seconds() - before) / (time.perf_counter() - began)


def _canary(folder: Path, given: argparse.Namespace) -> list[Row]:
    """Two recommenders with the same route and the same stable version; only their canaries differ."""
    route = Route(1, candidate=2, weight=WEIGHT, salt="neighbours", step=0)
    stable, canary = split_users(route, USERS)
    with Neighbourhood(folder) as world:
        world.add(FAST, tiny_model(1), tiny_model(2), route=route, patient=True)
        world.add(SLOW, tiny_model(1), sleeping(CANARY_SLEEP), route=route, patient=True)
        rounds, rate = Rounds("stable users of a canary", world, given), given.rate * WEIGHT
        for name in (FAST, SLOW):
            world.api.run([Load(name, stable, _CONNECTIONS, given.rate - rate)], _WARM)
        for number in range(given.rounds):
            for contender, name, slowest in _in_turn(number, (FAST_CANARY, FAST, 0.0), (SLEEPING_CANARY, SLOW, CANARY_SLEEP)):
                others = Load(name, canary, _CONNECTIONS, rate)
                rounds.measure(contender, Load(name, stable, _CONNECTIONS, given.rate - rate), others, slowest)
    return rounds.rows()


class Rounds:
    """What was measured of one part, in the order of its passes; the contender that comes first is what the others are divided by."""

    def __init__(self, case: str, world: Neighbourhood, given: argparse.Namespace) -> None:
        self.case, self._world, self._seconds = case, world, given.seconds
        self._own: dict[str, list[Outcome]] = {}
        self._others: dict[str, list[Outcome]] = {}

    def measure(self, contender: str, load: Load, neighbour: Load | None = None, slowest: float = 0.0) -> None:
        """`slowest`: seconds that the version of the neighbour sleeps, or else the measurement is void."""
        own, other = self._world.api.run([load], self._seconds, [neighbour] if neighbour else [])
        self._own.setdefault(contender, []).append(own)
        said = ", ".join(f"{name} {own.percentile(share):.1f} ms" for name, share in PERCENTILES.items())
        _say(f"{self.case}, {contender}: {said}; {dict(own.kinds)}; neighbour {dict(other.kinds)}")
        if neighbour:
            self._others.setdefault(contender, []).append(other)
            if other.percentile(50) < 1000 * slowest:
                raise SystemExit(
                    f"{contender}: its median answer took {other.percentile(50):.0f} ms: the version isn't as slow as it should be"
                )

    def rows(self) -> list[Row]:
        rows, together = list[Row](), LEAD + self._seconds + TAIL
        first = next(iter(self._own))
        for contender, found in self._own.items():
            rows += [Row(self.case, contender, name, "ms", [one.percentile(share) for one in found]) for name, share in PERCENTILES.items()]
            rows += [] if contender == first else self.ratios(contender, first)
            rows.append(Row(self.case, contender, FAILED, "", [one.failed for one in found]))
            others = self._others.get(contender, [])
            if others:
                rows.append(Row(self.case, contender, "the neighbour's own p50", "ms", [one.percentile(50) for one in others]))
                rows.append(
                    Row(self.case, contender, "the neighbour's answers", "1/s", [len(one.milliseconds) / together for one in others])
                )
        return rows

    def ratios(self, contender: str, reference: str) -> list[Row]:
        pairs = list(zip(self._own[contender], self._own[reference], strict=True))
        return [
            Row(
                self.case,
                contender,
                f"{name}, ratio to: {reference}",
                "x",
                [one.percentile(p) / other.percentile(p) for one, other in pairs],
            )
            for name, p in PERCENTILES.items()
        ]


def _thousand(folder: Path, given: argparse.Namespace) -> list[Row]:
    figures: dict[tuple[str, str, str], list[float]] = {}
    with Gateways(folder, BUSY) as gateways:
        for count in (BUSY, LOADED):
            gateways.prepare(count)
        loads = [Load(name, range(USERS), 1) for name in gateways.busy]
        for _ in range(given.rounds):
            for count in (BUSY, LOADED):
                contender = f"{count:,} recommenders loaded"
                with gateways.running(count) as (api, process), Peak(process.num_threads) as threads:
                    figures.setdefault((contender, "threads, before any load", ""), []).append(process.num_threads())
                    api.run(loads, _WARM)
                    outcome, _ = api.run(loads, given.seconds)
                    resident = process.memory_info().rss / 2**20
                for (metric, unit), value in {
                    ("threads, at most", ""): threads.value,
                    ("resident memory", "MiB"): resident,
                    **{(name, "ms"): outcome.percentile(share) for name, share in PERCENTILES.items()},
                    ("answers", "1/s"): len(outcome.milliseconds) / given.seconds,
                    (FAILED, ""): outcome.failed,
                }.items():
                    figures.setdefault((contender, metric, unit), []).append(value)
                _say(
                    f"{contender}: {threads.value} threads, {resident:.0f} MiB, p50 {outcome.percentile(50):.1f} ms; {dict(outcome.kinds)}"
                )
    case = f"a gateway, {BUSY} recommenders busy"
    return [Row(case, contender, metric, unit, values) for (contender, metric, unit), values in figures.items()]


class Peak:
    """The highest value of a figure while the context is open, looked at ten times a second."""

    def __init__(self, read: Callable[[], int]) -> None:
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


def _in_turn(number: int, *situations: T) -> Sequence[T]:
    """The other order in every second round: whatever comes later in a round has no advantage."""
    return situations[::-1] if number % 2 else situations


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


PARTS: Mapping[str, Callable[[Path, argparse.Namespace], list[Row]]] = {
    "sleeping": _sleeping,
    "computing": _computing,
    "canary": _canary,
    "thousand": _thousand,
}

if __name__ == "__main__":
    raise SystemExit(main())
