"""`dlrm`, `wide_deep`, `mlp` and XGBoost on clicks of Criteo's shape, against the best that anything can do there (`criteo_world`).

    python -m benchmarks.criteo [--rows 400000] [--seeds 3] [--rate 0.1] [--epochs 5] [--batch 4096] [--only NAME ...]

A seed draws a world, rows to train on, a tenth as many to choose the epoch (or the number of trees) by log-loss, and a fifth as many
to judge by. Neural families take the same steps: Adam, batches of one size, widths of 16, and of two learning rates the better one on the
rows to choose by. `additive` is the wide part alone: what values and numbers say each for itself. `wide_deep, told the pairs` has a hash
cross for each two columns that say something together, which nobody knows of real data. XGBoost takes the numbers, the codes in the order
of their frequency, and each code's clicks, out of fold, in a process of its own. AUCs are what labels say on average, by the true
chances of the judged rows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.criteo_world import Rows, Shape, World, auc
from benchmarks.report import Row, publish
from pipelines.features.columns import FIRST
from pipelines.features.hashing import bucket_of_codes
from pipelines.inputs.batches import TrainingBatch
from pipelines.models import dlrm, mlp, wide_deep
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.network import Add, Dense, Join, Network, RowSum
from pipelines.models.neural.step import NeuralStep, StepOptions
from pipelines.models.tables import Table
from shared.contracts.families import DlrmParams, MlpParams, WideDeepParams

BATCH, WIDTH, LAYERS = 4_096, 16, (128, 64)
RATES = (0.003, 0.01)
BUCKETS = 100_000
"""Of a cross."""
_PEER = Path(__file__).parent / "peers" / "criteo_xgboost.py"
Floats = NDArray[Any]


@dataclass(frozen=True)
class Data:
    world: World
    train: Rows
    choose: Rows
    judge: Rows

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(Table(name, size + FIRST, WIDTH, None) for name, size in zip(self.world.names, self.world.shape.sizes, strict=True))

    @property
    def numbers(self) -> tuple[tuple[str, int | None], ...]:
        return tuple((name, None) for name in self.world.numbers)


@dataclass(frozen=True)
class Judged:
    auc: float
    seconds: float
    """Of this training, choosing the epoch included."""
    epochs: int = 0
    """After so many it was chosen; or trees."""
    loss: float = float("inf")
    """Of the rows to choose by."""
    rate: float = 0.0


def drawn(shape: Shape, rows: int, seed: int) -> Data:
    world = World(shape, seed)
    whole = world.draw(rows + rows // 10 + rows // 5, seed)
    return Data(world, whole.part(0, rows), whole.part(rows, rows + rows // 10), whole.part(rows + rows // 10, len(whole)))


def crossed(data: Data) -> Data:
    """With a column for each two that say something together."""
    train, choose, judge = (_crossed(one, data.world) for one in (data.train, data.choose, data.judge))
    return Data(data.world, train, choose, judge)


def _crossed(rows: Rows, world: World) -> Rows:
    found = dict(rows.columns)
    for one, other in world.pairs:
        codes = [rows.columns[world.names[at]].astype(np.int64) for at in (one, other)]
        found[f"x{one}_{other}"] = (bucket_of_codes(codes, BUCKETS) + FIRST).astype(np.int32)
    return replace(rows, columns=found)


def additive(data: Data) -> Architecture:
    tables = tuple(replace(one, width=1) for one in data.tables)
    nodes = (
        Join("values", tuple(one.column for one in tables)),
        RowSum("wide", ("values",)),
        Join("numbers", data.world.numbers),
        Dense("linear", ("numbers",), 1, "linear"),
        Add("score", ("wide", "linear")),
    )
    return Architecture("additive", tables, data.numbers, Network(nodes))


def of_mlp(data: Data) -> Architecture:
    return mlp.architecture_of(data.tables, MlpParams(layers=LAYERS), data.numbers)


def of_dlrm(data: Data) -> Architecture:
    return dlrm.architecture_of(data.tables, DlrmParams(layers=LAYERS, width=WIDTH), data.numbers)


def of_wide_deep(data: Data) -> Architecture:
    crosses = [name for name in data.train.columns if name.startswith("x")]
    tables = (*(replace(one, width=WIDTH + 1) for one in data.tables), *(Table(name, BUCKETS + FIRST, 1, None) for name in crosses))
    return wide_deep.architecture_of(tables, WideDeepParams(layers=LAYERS), data.numbers)


def best(data: Data, architecture: Architecture, seed: int, epochs: int, batch: int) -> Judged:
    """Of all rates."""
    return min((learned(data, architecture, seed, epochs, rate, batch) for rate in RATES), key=lambda one: one.loss)


def learned(data: Data, architecture: Architecture, seed: int, epochs: int, rate: float, size: int = BATCH) -> Judged:
    """By the epoch that was best on the rows to choose by; it stops when one is no better."""
    how = StepOptions(learning_rate=rate, seed=seed)
    step = NeuralStep(load_framework("tensorflow"), architecture, wide_deep.first_weights(architecture, seed), how)
    began, found = time.perf_counter(), Judged(0.0, 0.0)
    for epoch in range(epochs):
        for batch in _batches(data.train, architecture, (seed, epoch), size):
            step(batch)
        loss = log_loss(step.score(data.choose.columns), data.choose.labels)
        if loss >= found.loss:
            break
        found = Judged(auc(step.score(data.judge.columns), data.judge.chance), 0.0, epoch + 1, loss, rate)
    return replace(found, seconds=time.perf_counter() - began)


def log_loss(scores: Floats, labels: Floats) -> float:
    right = np.where(labels > 0, scores, 1 - scores.astype(np.float64))
    return float(-np.log(np.clip(right, 1e-7, 1)).mean())


def _batches(rows: Rows, architecture: Architecture, seed: tuple[int, int], size: int) -> Iterator[TrainingBatch]:
    order = np.random.default_rng(seed).permutation(len(rows))
    for start in range(0, len(order), size):
        some = order[start : start + size]
        yield TrainingBatch({name: rows.columns[name][some] for name in architecture.features}, rows.labels[some])


def boosted(data: Data) -> Judged:
    with tempfile.TemporaryDirectory(prefix="criteo-") as scratch:
        folder = Path(scratch)
        for name in ("train", "choose", "judge"):
            rows: Rows = getattr(data, name)
            codes, numbers = (np.stack([rows.columns[one] for one in names], 1) for names in (data.world.names, data.world.numbers))
            np.savez(folder / f"{name}.npz", codes=codes, numbers=numbers, labels=rows.labels)
        done = subprocess.run([sys.executable, str(_PEER), scratch], stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
        said = json.loads(done.stdout.splitlines()[-1])
        scores = np.load(folder / "scores.npy", allow_pickle=False)
    return Judged(auc(scores, data.judge.chance), said["seconds"], said["trees"])


Contender = Callable[[Data, int, int], Judged]
NEURAL: dict[str, tuple[Callable[[Data], Architecture], bool]] = {
    "additive": (additive, False),
    "eyas: mlp": (of_mlp, False),
    "eyas: wide_deep": (of_wide_deep, False),
    "eyas: wide_deep, told the pairs": (of_wide_deep, True),
    "eyas: dlrm": (of_dlrm, False),
}
BOOSTED = "xgboost"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000, help="to train on")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.1, help="of clicks")
    parser.add_argument("--epochs", type=int, default=5, help="at most")
    parser.add_argument("--batch", type=int, default=BATCH, help="rows of a step")
    parser.add_argument("--only", nargs="*", choices=[*NEURAL, BOOSTED], help="all, if not given")
    said = parser.parse_args(arguments)
    chosen = said.only or [*NEURAL, BOOSTED]
    found: dict[str, list[Judged]] = {}
    bayes = []
    for seed in range(1, said.seeds + 1):
        data = drawn(Shape(rate=said.rate), said.rows, seed)
        bayes.append(data.judge.bayes)
        for name in chosen:
            if name == BOOSTED:
                one = boosted(data)
            else:
                architecture_of, told = NEURAL[name]
                given = crossed(data) if told else data
                one = best(given, architecture_of(given), seed, said.epochs, said.batch)
            found.setdefault(name, []).append(one)
            how = f"{one.epochs} {'trees' if name == BOOSTED else f'epochs at {one.rate}'}, {one.seconds:.0f} s"
            Console(width=140).print(f"seed {seed}, {name}: AUC {one.auc:.4f} of {bayes[-1]:.4f}, {how}", highlight=False)
    shown(found, bayes, said.rows, said.rate)
    return 0


def shown(found: dict[str, list[Judged]], bayes: list[float], rows: int, rate: float) -> None:
    case = f"{rows:,} rows, {rate:.0%} clicks"
    table = [Row(case, "who knows the chances", "AUC", "", bayes)]
    for name, runs in found.items():
        table.append(Row(case, name, "AUC", "", [one.auc for one in runs]))
        table.append(Row(case, name, "AUC below the best", "", [best - one.auc for best, one in zip(bayes, runs, strict=True)]))
        table.append(Row(case, name, "trees" if name == BOOSTED else "epochs", "", [float(one.epochs) for one in runs]))
        table.append(Row(case, name, "training", "s", [one.seconds for one in runs]))
    publish("criteo", table)


if __name__ == "__main__":
    raise SystemExit(main())
