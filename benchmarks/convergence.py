"""Loss curves with a pool's shuffle and with a full one, on MovieLens 100K: its rows in the order of time, of users, of labels.

    python -m benchmarks.convergence [--data FOLDER] [--seeds 5] [--epochs 6]

FOLDER holds MovieLens 100K, which is not part of Eyas; without it rows of its shape are made.

A small model of users' and items' embeddings (adam, batches of 512) learns likes; a tenth of the rows, the same for every contender, is
scored after each epoch. Ours by default reads row groups as etl writes them, and its pool is as large as its memory allows. The harder
cases read 100 (or 400) row groups with a pool of a quarter or a twentieth of the rows. A full shuffle is numpy's, of all rows
in memory, twice for each seed; `none` does not shuffle. Contenders begin with the same weights for the same seed, so they are
compared seed by seed: the difference from the mean of the two full shuffles, and its 95% confidence interval (Student's t). The difference
of the two full shuffles shows chance alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import t

from benchmarks.harness import Fields, Outcome, Row, benchmark, say, scratch
from benchmarks.learning import log_loss, neural_step
from pipelines.data.sets.named import load
from pipelines.data.sets.synthetic_twins import SHAPES, Twin
from pipelines.inputs.batches import TrainingBatch
from pipelines.loaders.loader import open_loader
from pipelines.models.mlp import architecture_of
from pipelines.models.tables import Table
from shared.contracts.families import MlpParams

NAME = "ml-100k"
ORDERS = {"time": ["time"], "user": ["user", "time"], "label": ["label", "time"]}
POOLS = {"as it comes": (2, None), "a quarter": (100, 4), "a twentieth": (100, 20), "a twentieth, small groups": (400, 20)}
"""Row groups of the data, and the part of the rows that the pool is; None: as much as memory allows."""
FULL, AGAIN = ("any", "full"), ("any", "full, drawn again")
COLUMNS = ("user", "item", "label")
BATCH = 512
Epochs = Callable[[int, int], Iterator[Mapping[str, NDArray[Any]]]]
"""The batches of an epoch, by seed and number."""
Curves = Mapping[tuple[str, str], Sequence[Sequence[float]]]
"""Losses after each epoch, of each seed, by order and contender."""


@dataclass(frozen=True)
class Difference:
    mean: float
    error: float
    """Standard error of the mean."""
    low: float
    high: float
    """Bounds of the 95% confidence interval."""

    @property
    def verdict(self) -> str:
        """A low loss is good."""
        if self.low > 0:
            return "worse"
        return "better" if self.high < 0 else "no difference shown"


def paired(ours: Sequence[float], others: Sequence[float]) -> Difference:
    """Seed by seed."""
    each = [own - other for own, other in zip(ours, others, strict=True)]
    mean, error = statistics.mean(each), statistics.stdev(each) / len(each) ** 0.5
    low, high = t.interval(0.95, len(each) - 1, mean, error)
    return Difference(mean, error, float(low), float(high))


@benchmark("convergence")
def convergence(data: Path | None = None, seeds: int = 5, epochs: int = 6) -> Iterator[Outcome]:
    if seeds < 2:
        raise SystemExit("--seeds: use two at least, to tell a difference from chance")
    rows = coded(read_ratings(data))
    chance = np.random.default_rng(17).random(len(rows)) < 0.1
    training, test = rows.filter(~chance), rows.filter(chance)
    curves: dict[tuple[str, str], list[list[float]]] = {}
    with scratch() as folder:
        for order, name, shuffle in contenders(training, folder):
            curves[order, name] = [train(shuffle, rows, test, seed, epochs) for seed in range(1, seeds + 1)]
            say(f"rows by {order}, {name}: {curves[order, name][0][-1]:.4f}")
    for epoch, at in (("first", 0), ("last", -1)):
        for (order, name), runs in curves.items():
            yield Row(f"rows by {order}", name, f"loss after the {epoch} epoch", "", [losses[at] for losses in runs])
    different = {"first": differences(curves, 0), "last": differences(curves)}
    whole = [{"order": order, "contender": name, "losses": runs} for (order, name), runs in curves.items()]
    yield Fields(differences=different, curves=whole, data=NAME if data else f"{NAME}'s twin", trained=len(training))
    for epoch, each in different.items():
        for row in each:
            interval = f"standard error {row['error']:.4f}, 95%: {row['low']:+.4f} to {row['high']:+.4f}"
            say(f"{epoch} epoch, rows by {row['order']}, {row['contender']}: {row['mean']:+.4f} ({interval}): {row['verdict']}")


def differences(curves: Curves, epoch: int = -1) -> list[dict[str, Any]]:
    """Of the loss after that epoch, from the mean of the full shuffles; the second full shuffle's from the first."""
    losses = {key: [run[epoch] for run in runs] for key, runs in curves.items()}
    mean = [statistics.mean(pair) for pair in zip(losses[FULL], losses[AGAIN], strict=True)]
    each = [(key, paired(values, losses[FULL] if key == AGAIN else mean)) for key, values in losses.items() if key != FULL]
    return [{"order": order, "contender": name, **asdict(row), "verdict": row.verdict} for (order, name), row in each]


def contenders(training: pl.DataFrame, folder: Path) -> Iterator[tuple[str, str, Epochs]]:
    yield *FULL, full_shuffle(training)
    yield *AGAIN, full_shuffle(training, 1000)
    for order, by in ORDERS.items():
        ordered = training.sort(by, maintain_order=True)
        for name, (chunks, part) in POOLS.items():
            path = folder / f"{order}-{chunks}.parquet"
            ordered.write_parquet(path, row_group_size=-(-len(ordered) // chunks))
            pool = None if part is None else len(ordered) // part
            if pool is not None:  # a pool ends with the chunk that fills it: with a chunk less it has so many rows, not more
                pool = max(1, pool - max(open_loader(path).plan.sizes) + 1)
            yield order, f"ours, {name}", read_by_loader(path, pool=pool)
        yield order, "none", read_by_loader(path, shuffle=False)


def full_shuffle(training: pl.DataFrame, more: int = 0) -> Epochs:
    columns = {name: training[name].to_numpy() for name in COLUMNS}

    def epoch(seed: int, number: int) -> Iterator[Mapping[str, NDArray[Any]]]:
        order = np.random.default_rng((seed + more, number)).permutation(len(training))
        for start in range(0, len(order), BATCH):
            yield {name: column[order[start : start + BATCH]] for name, column in columns.items()}

    return epoch


def read_by_loader(path: Path, **options: Any) -> Epochs:
    def epoch(seed: int, number: int) -> Iterator[Mapping[str, NDArray[Any]]]:
        for batch in open_loader(path, COLUMNS, batch_size=BATCH, seed=seed, **options).epoch(number):
            yield {name: column for name, column in batch.items() if isinstance(column, np.ndarray)}

    return epoch


def train(epochs: Epochs, rows: pl.DataFrame, test: pl.DataFrame, seed: int, count: int) -> list[float]:
    """Returns the loss on the test rows after each epoch."""
    tables = tuple(Table(name, int(rows[name].max()) + 1, 16, None) for name in ("user", "item"))  # type: ignore[arg-type]
    step = neural_step(architecture_of(tables, MlpParams(layers=(32, 16))), 0.002, seed)
    columns, labels = {name: test[name].to_numpy() for name in ("user", "item")}, test["label"].to_numpy()
    losses = []
    for number in range(count):
        for batch in epochs(seed, number):
            step(TrainingBatch({name: batch[name] for name in ("user", "item")}, batch["label"]))
        losses.append(log_loss(np.clip(step.score(columns).astype(np.float64), 1e-7, 1 - 1e-7), labels))
    return losses


def read_ratings(folder: Path | None) -> pl.DataFrame:
    if folder is None:
        return pl.concat(Twin.create(SHAPES[NAME], 3).ratings())
    with scratch() as temporary:
        return load(NAME, folder, temporary).interactions.collect()


def coded(rows: pl.DataFrame) -> pl.DataFrame:
    """Users and items by number, likes as 1."""
    return rows.select(
        user=pl.col("userId").rank("dense").cast(pl.Int32) + 1,
        item=pl.col("movieId").rank("dense").cast(pl.Int32) + 1,
        time="timestamp",
        label=(pl.col("rating") >= 4).cast(pl.Float32),
    )


if __name__ == "__main__":
    convergence()
