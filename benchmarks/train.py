"""Training steps: our families by gradient, the same models written plainly in Keras and torch, and the machine's own limit.

    python -m benchmarks.train [--only NAME ...] [--runs 3] [--steps 30] [--small] [--check]

Every contender is a process of its own and trains the same batches out of memory, made before the clock starts; a few steps go by
uncounted. The turns alternate. A row needs at least its matrix products at the rate of this framework's own product of two 2,048 x 2,048
matrices in this run, and its vectors at the memory's bandwidth: `of the limit` is that time over the measured time. With --check no table
is written: it checks that every contender learns.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Annotated

from benchmarks import train_cases
from benchmarks.harness import Fields, Outcome, Row, alternate, benchmark, say, watched
from benchmarks.tables import with_ratios
from benchmarks.train_cases import Case, LikesCase
from benchmarks.train_contenders import CASE, CONTENDERS

FRAMEWORKS = ("tensorflow", "torch")
OURS = tuple(f"eyas on {name}" for name in FRAMEWORKS)
LIKES = ("eyas in numpy", "keras: rows of likes", "torch: rows of likes")
JAX = "eyas on jax"
PEERS = ("keras: model.fit", "torch: plain loop", "torch: plain loop, sparse")
TIMES = (1, 10, 100, 1_000)
Contest = tuple[Case | LikesCase, Sequence[str]]
Measured = Mapping[str, Sequence[Mapping[str, float]]]
"""The runs of each contender of a case."""


def _parts(batch: int) -> dict[str, list[Contest]]:
    """By name: cases, and their contenders."""

    def ours(*switches: str) -> list[str]:
        return [", ".join((name, *switches)) for name in OURS]

    rows = 2_000 if batch > 512 else 200
    switched = [*ours(), *ours("compiled"), *ours("bfloat16"), *ours("bfloat16", "compiled")]
    return {
        "families": [
            (train_cases.movielens(batch), [*OURS, JAX, *PEERS]),
            (train_cases.neumf(batch), [*OURS, JAX, *PEERS]),
            (train_cases.LIKES, LIKES),
        ],
        "growth": [(train_cases.grown(batch, times, rows), [*OURS, JAX, *PEERS]) for times in TIMES],
        "fused": [(train_cases.many(batch), [*ours(), *ours("tables apart"), *PEERS])],
        "padded": [(train_cases.odd(batch, aligned=aligned), OURS) for aligned in (False, True)],
        "switches": [(case, switched) for case in (train_cases.movielens(batch), train_cases.deep(batch))],
    }


@benchmark("train")
def train(
    only: Annotated[list[str] | None, "all by default", tuple(sorted(_parts(8)))] = None,
    runs: int = 3,
    steps: int = 30,
    small: Annotated[bool, "batches of 512, to see that it works"] = False,
    check: bool = False,
) -> Iterator[Outcome]:
    if missing := [name for name in ("torch", "jax") if find_spec(name) is None]:
        raise SystemExit(f"missing {' and '.join(missing)}: run make {' '.join(f'setup-{name}' for name in missing)}")
    batch = 512 if small else 8_192
    yield Fields(batch=batch)
    contests: dict[Case | LikesCase, list[str]] = {}  # two parts may have a case with some contenders in common
    for part in only or _parts(batch):
        for case, names in _parts(batch)[part]:
            contests[case] = list(dict.fromkeys([*contests.get(case, ()), *names]))
    if check:
        for case, names in contests.items():
            check_losses(case, measure(case, names, 1, steps))
        raise SystemExit(0)
    limits: dict[str, float] = {}
    for framework in ("numpy", *FRAMEWORKS, "jax"):
        limits |= watched([sys.executable, "-m", "benchmarks.train_contenders", "rates", framework]).document
    for name, rate in limits.items():
        contender, metric, unit = (
            ("numpy", "memory, read and written", "GB/s") if name == "bandwidth" else (name, "matrix products", "GFLOP/s")
        )
        yield Row("the machine", contender, metric, unit, [rate / 1e9])
    for case, names in contests.items():
        yield from table(case, measure(case, names, runs, steps), limits)


def measure(case: Case | LikesCase, names: Sequence[str], runs: int, steps: int) -> Measured:
    def run(name: str) -> dict[str, float]:
        command = [sys.executable, "-m", "benchmarks.train_contenders", name, CASE.dump_json(case).decode(), str(steps)]
        document: dict[str, float] = watched(command).document
        say(f"{case.name}, {name}: {1e3 * document['seconds']:.1f} ms a step")
        return document

    return alternate({name: partial(run, name) for name in names}, runs)


def check_losses(case: Case | LikesCase, measured: Measured) -> None:
    for name, (run,) in measured.items():
        if not run["last"] < run["first"]:
            raise SystemExit(f"{case.name}, {name}: the loss went from {run['first']:.4f} to {run['last']:.4f}")
    say(f"{case.name}: " + ", ".join(f"{name} {run['last']:.4f}" for name, (run,) in measured.items()))


def table(case: Case | LikesCase, measured: Measured, limits: Mapping[str, float]) -> Iterator[Row]:
    rows = []
    for name, runs in measured.items():
        seconds = [run["seconds"] for run in runs]
        kind = "bfloat16" if "bfloat16" in name else "float32"
        rate = limits[f"{CONTENDERS[name].framework} {kind}"]
        least = case.rows * (case.flops / rate + case.bytes / limits["bandwidth"])
        rows += [
            Row(case.name, name, "throughput", "rows/s", [case.rows / each for each in seconds], note=CONTENDERS[name].note),
            Row(case.name, name, "a step", "ms", [1e3 * each for each in seconds]),
            Row(case.name, name, "of the limit", "%", [100 * least / each for each in seconds]),
        ]
    yield from with_ratios(rows, "throughput")


if __name__ == "__main__":
    train()
