"""What users of recommend notice while somebody attacks the HTTP server.

    python -m benchmarks.attacks [--rounds 3] [--seconds 3] [--rate 50] [--attack "huge headers" "slow headers" ...]

A platform process with a real Triton; users ask for recommendations at a steady rate (an open loop: latency counts from when a request is
due). Each round measures them quiet and under each attack, every second round in the other order. An attack is a process of the lowest
priority (benchmarks/attack_clients.py). A ratio compares two measurements of one round. The promise: under an attack the p50 is at most
twice as high as without it. The exit code is 1 if the promise is missed.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from benchmarks.attack_clients import ATTACKS, Targets
from benchmarks.neighbours import PERCENTILES, Peak
from benchmarks.neighbours_world import USERS, Load, Neighbourhood, Outcome
from benchmarks.report import Row, exit_code, publish
from shared.testing.model_server_suite import tiny_model
from tests.servers.platform_process import until

PROMISED = 2.0
QUIET, PLATFORM = "quiet", "platform"
CASE = "recommend under attack"
RATIO = f"ratio to {QUIET}"
FAILED = "answers that failed or fell back"
_ASKED, _ATTACKED = "asked", "attacked"
_CONNECTIONS = 64
"""Of the open loop: more than are ever under way."""
_WARM = 2.0
_SETTLED = 1.0
"""Seconds between two measurements, for what the attack has left behind."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement")
    parser.add_argument("--rate", type=float, default=50, help="requests a second of the measured users")
    parser.add_argument("--attack", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="eyas-attacks-") as folder, Neighbourhood(Path(folder)) as world:
        for name in (_ASKED, _ATTACKED):
            world.add(name, tiny_model(1))
        rounds = Rounds(world, options.seconds, options.rate)
        before = _resident(world)
        for number in range(options.rounds):
            situations = [QUIET, *options.attack]
            for situation in situations[::-1] if number % 2 else situations:
                rounds.measure(situation)
        after = _resident(world)
    rows = [*rounds.rows(), Row(CASE, PLATFORM, "resident memory, before", "MiB", [before])]
    rows.append(Row(CASE, PLATFORM, "resident memory, after", "MiB", [after]))
    publish("attacks", rows)
    return exit_code(missed_promises(rows))


def missed_promises(rows: Sequence[Row]) -> list[str]:
    judged = [(row, statistics.median(row.values)) for row in rows if row.metric == f"p50, {RATIO}"]
    return [f"{row.contender}: {row.metric} is {value:.2f}, expected at most {PROMISED:g}" for row, value in judged if value > PROMISED]


class Rounds:
    def __init__(self, world: Neighbourhood, seconds: float, rate: float) -> None:
        self._world, self._seconds = world, seconds
        self._load = Load(_ASKED, range(USERS), _CONNECTIONS, rate)
        self._targets = targets(world)
        self._outcomes: dict[str, list[Outcome]] = {}
        self._memory: dict[str, list[float]] = {}
        self._threads: dict[str, list[float]] = {}
        self._answers: dict[str, Counter[str]] = {}
        world.api.run([self._load], _WARM)

    def measure(self, situation: str) -> None:
        process = self._world.process
        answers = self._answers.setdefault(situation, Counter())
        with Peak(process.num_threads) as threads, Peak(lambda: process.memory_info().rss) as memory:
            if situation == QUIET:
                outcome, _ = self._world.api.run([self._load], self._seconds)
            else:
                with attacking(situation, self._targets, answers):
                    outcome, _ = self._world.api.run([self._load], self._seconds)
        self._outcomes.setdefault(situation, []).append(outcome)
        self._memory.setdefault(situation, []).append(memory.value / 2**20)
        self._threads.setdefault(situation, []).append(threads.value)
        figures = ", ".join(f"{name} {outcome.percentile(share):.1f} ms" for name, share in PERCENTILES.items())
        sys.stderr.write(
            f"{time.strftime('%H:%M:%S')} {situation}: {figures}, {memory.value >> 20} MiB, {threads.value} threads; "
            f"{dict(outcome.kinds)}; attack {dict(answers)}\n"
        )
        until("the platform answers again", lambda: self._world.answers(_ASKED), 300)
        self._world.cancel_runs(_ATTACKED)
        time.sleep(_SETTLED)

    def rows(self) -> list[Row]:
        rows = list[Row]()
        for situation, outcomes in self._outcomes.items():
            note = ", ".join(f"{status}: {count}" for status, count in sorted(self._answers[situation].items()))
            for name, share in PERCENTILES.items():
                values = [outcome.percentile(share) for outcome in outcomes]
                rows.append(Row(CASE, situation, name, "ms", values))
                if situation != QUIET:
                    pairs = zip(values, self._outcomes[QUIET], strict=True)
                    rows.append(Row(CASE, situation, f"{name}, {RATIO}", "x", [value / quiet.percentile(share) for value, quiet in pairs]))
            rows.append(Row(CASE, situation, FAILED, "", [outcome.failed for outcome in outcomes]))
            rows.append(Row(CASE, situation, "resident memory, at most", "MiB", self._memory[situation]))
            rows.append(
                Row(CASE, situation, "threads, at most", "", self._threads[situation], note=note and f"the attack's answers: {note}")
            )
        return rows


def _resident(world: Neighbourhood) -> float:
    return float(world.process.memory_info().rss) / 2**20


def targets(world: Neighbourhood) -> Targets:
    host, port = world.address
    return Targets(host, port, world.metrics_port, _ATTACKED, {role: world.token(role) for role in ("client", "viewer", "operator")})


@contextmanager
def attacking(name: str, where: Targets, answers: Counter[str]) -> Iterator[None]:
    """A process that attacks from before to after; its answers are added up."""
    command = [sys.executable, "-m", "benchmarks.attack_clients", name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(asdict(where)))
        process.stdin.close()
        process.stdout.readline()
        yield
        process.terminate()
        answers.update(json.loads(process.stdout.read()))
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    raise SystemExit(main())
