"""The contenders of the training benchmark, each in a process of its own:

python -m benchmarks.train_contenders NAME CASE.json STEPS

says as JSON the seconds that each of STEPS steps took on average, after a few that aren't counted, and the loss of the first and last ones.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.train_cases import Case, LikesCase
from pipelines.inputs.batches import TrainingBatch
from pipelines.models.tables import Table

WARM = 5
RATE = 0.003
KEPT = 16
"""Different batches: enough that none is in the cache, few enough to be held."""
Train = Callable[[Any, Sequence[Any], int], tuple[float, list[float]]]
"""Seconds of so many steps, and losses."""


@dataclass(frozen=True)
class Contender:
    name: str
    framework: str
    train: Train
    note: str = ""


def _eyas(framework: str, **how: Any) -> Contender:
    """Looking up what a batch reads is a part of its step."""

    def train(case: Case, batches: Sequence[TrainingBatch], steps: int) -> tuple[float, list[float]]:
        from pipelines.models import mlp, neumf
        from pipelines.models.neural.frameworks import load_framework
        from pipelines.models.neural.step import NeuralStep, StepOptions
        from pipelines.models.neural.weights import begin
        from shared.contracts.families import MlpParams, NeumfParams

        if case.family == "neumf":
            user, item = case.tables
            architecture = neumf.architecture_of(user, item, NeumfParams(width=case.product, layers=case.layers))
        else:
            architecture = mlp.architecture_of(case.tables, MlpParams(layers=case.layers))
        step = NeuralStep(load_framework(framework), architecture, begin(architecture, 1), StepOptions(learning_rate=RATE, **how))  # type: ignore[arg-type]
        return _timed(step, batches, steps)

    said = [{"half": "bfloat16", "jit": "compiled", "fused": "tables apart"}[name] for name in how]
    return Contender(", ".join([f"eyas on {framework}", *said]), framework, train)


def _timed(step: Callable[[Any], Any], batches: Sequence[Any], steps: int) -> tuple[float, list[float]]:
    losses = [float(step(batches[at % len(batches)])) for at in range(WARM)]
    began = time.perf_counter()
    found = [step(batches[at % len(batches)]) for at in range(steps)]
    last = float(found[-1])  # waits for it
    return time.perf_counter() - began, [*losses, *map(float, found[:-1]), last]


def _keras(case: Case, batches: Sequence[TrainingBatch], steps: int) -> tuple[float, list[float]]:
    """As anybody would write it: Embedding, Dense, Adam, fit on a tf.data pipeline out of memory."""
    import keras
    import tensorflow as tf

    inputs, vectors, products = dict[str, Any](), list[Any](), list[Any]()
    for one in case.tables:
        codes = inputs[one.column] = keras.Input(() if one.length is None else (one.length,), dtype="int32", name=one.column)
        if case.product:
            products.append(keras.layers.Embedding(one.cardinality, case.product)(codes))
        looked_up = keras.layers.Embedding(one.cardinality, one.width - case.product)(codes)
        if one.length is not None:
            there = keras.ops.cast(keras.ops.expand_dims(keras.ops.not_equal(codes, 0), -1), "float32")
            looked_up = keras.ops.sum(looked_up * there, axis=1) / keras.ops.maximum(keras.ops.sum(there, axis=1), 1.0)
        vectors.append(looked_up)
    hidden = keras.layers.Concatenate()(vectors)
    for units in case.layers:
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
    if products:
        hidden = keras.layers.Concatenate()([keras.layers.Multiply()(products), hidden])
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden))
    model.compile(optimizer=keras.optimizers.Adam(RATE), loss="binary_crossentropy")
    columns = {one.column: np.stack([batch.columns[one.column] for batch in batches]) for one in case.tables}
    whole = tf.data.Dataset.from_tensor_slices((columns, np.stack([batch.labels for batch in batches]))).repeat().prefetch(4)
    losses = [float(model.fit(whole, epochs=1, steps_per_epoch=1, verbose=0, shuffle=False).history["loss"][0])]
    model.fit(whole, epochs=1, steps_per_epoch=WARM - 1, verbose=0, shuffle=False)
    began = time.perf_counter()
    model.fit(whole, epochs=1, steps_per_epoch=steps, verbose=0, shuffle=False)
    seconds = time.perf_counter() - began
    return seconds, [*losses, float(model.fit(whole, epochs=1, steps_per_epoch=1, verbose=0, shuffle=False).history["loss"][0])]


def _torch(*, sparse: bool) -> Train:
    """As anybody would write it; `sparse`: with sparse gradients, and SparseAdam for them."""

    def train(case: Case, batches: Sequence[TrainingBatch], steps: int) -> tuple[float, list[float]]:
        import torch

        tables = torch.nn.ModuleDict({one.column: _looked_up(torch, one, one.width - case.product, sparse) for one in case.tables})
        factors = torch.nn.ModuleDict({one.column: _looked_up(torch, one, case.product, sparse) for one in case.tables if case.product})
        widths, layers = (case.width, *case.layers), list[Any]()
        for before, after in zip(widths, case.layers, strict=False):
            layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
        network, score = torch.nn.Sequential(*layers), torch.nn.Linear(widths[-1] + case.product, 1)
        looked_up, others = [*tables.parameters(), *factors.parameters()], [*network.parameters(), *score.parameters()]
        optimizers = [torch.optim.Adam([*others, *([] if sparse else looked_up)], RATE)]
        if sparse:
            optimizers.append(torch.optim.SparseAdam(looked_up, RATE))
        entropy = torch.nn.BCEWithLogitsLoss()

        def step(batch: TrainingBatch) -> Any:
            codes = {name: torch.from_numpy(column) for name, column in batch.columns.items()}
            hidden = network(torch.cat([tables[name](one) for name, one in codes.items()], 1))
            if case.product:
                first, second = (factors[name](one) for name, one in codes.items())
                hidden = torch.cat([first * second, hidden], 1)
            loss = entropy(score(hidden)[:, 0], torch.from_numpy(batch.labels))
            for one in optimizers:
                one.zero_grad(set_to_none=True)
            loss.backward()
            for one in optimizers:
                one.step()
            return loss.detach()

        return _timed(step, batches, steps)

    return train


def _looked_up(torch: Any, table: Table, width: int, sparse: bool) -> Any:
    if table.length is None:
        return torch.nn.Embedding(table.cardinality, width, sparse=sparse)
    return torch.nn.EmbeddingBag(table.cardinality, width, mode="mean", padding_idx=0, sparse=sparse)


def _likes_eyas(case: LikesCase, batches: Sequence[Any], steps: int) -> tuple[float, list[float]]:
    """Whole epochs, what a step is given included."""
    from pipelines.training.mf_contrastive import Contrast, ContrastiveTask, begin_parts

    pairs, each = case.pairs(), -(-case.users // case.batch)
    epochs = -(-steps // each)
    training = Contrast(
        pairs, begin_parts(pairs, case.width, False, 1), ContrastiveTask("softmax", float(case.items), 0.0), RATE, epochs + 1, 1
    )
    losses = [training.epoch()]
    began = time.perf_counter()
    losses += [training.epoch() for _ in range(epochs)]
    return (time.perf_counter() - began) * steps / (epochs * each), losses


def _likes_keras(case: LikesCase, batches: Sequence[Any], steps: int) -> tuple[float, list[float]]:
    import keras

    user = keras.Input((), dtype="int32")
    model = keras.Model(user, keras.layers.Dense(case.items)(keras.layers.Embedding(case.users, case.width)(user)))
    model.compile(optimizer=keras.optimizers.Adam(RATE), loss=keras.losses.CategoricalCrossentropy(from_logits=True))
    return _timed(lambda given: model.train_on_batch(*given), batches, steps)


def _likes_torch(case: LikesCase, batches: Sequence[Any], steps: int) -> tuple[float, list[float]]:
    import torch

    model = torch.nn.Sequential(torch.nn.Embedding(case.users, case.width), torch.nn.Linear(case.width, case.items))
    optimizer, entropy = torch.optim.Adam(model.parameters(), RATE), torch.nn.CrossEntropyLoss()

    def step(given: tuple[Any, Any]) -> Any:
        users, shares = map(torch.from_numpy, given)
        loss = entropy(model(users), shares)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return _timed(step, batches, steps)


CONTENDERS = {
    one.name: one
    for one in (
        *(_eyas(framework) for framework in ("tensorflow", "torch", "jax")),
        *(_eyas(framework, fused=False) for framework in ("tensorflow", "torch")),
        *(_eyas(framework, jit=True) for framework in ("tensorflow", "torch")),
        *(_eyas(framework, half=True) for framework in ("tensorflow", "torch")),
        *(_eyas(framework, half=True, jit=True) for framework in ("tensorflow", "torch")),
        Contender("keras: model.fit", "tensorflow", _keras, "batches of tensors, no looking up in Python"),
        Contender("torch: plain loop", "torch", _torch(sparse=False)),
        Contender("torch: plain loop, sparse", "torch", _torch(sparse=True), "SparseAdam for the tables"),
        Contender("eyas in numpy", "numpy", _likes_eyas, "other likes are no negatives; its batches are made in its time"),
        Contender("keras: rows of likes", "tensorflow", _likes_keras, "softmax over the catalogue, a row of shares for each user"),
        Contender("torch: rows of likes", "torch", _likes_torch, "as in Keras"),
    )
}


def write_case(case: Case | LikesCase, path: Path) -> Path:
    path.write_text(json.dumps(asdict(case)))
    return path


def read_case(path: Path) -> Case | LikesCase:
    said = json.loads(path.read_text())
    if "tables" not in said:
        return LikesCase(**said)
    return Case(**said | {"tables": tuple(Table(**one) for one in said["tables"]), "layers": tuple(said["layers"])})


def main() -> None:
    contender, case, steps = CONTENDERS[sys.argv[1]], read_case(Path(sys.argv[2])), int(sys.argv[3])
    os.environ["KERAS_BACKEND"] = "tensorflow" if contender.framework == "numpy" else contender.framework
    seconds, losses = contender.train(case, list(case.batches(KEPT)), steps)
    sys.stdout.write(json.dumps({"seconds": seconds / steps, "first": losses[0], "last": float(np.mean(losses[-4:]))}) + "\n")


if __name__ == "__main__":
    main()
