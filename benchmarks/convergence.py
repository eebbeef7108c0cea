"""Whether a pool's shuffle trains as well as a full one: loss curves on MovieLens 100K, its rows in the order of time, of users, of labels.

    python -m benchmarks.convergence [--data FOLDER] [--seeds 5] [--epochs 6]

FOLDER holds MovieLens 100K, which isn't part of Eyas; without it rows of its shape are made.

A small model of users' and items' embeddings (adam, batches of 512) learns who likes what; a tenth of the rows, the same for everybody, is
looked at after each epoch. Ours as it comes reads row groups as etl writes them, and its pool is as large as its memory takes. The harder
cases read 100 (or 400) row groups with a pool of a quarter or a twentieth of the rows. A full shuffle is numpy's, of all rows
in memory, twice for each seed; none reads them as they lie. Everybody begins with the same weights for the same seed, so contenders are
compared seed by seed: the difference from the mean of the two full shuffles, and the interval that has the true one with 95 per cent
(Student's t). How far the full shuffles are from each other is what chance alone makes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.report import Row, publish
from pipelines.data.sets.named import load
from pipelines.data.sets.synthetic_twins import SHAPES, Twin
from pipelines.inputs.batches import TrainingBatch
from pipelines.loaders.loader import Loader, open_loader
from pipelines.models.mlp import architecture_of
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.step import NeuralStep, StepOptions
from pipelines.models.neural.weights import begin
from pipelines.models.tables import Table
from shared.contracts.families import MlpParams

NAME = "ml-100k"
ORDERS = {"time": ["time"], "user": ["user", "time"], "label": ["label", "time"]}
POOLS = {"as it comes": (2, None), "a quarter": (100, 4), "a twentieth": (100, 20), "a twentieth, small groups": (400, 20)}
"""Row groups of the data, and which part of the rows the pool is; None: as much as memory takes."""
FULL, AGAIN = ("any", "full"), ("any", "full, drawn again")
COLUMNS = ("user", "item", "label")
BATCH = 512
T_95 = (0.0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t by degrees of freedom; beyond, 2.2 is a little too much."""
Columns = Mapping[str, NDArray[Any]]
Epochs = Callable[[int, int], Iterator[Columns]]
"""The batches of an epoch, by seed and number."""


@dataclass(frozen=True)
class Difference:
    mean: float
    error: float
    """Standard error of the mean."""
    low: float
    high: float
    """What has the true one with 95 per cent."""

    @property
    def verdict(self) -> str:
        """A loss is good where it's low."""
        if self.low > 0:
            return "worse"
        return "better" if self.high < 0 else "no difference shown"


def paired(ours: Sequence[float], others: Sequence[float]) -> Difference:
    """Seed by seed."""
    each = [one - other for one, other in zip(ours, others, strict=True)]
    mean, error = statistics.mean(each), statistics.stdev(each) / len(each) ** 0.5
    wide = error * (T_95[len(each) - 1] if len(each) <= len(T_95) else 2.201)
    return Difference(mean, error, mean - wide, mean + wide)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6)
    said = parser.parse_args()
    if said.seeds < 2:
        parser.error("--seeds: two at least, to tell a difference from chance")
    began = time.monotonic()
    rows = coded(read_ratings(said.data))
    chance = np.random.default_rng(17).random(len(rows)) < 0.1
    train, held = rows.filter(~chance), rows.filter(chance)
    seeds = range(1, said.seeds + 1)
    console = Console(width=140)
    curves: dict[tuple[str, str], list[list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="convergence-") as folder:
        for order, name, epochs in contenders(train, Path(folder)):
            curves[order, name] = [learned(epochs, rows, held, seed, said.epochs) for seed in seeds]
            console.print(f"{time.monotonic() - began:.0f} s: rows by {order}, {name}: {curves[order, name][0][-1]:.4f}", highlight=False)
    told(curves, console, data=NAME if said.data else f"{NAME}'s twin", trained=len(train))
    return 0


def told(curves: Mapping[tuple[str, str], Sequence[Sequence[float]]], console: Console, **more: Any) -> None:
    found = {"first": differences(curves, 0), "last": differences(curves)}
    table = [
        Row(f"rows by {order}", name, f"loss after the {which} epoch", "", [one[at] for one in runs])
        for which, at in (("first", 0), ("last", -1))
        for (order, name), runs in curves.items()
    ]
    whole = [{"order": order, "contender": name, "losses": runs} for (order, name), runs in curves.items()]
    publish("convergence", table, differences=found, curves=whole, **more)
    for which, some in found.items():
        for one in some:
            console.print(
                f"{which} epoch, rows by {one['order']}, {one['contender']}: {one['mean']:+.4f} (standard error {one['error']:.4f},"
                f" 95 per cent: {one['low']:+.4f} to {one['high']:+.4f}): {one['verdict']}",
                highlight=False,
            )


def differences(curves: Mapping[tuple[str, str], Sequence[Sequence[float]]], epoch: int = -1) -> list[dict[str, Any]]:
    """Of the loss after that epoch, from the full shuffles' mean; the second full one's from the first."""
    losses = {key: [one[epoch] for one in runs] for key, runs in curves.items()}
    mean = [(one + other) / 2 for one, other in zip(losses[FULL], losses[AGAIN], strict=True)]
    each = [(key, paired(values, losses[FULL] if key == AGAIN else mean)) for key, values in losses.items() if key != FULL]
    return [{"order": order, "contender": name, **vars(one), "verdict": one.verdict} for (order, name), one in each]


def contenders(train: pl.DataFrame, folder: Path) -> Iterator[tuple[str, str, Epochs]]:
    yield *FULL, full_shuffle(train)
    yield *AGAIN, full_shuffle(train, 1000)
    for order, by in ORDERS.items():
        ordered = train.sort(by, maintain_order=True)
        for name, (chunks, part) in POOLS.items():
            path = folder / f"{order}-{chunks}.parquet"
            ordered.write_parquet(path, row_group_size=-(-len(ordered) // chunks))
            yield order, f"ours, {name}", pool_shuffle(path, None if part is None else len(ordered) // part)
        yield order, "none", as_they_lie(path)


def full_shuffle(train: pl.DataFrame, more: int = 0) -> Epochs:
    columns = {name: train[name].to_numpy() for name in COLUMNS}

    def epoch(seed: int, number: int) -> Iterator[Columns]:
        order = np.random.default_rng((seed + more, number)).permutation(len(train))
        for start in range(0, len(order), BATCH):
            yield {name: column[order[start : start + BATCH]] for name, column in columns.items()}

    return epoch


def pool_shuffle(path: Path, pool: int | None) -> Epochs:
    """A pool ends with the chunk that fills it: with one less it has so many rows, not more."""
    largest = max(open_loader(path).plan.sizes)
    rows = None if pool is None else max(1, pool - largest + 1)
    return lambda seed, number: _columns(open_loader(path, COLUMNS, batch_size=BATCH, seed=seed, pool=rows), number)


def as_they_lie(path: Path) -> Epochs:
    return lambda seed, number: _columns(open_loader(path, COLUMNS, batch_size=BATCH, seed=seed, shuffle=False), number)


def _columns(loader: Loader, epoch: int) -> Iterator[Columns]:
    for batch in loader.epoch(epoch):
        yield {name: column for name, column in batch.items() if isinstance(column, np.ndarray)}


def learned(epochs: Epochs, rows: pl.DataFrame, held: pl.DataFrame, seed: int, count: int) -> list[float]:
    """The loss on the rows that were held out, after each epoch."""
    tables = tuple(Table(name, int(rows[name].max()) + 1, 16, None) for name in ("user", "item"))  # type: ignore[arg-type]
    architecture = architecture_of(tables, MlpParams(layers=(32, 16)))
    step = NeuralStep(load_framework("tensorflow"), architecture, begin(architecture, seed), StepOptions(learning_rate=0.002, seed=seed))
    looked = {name: held[name].to_numpy() for name in ("user", "item")}
    labels = held["label"].to_numpy()
    found = []
    for number in range(count):
        for batch in epochs(seed, number):
            step(TrainingBatch({name: batch[name] for name in ("user", "item")}, batch["label"]))
        scores = np.clip(step.score(looked).astype(np.float64), 1e-7, 1 - 1e-7)
        found.append(float(-np.log(np.where(labels > 0, scores, 1 - scores)).mean()))
    return found


def read_ratings(folder: Path | None) -> pl.DataFrame:
    if folder is None:
        return pl.concat(Twin.create(SHAPES[NAME], 3).ratings())
    with tempfile.TemporaryDirectory(prefix="convergence-") as scratch:
        return load(NAME, folder, Path(scratch)).interactions.collect()


def coded(rows: pl.DataFrame) -> pl.DataFrame:
    """Users and items by number, likes as 1."""
    return rows.select(
        user=pl.col("userId").rank("dense").cast(pl.Int32) + 1,
        item=pl.col("movieId").rank("dense").cast(pl.Int32) + 1,
        time="timestamp",
        label=(pl.col("rating") >= 4).cast(pl.Float32),
    )


if __name__ == "__main__":
    sys.exit(main())
