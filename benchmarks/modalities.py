"""What a layer norm of each modality's vectors is worth: items that pictures and texts describe, half of them unmet before.

    python -m benchmarks.modalities [--seeds 3] [--items 2000] [--users 2000] [--rows 120000] [--epochs 8]

A planted world: a user's taste is a direction in a space of eight; an item's place in it is seen through a picture's vector (256 numbers),
a text's (64), and neither is enough by itself. Both come to length 1, as etl makes them, with an offset that all of a modality share and
noise. Families take keys and both vectors, with and without layer norm, and the keys alone; likes of the judged rows are told from
the others' of the same user (AUC), of items that were met and of those that weren't, beside the best that the world's own chances give.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.criteo_world import auc
from benchmarks.report import Row, publish
from pipelines.inputs.batches import TrainingBatch
from pipelines.models import dlrm, mlp
from pipelines.models.deep import level
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.step import NeuralStep, StepOptions
from pipelines.models.neural.weights import begin
from pipelines.models.tables import Table
from shared.contracts.families import DlrmParams, MlpParams

TASTES = 8
MODALITIES: dict[str, int] = {"picture": 256, "text": 64}
NUMBERS: tuple[tuple[str, int | None], ...] = tuple(MODALITIES.items())
BATCH = 1_024
RATES = (0.001, 0.003)
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class World:
    vectors: dict[str, Floats]
    met: NDArray[np.bool_]
    """Items of which training has rows."""
    chance: Floats
    """[users, items]."""


def drawn(users: int, items: int, seed: int) -> World:
    random = np.random.default_rng(seed)
    tastes, places = (random.standard_normal((count, TASTES)) for count in (users, items))
    vectors = {}
    for at, (name, width) in enumerate(MODALITIES.items()):
        seen = places.copy()
        seen[:, at * TASTES // 2 : (at + 1) * TASTES // 2] *= 0.1  # the half that the other modality shows
        rows = seen @ random.standard_normal((TASTES, width)) / TASTES**0.5 + 0.3 * random.standard_normal((items, width))
        rows += 3 * random.standard_normal(width)
        vectors[name] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    chance = 1 / (1 + np.exp(-(2.5 * tastes @ places.T / TASTES**0.5 - 1)))
    return World(vectors, random.random(items) < 0.5, chance.astype(np.float32))


def rows_of(world: World, count: int, met: bool, seed: int) -> tuple[TrainingBatch, Floats]:
    """And how likely each is liked."""
    random = np.random.default_rng(seed)
    users = random.integers(len(world.chance), size=count).astype(np.int32)
    items = random.choice(np.flatnonzero(world.met == met), count).astype(np.int32)
    chance = world.chance[users, items]
    labels = (random.random(count) < chance).astype(np.float32)
    known = items if met else np.full_like(items, len(world.met))  # the code of items that nobody met
    return TrainingBatch({"user": users, "item": known} | {name: vectors[items] for name, vectors in world.vectors.items()}, labels), chance


def learned(
    architecture: Architecture, train: TrainingBatch, choose: TrainingBatch, judged: Sequence[TrainingBatch], epochs: int, seed: int
) -> list[float]:
    """AUC of the judged rows, by the rate and the epoch that were best on the rows to choose by."""
    best, found = -1.0, list[float]()
    for rate in RATES:
        step = NeuralStep(load_framework("tensorflow"), architecture, begin(architecture, seed), StepOptions(learning_rate=rate, seed=seed))
        for epoch in range(epochs):
            order = np.random.default_rng((seed, epoch)).permutation(len(train.labels))
            for start in range(0, len(order), BATCH):
                some = order[start : start + BATCH]
                columns = {name: train.columns[name][some] for name in architecture.features}
                if epoch % 2:  # every other time an item is shown as one that nobody met
                    columns["item"] = np.where(np.arange(len(some)) % 4 == 0, architecture.tables[1].cardinality - 1, columns["item"])
                step(TrainingBatch(columns, train.labels[some]))
            value = auc(step.score(choose.columns), choose.labels)
            if value > best:
                best, found = value, [auc(step.score(one.columns), one.labels) for one in judged]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--users", type=int, default=2_000)
    parser.add_argument("--items", type=int, default=2_000)
    parser.add_argument("--rows", type=int, default=120_000)
    parser.add_argument("--epochs", type=int, default=8)
    said = parser.parse_args()
    tables = (Table("user", said.users, 16, None), Table("item", said.items + 1, 16, None))
    of: dict[str, Callable[[tuple[tuple[str, int | None], ...]], Architecture]] = {
        "mlp": lambda numbers: mlp.architecture_of(tables, MlpParams(layers=(128, 64)), numbers),
        "dlrm": lambda numbers: dlrm.architecture_of(tables, DlrmParams(), numbers),
    }
    found: dict[tuple[str, str], list[float]] = {}
    for seed in range(1, said.seeds + 1):
        world = drawn(said.users, said.items, seed)
        train, _ = rows_of(world, said.rows, True, 10 * seed)
        choose, _ = rows_of(world, said.rows // 5, True, 10 * seed + 1)
        judged = [rows_of(world, said.rows // 5, met, 10 * seed + 2 + met) for met in (True, False)]
        for what, (rows, chance) in zip(("met", "unmet"), judged, strict=True):
            found.setdefault(("who knows the chances", what), []).append(auc(chance, rows.labels))
        contenders = {f"eyas: {name}, keys alone": make(()) for name, make in of.items()}
        contenders |= {f"eyas: {name}, vectors as they are": make(NUMBERS) for name, make in of.items()}
        contenders |= {f"eyas: {name}, layer norm": level(make(NUMBERS), list(MODALITIES)) for name, make in of.items()}
        for name, architecture in contenders.items():
            values = learned(architecture, train, choose, [rows for rows, _ in judged], said.epochs, seed)
            for what, value in zip(("met", "unmet"), values, strict=True):
                found.setdefault((name, what), []).append(value)
            sys.stderr.write(f"seed {seed}, {name}: met {found[name, 'met'][-1]:.4f}, unmet {found[name, 'unmet'][-1]:.4f}\n")
    case = f"{said.rows:,} rows, {said.users:,} users, {said.items:,} items"
    publish("modalities", [Row(case, name, f"AUC of {what} items", "", values) for (name, what), values in found.items()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
