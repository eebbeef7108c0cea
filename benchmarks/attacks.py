"""What users of recommend notice while an attacker floods the HTTP server.

    python -m benchmarks.attacks [--rounds 3] [--seconds 3] [--rate 50] [--attack "huge headers" "slow headers" ...]

A platform process with a real Triton; users ask for recommendations at a steady rate (an open loop: latency counts from when a request is
due). Each round measures them quiet and under each attack, every second round in the other order. An attack is a process of the lowest
priority (benchmarks/attack_clients.py). A ratio compares two measurements of one round. The promise: under an attack the p50 is at most
twice as high as without it. The exit code is 1 if the promise is missed.
"""

from __future__ import annotations

import json
import logging
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import Annotated

from benchmarks.attack_clients import ATTACKS, Targets
from benchmarks.harness import Row, benchmark, say, scratch, turns, until
from benchmarks.load import Outcome, run_loads
from benchmarks.neighbours import CONNECTIONS, SHARES, WARM, Peak, figures, resident_memory
from benchmarks.neighbours_world import USERS, Neighbourhood
from shared.testing.model_server_suite import tiny_model

PROMISED = 2.0
QUIET, PLATFORM = "quiet", "platform"
CASE = "recommend under attack"
RATIO = f"ratio to {QUIET}"
FAILED = "answers that failed or fell back"
_MEASURED, _ATTACKED = "asked", "attacked"
_SETTLED = 1.0
"""Seconds between two measurements, for what the attack has left behind."""


def missed_promises(rows: Sequence[Row]) -> list[str]:
    judged = [(row, statistics.median(row.values)) for row in rows if row.metric == f"p50, {RATIO}"]
    return [f"{row.contender}: {row.metric} is {value:.2f}, expected at most {PROMISED:g}" for row, value in judged if value > PROMISED]


@benchmark("attacks", missed_promises)
def attacks(
    rounds: int = 3,
    seconds: Annotated[float, "of each measurement"] = 3,
    rate: Annotated[float, "requests a second of the measured users"] = 50,
    attack: Annotated[Sequence[str], tuple(ATTACKS)] = tuple(ATTACKS),
) -> Iterator[Row]:
    logging.basicConfig(level=logging.ERROR)
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    memories: dict[str, list[float]] = defaultdict(list)
    threads: dict[str, list[float]] = defaultdict(list)
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    with scratch() as folder, Neighbourhood(folder) as world:
        for name in (_MEASURED, _ATTACKED):
            world.add(name, tiny_model(1))
        process, load, targets = world.process, world.load(_MEASURED, range(USERS), CONNECTIONS, rate), targets_of(world)
        run_loads([load], WARM)
        before = resident_memory(process)
        for situation in turns([QUIET, *attack], rounds):
            attacker = nullcontext() if situation == QUIET else attacking(situation, targets, answers[situation])
            with Peak(process.num_threads) as most_threads, Peak(lambda: resident_memory(process)) as memory, attacker:
                outcome, _ = run_loads([load], seconds)
            outcomes[situation].append(outcome)
            memories[situation].append(memory.value)
            threads[situation].append(most_threads.value)
            say(f"{situation}: {figures(outcome)}, {memory.value:.0f} MiB; {dict(outcome.kinds)}; attack {dict(answers[situation])}")
            until("the platform answers again", lambda: world.answers(_MEASURED), 300)
            world.cancel_runs(_ATTACKED)
            time.sleep(_SETTLED)
        after = resident_memory(process)
    for situation, own in outcomes.items():
        for share in SHARES:
            values = [outcome.percentile(share) for outcome in own]
            yield Row(CASE, situation, f"p{share}", "ms", values)
            if situation != QUIET:
                quiet = [outcome.percentile(share) for outcome in outcomes[QUIET]]
                ratios = [value / reference for value, reference in zip(values, quiet, strict=True)]
                yield Row(CASE, situation, f"p{share}, {RATIO}", "x", ratios)
        yield Row(CASE, situation, FAILED, "", [outcome.failed for outcome in own])
        yield Row(CASE, situation, "resident memory, at most", "MiB", memories[situation])
        note = ", ".join(f"{status}: {count}" for status, count in sorted(answers[situation].items()))
        yield Row(CASE, situation, "threads, at most", "", threads[situation], note=note and f"the attack's answers: {note}")
    yield Row(CASE, PLATFORM, "resident memory, before", "MiB", [before])
    yield Row(CASE, PLATFORM, "resident memory, after", "MiB", [after])


def targets_of(world: Neighbourhood) -> Targets:
    host, port = world.address
    return Targets(host, port, world.metrics_port, _ATTACKED, {role: world.token(role) for role in ("client", "viewer", "operator")})


@contextmanager
def attacking(name: str, targets: Targets, answers: Counter[str]) -> Iterator[None]:
    """A process that attacks from before to after; its answers are added up."""
    command = [sys.executable, "-m", "benchmarks.attack_clients", name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(asdict(targets)))
        process.stdin.close()
        process.stdout.readline()
        yield
        process.terminate()
        answers.update(json.loads(process.stdout.read()))
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    attacks()
