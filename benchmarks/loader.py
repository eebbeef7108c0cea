"""Batches of MovieLens-shaped rows: our loader into NumPy, TensorFlow and torch, and TensorFlow's, torch's and Merlin's loaders.

    python -m benchmarks.loader [--rows 4000000] [--grown 16000000] [--runs 5] [--seconds 20] [--only NAME ...] [--check]
    python -m benchmarks.loader --memory | --fit | --profile

Batches of 32,768 rows: user, item, two floats, genres as a list of one to ten, a label. Each contender is a process of its own, shuffles
and times its work without its imports; the turns alternate. Memory is the peak without the imports. One that needs longer than SECONDS for
an epoch reads as many rows as in its first turn, and its row says so. Merlin is installed on first use (var/bench/merlin), torch by
`make setup-torch`.

`--fit` trains the same Keras model by `model.fit` on TensorFlow from each source: Merlin's in the Keras 2 that it needs. The limit is one
repeated batch: the rest of a step is the loader's, for its waits and for the cores that it takes from the model.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from benchmarks import loader_profile
from benchmarks.harness import Fields, Outcome, Row, benchmark, say, scratch, turns, watched
from benchmarks.loader_contenders import BATCH, CONTENDERS, PEERS, POOL, Contender, Run, eyas, merlin, prepare, run
from benchmarks.tables import rows_of_runs, with_ratios

CHECKED = 300_000
BUDGET, TOLERANCE = 256, 1.1
"""MiB of `--memory`, and the share of it that the peak may reach."""
COUNTS = (4_000_000, 16_000_000, 64_000_000)
FITTED = 4_000_000
MODELS = {
    "small: width 8, one layer of 16": (8, "16"),
    "notebook's, width 32": (32, "128,128,128"),
    "notebook's, width 512": (512, "128,128,128"),
}
"""Width of the embeddings, and layers."""
LIMIT, MERLIN_LIMIT = "limit", "limit in Merlin's environment"
SOURCES: Mapping[str, tuple[str, Callable[[], str]]] = {
    LIMIT: ("limit", lambda: sys.executable),
    "eyas, Parquet": ("eyas-parquet", lambda: sys.executable),
    "eyas, cache": ("eyas-cache", lambda: sys.executable),
    "tensorflow: windowed": ("windowed", lambda: sys.executable),
    "merlin": ("merlin", merlin),
    MERLIN_LIMIT: ("limit", merlin),
}


@benchmark("loader")
def loader(  # noqa: PLR0913, PLR0917  options
    rows: int = 4_000_000,
    grown: Annotated[int, "0: not measured"] = 16_000_000,
    runs: int = 5,
    seconds: Annotated[float, "of a contender's run, at most"] = 20.0,
    only: Annotated[list[str] | None, "all by default", tuple(CONTENDERS)] = None,
    steps: Annotated[int, "of --fit"] = 200,
    memory: Annotated[bool, "our loader's peak by a budget, for 4, 16 and 64 million rows"] = False,
    fit: Annotated[bool, "a model trained on the batches of a loader: ours, TensorFlow's, Merlin's"] = False,
    profile: Annotated[bool, "CPU of the functions of our loader"] = False,
    check: Annotated[bool, "every contender gets every row once, and lists with their rows; no table is written"] = False,
) -> Iterator[Outcome]:
    contenders = [CONTENDERS[name] for name in only or CONTENDERS]
    with scratch(on_disk=True) as folder:
        if check:
            for name, sums in checked(contenders, folder).items():
                say(f"{name}: {', '.join(f'{column} {value:,.0f}' for column, value in sums.items())}")
            say("all agree")
            raise SystemExit(0)
        if memory:
            yield Fields(bench="loader-memory", budget=BUDGET)
            yield from measure_memory(folder)
        elif fit:
            yield Fields(bench="loader-fit")
            yield from measure_fit(folder, runs, steps)
        elif profile:
            yield Fields(bench="loader-profile")
            yield from loader_profile.measure(prepare(folder / str(rows), rows, {"cache"}), BATCH, POOL)
        else:
            for count in filter(None, (rows, grown)):
                yield from table(count, contenders, measure(contenders, folder, count, runs, seconds))


def measure(contenders: Sequence[Contender], folder: Path, count: int, runs: int, seconds: float = 0.0) -> dict[str, list[Run]]:
    """Returns the runs of each. The rows are removed."""
    rows = prepare(folder / str(count), count, {contender.needs for contender in contenders})
    measured: dict[str, list[Run]] = {contender.name: [] for contender in contenders}
    parts: dict[str, int] = {}

    def read(contender: Contender, part: int) -> Run:
        shutil.rmtree(rows / "first", ignore_errors=True)
        return run(contender.command(), rows, pool=POOL, seconds=0.0 if part else seconds, rows=part)

    for contender in turns(contenders, runs):
        name = contender.name
        latest = read(contender, parts.get(name, 0))
        if not measured[name] and not latest.whole:
            parts[name] = -(-latest.rows // contender.quantum) * contender.quantum
            if parts[name] != latest.rows:
                latest = read(contender, parts[name])
        measured[name].append(latest)
        say(f"{count:,} rows, {name}: {latest.rate(steady=contender.steady):,.0f} rows/s of {latest.rows:,} rows")
    _compare_sums({name: each[-1].sums for name, each in measured.items() if each[-1].whole})
    shutil.rmtree(rows)
    return measured


def checked(contenders: Sequence[Contender], folder: Path, count: int = CHECKED) -> dict[str, Mapping[str, float]]:
    """Returns the sums of the columns that each contender got."""
    prepare(folder, count, {contender.needs for contender in contenders})
    sums = {contender.name: run(contender.command(), folder, pool=POOL, check=True).sums for contender in contenders}
    _compare_sums(sums)
    return sums


def _compare_sums(sums: Mapping[str, Mapping[str, float]]) -> None:
    """Contenders with the same column must have the same sum; sums of floats depend on the order of adding."""
    for column in {column for each in sums.values() for column in each}:
        values = {name: each[column] for name, each in sums.items() if column in each}
        if max(values.values()) - min(values.values()) > 1e-9 * abs(max(values.values())):
            raise SystemExit(f"the contenders did not get the same rows: {column} adds up to {values}")


def table(count: int, contenders: Iterable[Contender], measured: Mapping[str, Sequence[Run]]) -> Iterator[Row]:
    rows = []
    for contender in contenders:
        runs, steady, case = measured[contender.name], contender.steady, f"{count:,} rows"
        part = "" if runs[-1].whole else f"{runs[-1].rows:,} of the rows" + (", after the first batch" if steady else "")
        imports = statistics.median(each.imports for each in runs)
        for metric, unit, values, note in (
            ("throughput", "rows/s", [each.rate(steady=steady) for each in runs], "; ".join(filter(None, (contender.differs, part)))),
            ("CPU a million rows", "s", [each.cost(steady=steady) for each in runs], ""),
            ("to the first batch", "s", [each.first for each in runs], ""),
            ("peak memory over imports", "MiB", [each.memory for each in runs], f"imports took {imports:,.0f} MiB"),
        ):
            rows.append(Row(case, contender.name, metric, unit, values, note=note))
    yield from with_ratios(rows, "throughput")


def measure_memory(folder: Path, counts: Sequence[int] = COUNTS) -> Iterator[Row]:
    for count in counts:
        rows = prepare(folder / str(count), count, set())
        for source in ("fill", "cache", "parquet"):
            yield from memory_rows(count, source, run(eyas(f"numpy-{source}@{BUDGET}"), rows, pool=0))
        shutil.rmtree(rows)


def memory_rows(count: int, source: str, used: Run) -> Iterator[Row]:
    case, contender = f"{count:,} rows, {BUDGET} MiB", f"eyas: numpy, {'Parquet, cache being written' if source == 'fill' else source}"
    for metric, value in (("peak memory over imports", used.memory), ("of it backed by no file", used.anonymous)):
        limit = TOLERANCE * BUDGET
        note = "" if value <= limit else f"more than the budget and 10 % ({limit:.0f} MiB)"
        yield Row(case, contender, metric, "MiB", [value], note=note)
    yield Row(case, contender, "throughput", "rows/s", [used.rows / used.seconds])


def measure_fit(folder: Path, runs: int, steps: int) -> Iterator[Row]:
    rows = prepare(folder / str(FITTED), FITTED, {"rows", "cache"})
    for model, (width, units) in MODELS.items():
        measured: dict[str, list[dict[str, float]]] = {name: [] for name in SOURCES}
        for name in turns(SOURCES, runs):
            source, python = SOURCES[name]
            arguments = [source, str(rows), *map(str, (BATCH, POOL, width)), units, str(steps)]
            used = watched([python(), str(PEERS / "loader_fit.py"), *arguments]).document
            speed, cost = used["rows"] / used["seconds"], 1e6 * used["cpu"] / used["rows"]
            measured[name].append({"training": speed, "CPU a million rows": cost})
            say(f"{model}, {name}: {speed:,.0f} rows/s, loss {used['loss']:.3f}")
        yield from fit_rows(model, measured, steps)


def fit_rows(model: str, measured: Mapping[str, Sequence[Mapping[str, float]]], steps: int) -> Iterator[Row]:
    medians = {name: statistics.median(run["training"] for run in runs) for name, runs in measured.items()}
    rows: list[Row] = []
    for name, runs in measured.items():
        rows += rows_of_runs(model, name, runs, {"training": "rows/s"}, f"{steps} steps of {BATCH:,} rows")
        rows += rows_of_runs(model, name, runs, {"CPU a million rows": "s"})
        if name not in (LIMIT, MERLIN_LIMIT):
            share = medians[name] / medians[MERLIN_LIMIT if name == "merlin" else LIMIT]
            rows.append(Row(model, name, "of a step by the loader", "%", [100 * (1 - min(1.0, share))]))
    yield from with_ratios(rows, "training")


if __name__ == "__main__":
    loader()
