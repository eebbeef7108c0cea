"""Steps of training: our families by gradient beside the same models written plainly in Keras and torch, and the machine's own limit.

    python -m benchmarks.train [--only NAME ...] [--runs 3] [--steps 30] [--small] [--check]

Every contender is a process of its own and trains the same batches out of memory, made before the clock starts; a few steps go by
uncounted. The turns alternate. What a row needs at least is its matrix products at the rate that this framework's own product of two
2,048 x 2,048 matrices has in this run, and its vectors at the memory's bandwidth: `of the limit` is that time over the one that was taken.
With --check no table is written: whether every contender learns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from benchmarks import train_cases, train_machine
from benchmarks.loader_processes import watched
from benchmarks.report import Row, publish
from benchmarks.train_cases import Case, LikesCase
from benchmarks.train_contenders import CONTENDERS, write_case
from benchmarks.train_machine import Limits

FRAMEWORKS = ("tensorflow", "torch")
OURS = tuple(f"eyas on {name}" for name in FRAMEWORKS)
LIKES = ("eyas in numpy", "keras: rows of likes", "torch: rows of likes")
JAX = "eyas on jax"
PEERS = ("keras: model.fit", "torch: plain loop", "torch: plain loop, sparse")
TIMES = (1, 10, 100, 1_000)
Turns = Sequence[tuple[Case | LikesCase, Sequence[str]]]
Found = dict[tuple[str, str], list[dict[str, float]]]
"""By case and contender: each run's."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=sorted(_parts(8)), help="all, if not given")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--small", action="store_true", help="batches of 512, to see that it works")
    parser.add_argument("--check", action="store_true")
    said = parser.parse_args()
    if missing := [name for name in ("torch", "jax") if find_spec(name) is None]:
        parser.error(f"{' and '.join(missing)} can't be imported here: make {' '.join(f'setup-{name}' for name in missing)}")
    parts = {name: one for name, one in _parts(512 if said.small else 8_192).items() if not said.only or name in said.only}
    if said.check:
        return _checked([turn for one in parts.values() for turn in one], said.steps)
    limits = train_machine.measured()
    for name, value in limits.products.items():
        _say(f"{name}: {value / 1e9:,.0f} GFLOP/s")
    _say(f"memory: {limits.bandwidth / 1e9:.1f} GB/s")
    found = measured([turn for one in parts.values() for turn in one], said.runs, said.steps)
    publish("train", [*machine(limits), *table(found, limits)], batch=512 if said.small else 8_192)
    return 0


def _parts(batch: int) -> dict[str, list[tuple[Case | LikesCase, Sequence[str]]]]:
    """By name: cases, and who trains them."""

    def ours(*said: str) -> list[str]:
        return [", ".join((one, *said)) for one in OURS]

    rows = 2_000 if batch > 512 else 200
    return {
        "families": [
            (train_cases.movielens(batch), [*OURS, JAX, *PEERS]),
            (train_cases.neumf(batch), [*OURS, JAX, *PEERS]),
            (train_cases.movielens_likes(), LIKES),
        ],
        "growth": [(train_cases.grown(batch, times, rows), [*OURS, JAX, *PEERS]) for times in TIMES],
        "fused": [(train_cases.many(batch), [*ours(), *ours("tables apart"), *PEERS])],
        "padded": [
            (replace(train_cases.odd(batch, aligned=aligned), name=f"widths by rule, {'padded' if aligned else 'as they are'}"), OURS)
            for aligned in (False, True)
        ],
        "switches": [
            (case, [*ours(), *ours("compiled"), *ours("bfloat16"), *ours("bfloat16", "compiled")])
            for case in (train_cases.movielens(batch), train_cases.deep(batch))
        ],
    }


def measured(turns: Turns, runs: int, steps: int) -> Found:
    found: Found = {}
    with tempfile.TemporaryDirectory(prefix="train-") as folder:
        for number in range(runs):
            for case, names in turns:
                path = write_case(case, Path(folder) / "case.json")
                for name in names:
                    if len(found.get((case.name, name), ())) > number:
                        continue  # another part has it too
                    one, _, _ = watched([sys.executable, "-m", "benchmarks.train_contenders", name, str(path), str(steps)])
                    found.setdefault((case.name, name), []).append(one | {"rows": case.rows, "flops": case.flops, "bytes": case.bytes})
                    _say(f"{case.name}, {name}: {1e3 * one['seconds']:.1f} ms a step, {case.rows / one['seconds']:,.0f} rows/s")
    return found


def _checked(turns: Turns, steps: int) -> int:
    found = measured(turns, 1, steps)
    for case in dict.fromkeys(name for name, _ in found):
        lasts = {name: runs[0]["last"] for (at, name), runs in found.items() if at == case}
        for name, last in lasts.items():
            first = found[case, name][0]["first"]
            if not last < first:
                raise SystemExit(f"{case}, {name}: the loss went from {first:.4f} to {last:.4f}")
        _say(f"{case}: " + ", ".join(f"{name} {last:.4f}" for name, last in lasts.items()))
    return 0


def machine(limits: Limits) -> list[Row]:
    rows = [Row("the machine", name, "matrix products", "GFLOP/s", [value / 1e9]) for name, value in limits.products.items()]
    return [*rows, Row("the machine", "numpy", "memory, read and written", "GB/s", [limits.bandwidth / 1e9])]


def table(found: Found, limits: Limits) -> list[Row]:
    speeds = {key: [one["rows"] / one["seconds"] for one in runs] for key, runs in found.items()}
    rows = []
    for (case, name), runs in found.items():
        ours = statistics.median(speeds[case, name])
        ratios = {other: ours / statistics.median(values) for (at, other), values in speeds.items() if at == case and other != name}
        rows.append(Row(case, name, "throughput", "rows/s", speeds[case, name], ratios, CONTENDERS[name].note))
        rows.append(Row(case, name, "a step", "ms", [1e3 * one["seconds"] for one in runs]))
        rows.append(Row(case, name, "of the limit", "%", [100 * _least(name, one, limits) / one["seconds"] for one in runs]))
    return rows


def _least(name: str, run: Mapping[str, float], limits: Limits) -> float:
    """Seconds that a step takes at least."""
    kind = "bfloat16" if "bfloat16" in name else "float32"
    rate = limits.products[f"{CONTENDERS[name].framework} {kind}"]
    return run["rows"] * (run["flops"] / rate + run["bytes"] / limits.bandwidth)


def _say(what: str) -> None:
    Console(soft_wrap=True).print(what, highlight=False)


if __name__ == "__main__":
    raise SystemExit(main())
