"""Steps of each neural family beside the same model written plainly, by table size, on TensorFlow, torch and JAX.

    python -m benchmarks.twins [--frameworks NAME ...] [--families NAME ...] [--sizes ROWS ...] [--rounds 7] [--results FILE] [--memory]

Both sides take turns in one process: the plain side is a custom loop with Keras' Adam on TensorFlow and JAX, and with torch's Adam. The
ratio of a round is the plain side's time over ours; above 1 we are faster. Its interval is a t interval of the logarithms at 95%. A case
whose interval is wholly below 1 is a miss. Results lie in FILE, a line a case, and a case that has a line is not measured again. With
--memory the memory that each side adds is compared instead.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from scipy import stats

from benchmarks import train_cases
from benchmarks.harness import Missed, Outcome, Row, benchmark, say, watched
from benchmarks.train_cases import FAMILIES, Case
from benchmarks.train_contenders import CASE
from pipelines.models.neural.frameworks import NAMES

SIZES = (1_000, 10_000, 100_000, 1_000_000)
SIDES = ("eyas", "plain")


@benchmark("twins")
def twins(
    frameworks: Annotated[Sequence[str], "all by default", NAMES] = NAMES,
    families: Annotated[Sequence[str], "all by default; neumf also on ml-1m's shape", FAMILIES] = FAMILIES,
    sizes: Annotated[Sequence[int], "rows of the tables of users and items"] = SIZES,
    rounds: int = 7,
    batch: Annotated[int, "rows of a step; two towers take at most 4,096"] = 8_192,
    results: Annotated[Path, "measured cases, a line each"] = Path("var/bench/twins.jsonl"),
    memory: Annotated[bool, "compares memory, not time"] = False,
) -> Iterator[Outcome]:
    cases = [train_cases.sized(family, rows, batch) for family in FAMILIES if family in families for rows in sizes]
    if "neumf" in families:
        cases.append(train_cases.neumf(batch))
    for case in cases:
        for framework in frameworks:
            yield from _added(case, framework) if memory else _compared(case, framework, _measured(case, framework, rounds, results))


def _measured(case: Case, framework: str, rounds: int, results: Path) -> dict[str, Any]:
    key = {"case": case.name, "batch": case.batch, "framework": framework, "rounds": rounds}
    if results.exists():
        for line in map(json.loads, results.read_text().splitlines()):
            if all(line[name] == value for name, value in key.items()):
                return dict(line)
    results.parent.mkdir(parents=True, exist_ok=True)
    line = key | _child(case, framework, str(rounds))
    with results.open("a") as stream:
        stream.write(json.dumps(line) + "\n")
    return line


def _child(case: Case, framework: str, what: str) -> dict[str, Any]:
    return watched([sys.executable, "-m", "benchmarks.twin_models", framework, CASE.dump_json(case).decode(), what]).document


def _compared(case: Case, framework: str, line: dict[str, Any]) -> Iterator[Outcome]:
    seconds = {side: np.array(line["seconds"][side]) for side in SIDES}
    ratios = seconds["plain"] / seconds["eyas"]
    low, high = interval(ratios)
    for side in SIDES:
        yield Row(case.name, f"{side} on {framework}", "steps", "1/s", (1 / seconds[side]).tolist())
    ratio = Row(case.name, f"eyas on {framework}", "time of the plain side over ours", "x", ratios.tolist())
    yield replace(ratio, note=f"95% interval {low:.2f} to {high:.2f}")
    say(f"{case.name}, {framework}: {np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f}), 95% {low:.2f} to {high:.2f}")
    if high < 1:
        yield Missed(f"{case.name} on {framework}: slower than its plain twin, {low:.2f} to {high:.2f} times its speed")


def _added(case: Case, framework: str) -> Iterator[Outcome]:
    mib = {side: _child(case, framework, side)["mib"] for side in SIDES}
    for side, size in mib.items():
        yield Row(case.name, f"{side} on {framework}", "memory of model, optimizer and steps", "MiB", [size])
    say(f"{case.name}, {framework}: " + ", ".join(f"{side} {size:,.0f} MiB" for side, size in mib.items()))
    if mib["eyas"] > 1.05 * mib["plain"]:
        yield Missed(f"{case.name} on {framework}: {mib['eyas']:,.0f} MiB, its plain twin {mib['plain']:,.0f}")


def interval(ratios: Sequence[float] | np.ndarray[Any, Any], confidence: float = 0.95) -> tuple[float, float]:
    """Returns the t interval of the geometric mean."""
    logs = np.log(ratios)
    spread = stats.t.ppf((1 + confidence) / 2, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return float(np.exp(logs.mean() - spread)), float(np.exp(logs.mean() + spread))


if __name__ == "__main__":
    twins()
