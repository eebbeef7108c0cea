"""What users of recommend notice while an attacker floods the HTTP server.

    python -m benchmarks.attacks [--rounds 3] [--seconds 3] [--rate 50] [--attack "huge headers" "slow headers" ...]

A platform process with a real Triton; users ask for recommendations at a steady rate (an open loop: latency counts from when a request is
due). Each round measures them quiet and under each attack, every second round in the other order. An attack is a process of the lowest
priority (benchmarks/attack_clients.py). A ratio compares two measurements of one round. The promise: under an attack the p50 is at most
twice as high as without it. The exit code is 1 if the promise is missed.
"""

from __future__ import annotations

import itertools
import json
import logging
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from typing import Annotated

from benchmarks.attack_clients import ATTACKS, Targets
from benchmarks.harness import Figures, Peak, Row, benchmark, say, scratch, turns, until
from benchmarks.load import run_loads
from benchmarks.neighbours import CONNECTIONS, SHARES, WARM, add_latencies, resident_memory, text_of
from benchmarks.neighbours_world import USERS, Neighbourhood
from shared.testing.model_server_suite import tiny_model

PROMISED = 2.0
QUIET, PLATFORM = "quiet", "platform"
CASE = "recommend under attack"
RATIO = f"ratio to {QUIET}"
THREADS = "threads, at most"
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
    figures, answers = Figures(CASE), defaultdict[str, Counter[str]](Counter)
    with scratch() as folder, Neighbourhood(folder) as world:
        for name in (_MEASURED, _ATTACKED):
            world.add(name, tiny_model(1))
        process, load, targets = world.process, world.load(_MEASURED, range(USERS), CONNECTIONS, rate), targets_of(world)
        run_loads([load], WARM)
        figures.add(PLATFORM, "resident memory, before", "MiB", resident_memory(process))
        for situation in turns([QUIET, *attack], rounds):
            attacker = nullcontext() if situation == QUIET else attacking(situation, targets, answers[situation])
            with Peak(process.num_threads) as threads, Peak(lambda: resident_memory(process)) as memory, attacker:
                outcome, _ = run_loads([load], seconds)
            add_latencies(figures, situation, outcome)
            figures.add(situation, "resident memory, at most", "MiB", memory.value)
            figures.add(situation, THREADS, "", threads.value)
            say(f"{situation}: {text_of(outcome)}, {memory.value:.0f} MiB; {dict(outcome.kinds)}; attack {dict(answers[situation])}")
            until("the platform answers again", lambda: world.answers(_MEASURED), 300)
            world.cancel_runs(_ATTACKED)
            time.sleep(_SETTLED)
        figures.add(PLATFORM, "resident memory, after", "MiB", resident_memory(process))
    for row in figures.rows():
        note = ", ".join(f"{status}: {count}" for status, count in sorted(answers[row.contender].items()))
        yield replace(row, note=f"the attack's answers: {note}") if note and row.metric == THREADS else row
    for situation, share in itertools.product(attack, SHARES):
        yield figures.ratios(situation, QUIET, f"p{share}", "ms", f"p{share}, {RATIO}")


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
