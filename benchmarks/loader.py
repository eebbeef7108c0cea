"""Batches of MovieLens-shaped rows: our loader into NumPy, TensorFlow and torch, beside TensorFlow's, torch's and Merlin's loaders.

    python -m benchmarks.loader [--rows 4000000] [--grown 16000000] [--runs 5] [--seconds 20] [--only NAME ...] [--check]
    python -m benchmarks.loader --memory | --fit | --profile

Batches of 32,768 rows: user, item, two floats, genres as a list of one to ten, a label. Each contender is a process of its own, shuffles
and times its work without its imports; the turns alternate. Memory is the peak less what imports took. One that needs longer than
SECONDS for an epoch reads as many rows as it did in the first turn, and its row says so. With --check no time is taken: every
contender adds up all that it got of 300,000 rows. Merlin is installed on first use (var/bench/merlin), torch by `make setup-torch`.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import loader_fit, loader_memory, loader_profile
from benchmarks.loader_contenders import POOL, Contender, contenders
from benchmarks.loader_processes import Run, prepare, run
from benchmarks.report import Row, publish

CHECKED = 300_000
REFERENCE = "pyarrow: iter_batches"
Found = dict[tuple[str, int], list[Run]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--grown", type=int, default=16_000_000, help="0: not at all")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="of a contender's run, at most")
    parser.add_argument("--only", nargs="*", choices=[one.name for one in contenders()], help="all, if not given")
    parser.add_argument("--steps", type=int, default=200, help="of --fit")
    for name, help in _MODES.items():
        parser.add_argument(f"--{name}", action="store_true", help=help)
    said = parser.parse_args()
    chosen = [one for one in contenders() if not said.only or one.name in said.only]
    Path("var/bench").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="loader-", dir="var/bench") as scratch:
        folder = Path(scratch).absolute()
        if said.memory:
            loader_memory.measure(folder)
        elif said.fit:
            loader_fit.measure(folder, said.runs, said.steps)
        elif said.profile:
            loader_profile.measure(folder, said.rows)
        elif said.check:
            return _checked(chosen, folder)
        else:
            found = measured(chosen, folder, said.rows, said.runs, said.seconds)
            if said.grown:
                found |= measured(chosen, folder, said.grown, said.runs, said.seconds)
            publish("loader", table(found, {one.name: one for one in chosen}))
    return 0


_MODES = {
    "memory": "ours alone, by a budget: its peak for 4, 16 and 64 million rows",
    "fit": "a model trained on what a loader gives: ours, TensorFlow's, Merlin's",
    "profile": "where our loader's time goes",
    "check": "every contender gets every row once, and lists with their rows",
}


def measured(chosen: Sequence[Contender], folder: Path, count: int, runs: int, seconds: float = 0.0) -> Found:
    place = folder / str(count)
    prepare(place, count, {one.needs for one in chosen})
    found: Found = {}
    parts: dict[str, int] = {}
    for turn in range(runs):
        for one in chosen:
            had = _ran(one, place, seconds, parts.get(one.name, 0))
            if turn == 0 and not had.whole:
                parts[one.name] = -(-had.rows // one.quantum) * one.quantum
                if parts[one.name] != had.rows:
                    had = _ran(one, place, 0.0, parts[one.name])
            rate, cost = had.rate(steady=one.steady), had.cost(steady=one.steady)
            said = f"{count:,} rows, {one.name}: {rate:,.0f} rows/s, {cost:.3f} s CPU a million, {had.peak - had.imports:,.0f} MiB"
            Console(soft_wrap=True).print(said + ("" if had.whole else f" ({had.rows:,} rows)"))
            found.setdefault((one.name, count), []).append(had)
    _agree({name: runs[-1].sums for (name, _), runs in found.items() if runs[-1].whole})
    shutil.rmtree(place)
    return found


def _ran(one: Contender, place: Path, seconds: float, rows: int) -> Run:
    shutil.rmtree(place / "first", ignore_errors=True)
    return run(one.command(), place, pool=POOL, seconds=0.0 if rows else seconds, rows=rows)


def checked(chosen: Sequence[Contender], folder: Path, count: int = CHECKED) -> dict[str, Mapping[str, float]]:
    """Of each, what it added up."""
    prepare(folder, count, {one.needs for one in chosen})
    found = {one.name: run(one.command(), folder, pool=POOL, check=True).sums for one in chosen}
    _agree(found)
    return found


def _checked(chosen: Sequence[Contender], folder: Path) -> int:
    for name, sums in checked(chosen, folder).items():
        Console(soft_wrap=True).print(f"{name}: {', '.join(f'{what} {value:,.0f}' for what, value in sums.items())}")
    Console().print("all agree")
    return 0


def _agree(found: Mapping[str, Mapping[str, float]]) -> None:
    """Whoever adds up a column gets what the others get; sums of floats but for the order of adding."""
    for what in {name for sums in found.values() for name in sums}:
        values = {name: sums[what] for name, sums in found.items() if what in sums}
        if max(values.values()) - min(values.values()) > 1e-9 * abs(max(values.values())):
            raise SystemExit(f"the contenders didn't get the same rows: {what} adds up to {values}")


def table(found: Found, named: Mapping[str, Contender]) -> list[Row]:
    rows = []
    speeds = {key: [one.rate(steady=named[key[0]].steady) for one in runs] for key, runs in found.items()}
    for (name, count), runs in found.items():
        ours = statistics.median(speeds[name, count])
        ratios = {other: ours / statistics.median(values) for (other, at), values in speeds.items() if at == count and other != name}
        partly = "" if runs[-1].whole else f"{runs[-1].rows:,} of the rows" + (", after the first batch" if named[name].steady else "")
        note = "; ".join(filter(None, (named[name].differs, partly)))
        case = f"{count:,} rows"
        rows += [
            Row(case, name, "throughput", "rows/s", speeds[name, count], ratios, note),
            Row(case, name, "CPU a million rows", "s", [one.cost(steady=named[name].steady) for one in runs]),
            Row(case, name, "to the first batch", "s", [one.first for one in runs]),
            Row(case, name, "peak memory over imports", "MiB", [one.peak - one.imports for one in runs], note=_imports(runs)),
        ]
    return rows


def _imports(runs: Sequence[Run]) -> str:
    return f"imports took {statistics.median(one.imports for one in runs):,.0f} MiB"


if __name__ == "__main__":
    raise SystemExit(main())
