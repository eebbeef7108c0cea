"""`dlrm`, `wide_deep`, `mlp` and XGBoost on synthetic clicks of Criteo's shape, compared with the best possible AUC.

    python -m benchmarks.criteo [--rows 400000] [--seeds 3] [--rate 0.1] [--epochs 5] [--batch 4096] [--only NAME ...]

A seed draws a world, rows to train on, a tenth as many to choose the epoch (or the number of trees) by log-loss, and a fifth as many
to test. Neural families take the same steps: Adam, batches of one size, widths of 16, and of two learning rates the better one on the
rows to choose by. `additive` is the wide part alone: the effect of each value and number by itself. `wide_deep, told the pairs` has a hash
cross for each two columns that interact, which nobody knows of real data. XGBoost takes the numbers, the codes in the order
of their frequency, and each code's clicks, out of fold, in a process of its own. AUCs are expectations over labels, by the true
chances of the test rows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from benchmarks.harness import HIDDEN, Outcome, Row, benchmark, say, scratch, watched
from benchmarks.learning import Array, auc, log_loss, neural_step, shuffled
from benchmarks.tables import answer, rows_of_runs
from pipelines.features.columns import FIRST
from pipelines.features.hashing import bucket_of_codes
from pipelines.inputs.tables import Codes
from pipelines.models import dlrm, mlp, wide_deep
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.network import Add, Dense, Join, Network, RowSum
from pipelines.models.tables import Table
from shared.contracts.families import DlrmParams, MlpParams, WideDeepParams

BATCH, WIDTH, LAYERS = 4_096, 16, (128, 64)
RATES = (0.003, 0.01)
BUCKETS = 100_000
"""Of a cross."""
HIDDEN_NUMBERS = 3
"""Of a value, for each pair of columns."""
SAMPLE = 100_000
"""Rows that scale the parts of the logit to their spread, and set the rate of clicks."""
FOLDS, SMOOTHING, TREES, PATIENCE = 5, 20.0, 1_000, 20
XGBOOST = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": 8, "eta": 0.1, "min_child_weight": 20, "max_bin": 256}
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Shape:
    sizes: tuple[int, ...] = tuple(int(size) for size in np.geomspace(4, 50_000, 26))
    """Values of each column of codes."""
    numbers: int = 13
    pairs: int = 10
    """Of columns of codes that interact."""
    common: int = 1_000
    """The most values of a column that interacts: no model could learn the interactions of rarer ones from so many rows."""
    rate: float = 0.1
    """Of clicks."""
    power: float = 1.05
    """A value's frequency falls with this power of its rank."""
    alone: float = 0.8
    together: float = 1.0
    counted: float = 0.5
    """The standard deviation that each part adds to the logit."""


@dataclass(frozen=True)
class Rows:
    columns: Codes
    """Codes, of which the first stands for no value, and numbers."""
    chance: Floats
    """Of a click."""
    labels: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, start: int, stop: int) -> Rows:
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return Rows(columns, self.chance[start:stop], self.labels[start:stop])

    @property
    def bayes(self) -> float:
        """The AUC of the true chances: no model is better but by luck."""
        return auc(self.chance, self.chance)


class World:
    """The logit is a sum of three parts, each of the spread that the shape sets: effects of each value alone; interactions of values of
    two columns, by inner products of hidden numbers that a value has for that pair alone; effects of numbers, alone, beyond a bound, two at
    a time, and with values. A seed draws the world, another its rows."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        random = np.random.default_rng((seed, 1))
        self._sums = [np.cumsum((1.0 + np.arange(size)) ** -shape.power) for size in shape.sizes]
        self._alone = [random.standard_normal(size) for size in shape.sizes]
        count = len(shape.sizes)
        common = [at for at in range(count) if shape.sizes[at] <= shape.common]
        every = [(first, second) for first in common for second in common if second < first]
        self.pairs = [every[at] for at in sorted(random.choice(len(every), shape.pairs, replace=False))]
        """Columns whose values interact."""
        self._hidden = [[random.standard_normal((shape.sizes[at], HIDDEN_NUMBERS)) for at in pair] for pair in self.pairs]
        self._slopes, self._bounds = random.standard_normal((3, shape.numbers)), random.normal(0, 0.5, shape.numbers)
        self._company = [(int(random.integers(count)), int(random.integers(shape.numbers))) for _ in range(shape.numbers)]
        self._in_company = [random.standard_normal(shape.sizes[column]) for column, _ in self._company]
        self.names = tuple(f"c{at}" for at in range(count))
        self.numbers = tuple(f"n{at}" for at in range(shape.numbers))

    def draw(self, count: int, seed: int) -> Rows:
        codes, numbers, random = self._draw(count, seed)
        probability = 1 / (1 + np.exp(-(self._logits(codes, numbers) + self._level)))
        columns: Codes = {name: (values + FIRST).astype(np.int32) for name, values in zip(self.names, codes, strict=True)}
        columns |= {name: values.astype(np.float32) for name, values in zip(self.numbers, numbers, strict=True)}
        return Rows(columns, probability, (random.random(count) < probability).astype(np.float32))

    def _draw(self, count: int, seed: int) -> tuple[list[Array], Floats, np.random.Generator]:
        random = np.random.default_rng((seed, 2))
        codes = [np.searchsorted(sums, random.random(count) * sums[-1], side="right") for sums in self._sums]
        return codes, random.standard_normal((self.shape.numbers, count)), random

    def _parts(self, codes: list[Array], numbers: Floats) -> dict[str, Floats]:
        alone = sum((effects[column] for effects, column in zip(self._alone, codes, strict=True)), np.zeros(numbers.shape[1]))
        together, counted = np.zeros_like(alone), np.zeros_like(alone)
        for (first, second), (left, right) in zip(self.pairs, self._hidden, strict=True):
            together += (left[codes[first]] * right[codes[second]]).sum(axis=1)
        for at, number in enumerate(numbers):
            straight, beyond, both = self._slopes[:, at]
            counted += straight * number + beyond * (number > self._bounds[at])
            column, other = self._company[at]
            counted += both * ((number > 0) & (numbers[other] > 0)) + self._in_company[at][codes[column]] * number
        return {"alone": alone, "together": together, "counted": counted}

    def _logits(self, codes: list[Array], numbers: Floats) -> Floats:
        return sum((self._scales[name] * part for name, part in self._parts(codes, numbers).items()), np.zeros(numbers.shape[1]))

    @cached_property
    def _scales(self) -> dict[str, float]:
        parts = self._parts(*self._draw(SAMPLE, 0)[:2])
        return {name: getattr(self.shape, name) / spread if (spread := float(part.std())) else 0.0 for name, part in parts.items()}

    @cached_property
    def _level(self) -> float:
        """Added to the logits, for the rate of clicks."""
        logits = self._logits(*self._draw(SAMPLE, 0)[:2])
        return float(brentq(lambda level: float((1 / (1 + np.exp(-(logits + level)))).mean()) - self.shape.rate, -30, 30))


@dataclass(frozen=True)
class Data:
    world: World
    train: Rows
    choose: Rows
    test: Rows

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(Table(name, size + FIRST, WIDTH, None) for name, size in zip(self.world.names, self.world.shape.sizes, strict=True))

    @property
    def numbers(self) -> tuple[tuple[str, int | None], ...]:
        return tuple((name, None) for name in self.world.numbers)


@dataclass(frozen=True)
class Trained:
    auc: float
    seconds: float
    """Of this training, with the choice of the epoch."""
    epochs: int = 0
    """Or trees."""
    loss: float = float("inf")
    """Of the rows to choose by."""
    rate: float = 0.0


def draw(shape: Shape, rows: int, seed: int) -> Data:
    world = World(shape, seed)
    whole = world.draw(rows + rows // 10 + rows // 5, seed)
    return Data(world, whole.part(0, rows), whole.part(rows, rows + rows // 10), whole.part(rows + rows // 10, len(whole)))


def crossed(data: Data) -> Data:
    """Adds a column for each pair that interacts."""

    def cross(rows: Rows) -> Rows:
        columns = dict(rows.columns)
        for pair in data.world.pairs:
            codes = [rows.columns[data.world.names[at]].astype(np.int64) for at in pair]
            columns[f"x{pair[0]}_{pair[1]}"] = (bucket_of_codes(codes, BUCKETS) + FIRST).astype(np.int32)
        return replace(rows, columns=columns)

    return Data(data.world, *map(cross, (data.train, data.choose, data.test)))


def additive(data: Data) -> Architecture:
    tables = tuple(replace(table, width=1) for table in data.tables)
    nodes = (
        Join("values", data.world.names),
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
    tables = (*(replace(table, width=WIDTH + 1) for table in data.tables), *(Table(name, BUCKETS + FIRST, 1, None) for name in crosses))
    return wide_deep.architecture_of(tables, WideDeepParams(layers=LAYERS), data.numbers)


def train(data: Data, architecture: Architecture, seed: int, epochs: int, rate: float, size: int = BATCH) -> Trained:
    """Takes the epoch with the least loss on the rows to choose by; stops after the first that is no better."""
    step = neural_step(architecture, rate, seed, wide_deep.first_weights(architecture, seed))
    columns = {name: data.train.columns[name] for name in architecture.features}
    began, best = time.perf_counter(), Trained(0.0, 0.0)
    for epoch in range(epochs):
        for batch in shuffled(columns, data.train.labels, size, (seed, epoch)):
            step(batch)
        loss = log_loss(step.score(data.choose.columns), data.choose.labels)
        if loss >= best.loss:
            break
        best = Trained(auc(step.score(data.test.columns), data.test.chance), 0.0, epoch + 1, loss, rate)
    return replace(best, seconds=time.perf_counter() - began)


def boosted(data: Data) -> Trained:
    with scratch() as folder:
        for name in ("train", "choose", "test"):
            rows: Rows = getattr(data, name)
            codes, numbers = (np.stack([rows.columns[column] for column in names], 1) for names in (data.world.names, data.world.numbers))
            np.savez(folder / f"{name}.npz", codes=codes, numbers=numbers, labels=rows.labels)
        document = watched([sys.executable, "-m", "benchmarks.criteo", "--boosted-in", str(folder)]).document
        scores = np.load(folder / "scores.npy", allow_pickle=False)
    return Trained(auc(scores, data.test.chance), document["seconds"], document["trees"])


def boost(folder: Path) -> dict[str, float]:
    """Trains XGBoost in this process. A column of codes, in the order of their frequency, gives the code and the share of clicks among its
    rows, drawn towards the mean by twenty rows; of rows to train on out of five folds. Training ends when twenty trees bring nothing."""
    import xgboost

    parts = {name: dict(np.load(folder / f"{name}.npz", allow_pickle=False)) for name in ("train", "choose", "test")}
    began = time.perf_counter()
    train = parts["train"]
    folds = np.random.default_rng(1).integers(0, FOLDS, len(train["labels"]))
    columns = {name: [part["numbers"], part["codes"].astype(np.float32)] for name, part in parts.items()}
    for column in range(train["codes"].shape[1]):
        codes = {name: part["codes"][:, column] for name, part in parts.items()}
        size = 1 + max(int(each.max()) for each in codes.values())

        def shares(rows: Array, column_codes: Array = codes["train"], size: int = size) -> Array:
            labels = train["labels"][rows]
            clicks, count = np.bincount(column_codes[rows], labels, size), np.bincount(column_codes[rows], minlength=size)
            smooth: Array = ((clicks + SMOOTHING * labels.mean()) / (count + SMOOTHING)).astype(np.float32)
            return smooth

        out_of_fold = np.empty(len(folds), np.float32)
        for fold in range(FOLDS):
            out_of_fold[folds == fold] = shares(folds != fold)[codes["train"][folds == fold]]
        shares_of_all = shares(np.ones(len(folds), bool))
        for name in parts:
            columns[name].append((out_of_fold if name == "train" else shares_of_all[codes[name]])[:, None])
    rows = {name: xgboost.DMatrix(np.concatenate(columns[name], axis=1), parts[name]["labels"]) for name in parts}
    options = {"evals": [(rows["choose"], "choose")], "early_stopping_rounds": PATIENCE, "verbose_eval": False}
    model = xgboost.train(XGBOOST | {"eval_metric": "logloss"}, rows["train"], TREES, **options)
    seconds, trees = time.perf_counter() - began, model.best_iteration + 1
    np.save(folder / "scores.npy", model.predict(rows["test"], iteration_range=(0, trees)), allow_pickle=False)
    return {"seconds": seconds, "trees": trees}


NEURAL: dict[str, tuple[Callable[[Data], Architecture], bool]] = {
    "additive": (additive, False),
    "eyas: mlp": (of_mlp, False),
    "eyas: wide_deep": (of_wide_deep, False),
    "eyas: wide_deep, told the pairs": (of_wide_deep, True),
    "eyas: dlrm": (of_dlrm, False),
}
"""With crosses of the pairs, or without."""
BOOSTED = "xgboost"
CONTENDERS = (*NEURAL, BOOSTED)


@benchmark("criteo")
def criteo(
    rows: Annotated[int, "to train on"] = 400_000,
    seeds: int = 3,
    rate: Annotated[float, "of clicks"] = 0.1,
    epochs: Annotated[int, "at most"] = 5,
    batch: Annotated[int, "rows of a step"] = BATCH,
    only: Annotated[list[str] | None, "all by default", CONTENDERS] = None,
    boosted_in: Annotated[Path | None, HIDDEN] = None,
) -> Iterator[Outcome]:
    if boosted_in:
        answer(boost(boosted_in))
    results: dict[str, list[dict[str, float]]] = {name: [] for name in only or CONTENDERS}
    limits = []
    for seed in range(1, seeds + 1):
        data = draw(Shape(rate=rate), rows, seed)
        limits.append(data.test.bayes)
        for name, runs in results.items():
            if name == BOOSTED:
                best = boosted(data)
            else:
                architecture_of, with_pairs = NEURAL[name]
                used = crossed(data) if with_pairs else data
                tries = [train(used, architecture_of(used), seed, epochs, learning_rate, batch) for learning_rate in RATES]
                best = min(tries, key=lambda result: result.loss)
            count = "trees" if name == BOOSTED else "epochs"
            figures: dict[str, Any] = {"AUC": best.auc, "AUC below the best": limits[-1] - best.auc, count: float(best.epochs)}
            runs.append(figures | {"training": best.seconds})
            say(f"seed {seed}, {name}: AUC {best.auc:.4f} of {limits[-1]:.4f}, rate {best.rate}, {best.seconds:.0f} s")
    case = f"{rows:,} rows, {rate:.0%} clicks"
    yield Row(case, "who knows the chances", "AUC", "", limits)
    for name, runs in results.items():
        yield from rows_of_runs(case, name, runs, {"AUC": "", "AUC below the best": "", "trees": "", "epochs": "", "training": "s"})


if __name__ == "__main__":
    criteo()
