"""Layer norm of each modality's vectors: items with pictures and texts, half of them never met in training.

    python -m benchmarks.modalities [--seeds 3] [--items 2000] [--users 2000] [--rows 120000] [--epochs 8]

A synthetic world: a user's taste is a direction in a space of eight. A picture's vector (256 numbers) and a text's (64) show an item's
place in it, and neither is enough by itself. Both have length 1, as etl makes them, with an offset that all of a modality share and
noise. Families take keys and both vectors, with and without layer norm, and the keys alone. The AUC is measured on items that were
met and on items that were not, beside that of the world's own chances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Outcome, Row, benchmark, say
from benchmarks.learning import auc, neural_step, shuffled
from pipelines.inputs.batches import TrainingBatch
from pipelines.models import dlrm, mlp
from pipelines.models.deep import level
from pipelines.models.neural.architecture import Architecture
from pipelines.models.tables import Table
from shared.contracts.families import DlrmParams, MlpParams

TASTES = 8
MODALITIES = {"picture": 256, "text": 64}
NUMBERS: tuple[tuple[str, int | None], ...] = tuple(MODALITIES.items())
BATCH, RATES = 1_024, (0.001, 0.003)
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class World:
    vectors: dict[str, Floats]
    met: NDArray[np.bool_]
    """Items of which training has rows."""
    chance: Floats
    """[users, items]."""


def draw_world(users: int, items: int, seed: int) -> World:
    random = np.random.default_rng(seed)
    tastes, places = (random.standard_normal((count, TASTES)) for count in (users, items))
    vectors = {}
    for at, (name, width) in enumerate(MODALITIES.items()):
        shown = places.copy()
        shown[:, at * TASTES // 2 : (at + 1) * TASTES // 2] *= 0.1  # the half that the other modality shows
        rows = shown @ random.standard_normal((TASTES, width)) / TASTES**0.5 + 0.3 * random.standard_normal((items, width))
        rows += 3 * random.standard_normal(width)
        vectors[name] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    chance = 1 / (1 + np.exp(-(2.5 * tastes @ places.T / TASTES**0.5 - 1)))
    return World(vectors, random.random(items) < 0.5, chance.astype(np.float32))


def draw_rows(world: World, count: int, met: bool, seed: int) -> tuple[TrainingBatch, Floats]:
    """Returns rows, and the chance of a like of each."""
    random = np.random.default_rng(seed)
    users = random.integers(len(world.chance), size=count).astype(np.int32)
    items = random.choice(np.flatnonzero(world.met == met), count).astype(np.int32)
    chance = world.chance[users, items]
    labels = (random.random(count) < chance).astype(np.float32)
    codes = items if met else np.full_like(items, len(world.met))  # the code of unknown items
    return TrainingBatch({"user": users, "item": codes} | {name: vectors[items] for name, vectors in world.vectors.items()}, labels), chance


def train(
    architecture: Architecture, rows: TrainingBatch, choose: TrainingBatch, test: Sequence[TrainingBatch], epochs: int, seed: int
) -> list[float]:
    """Returns the AUC of the test rows, by the rate and the epoch that were best on the rows to choose by."""
    best, values = -1.0, list[float]()
    columns = {name: rows.columns[name] for name in architecture.features}
    for rate in RATES:
        step = neural_step(architecture, rate, seed)
        for epoch in range(epochs):
            for batch in shuffled(columns, rows.labels, BATCH, (seed, epoch)):
                items = batch.columns["item"]
                if epoch % 2:  # in every other epoch a quarter of the items are shown as unknown
                    items = np.where(np.arange(len(items)) % 4 == 0, architecture.tables[1].cardinality - 1, items)
                step(TrainingBatch({**batch.columns, "item": items}, batch.labels))
            value = auc(step.score(choose.columns), choose.labels)
            if value > best:
                best, values = value, [auc(step.score(part.columns), part.labels) for part in test]
    return values


@benchmark("modalities")
def modalities(seeds: int = 3, users: int = 2_000, items: int = 2_000, rows: int = 120_000, epochs: int = 8) -> Iterator[Outcome]:
    tables = (Table("user", users, 16, None), Table("item", items + 1, 16, None))
    families: dict[str, Callable[[tuple[tuple[str, int | None], ...]], Architecture]] = {
        "mlp": lambda numbers: mlp.architecture_of(tables, MlpParams(layers=(128, 64)), numbers),
        "dlrm": lambda numbers: dlrm.architecture_of(tables, DlrmParams(), numbers),
    }
    contenders = {f"eyas: {name}, keys alone": make(()) for name, make in families.items()}
    contenders |= {f"eyas: {name}, vectors as they are": make(NUMBERS) for name, make in families.items()}
    contenders |= {f"eyas: {name}, layer norm": level(make(NUMBERS), list(MODALITIES)) for name, make in families.items()}
    values: dict[str, list[list[float]]] = {}
    for seed in range(1, seeds + 1):
        world = draw_world(users, items, seed)
        learn, choose = (draw_rows(world, count, True, 10 * seed + at)[0] for at, count in enumerate((rows, rows // 5)))
        test = [draw_rows(world, rows // 5, met, 10 * seed + 2 + met) for met in (True, False)]
        values.setdefault("who knows the chances", []).append([auc(chance, part.labels) for part, chance in test])
        for name, architecture in contenders.items():
            values.setdefault(name, []).append(train(architecture, learn, choose, [part for part, _ in test], epochs, seed))
            say(f"seed {seed}, {name}: met {values[name][-1][0]:.4f}, unmet {values[name][-1][1]:.4f}")
    for name, runs in values.items():
        for kind, each in zip(("met", "unmet"), zip(*runs, strict=True), strict=True):
            yield Row(f"{rows:,} rows, {users:,} users, {items:,} items", name, f"AUC of {kind} items", "", each)


if __name__ == "__main__":
    modalities()
