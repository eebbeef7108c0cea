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

from benchmarks.train_cases import Case
from pipelines.inputs.batches import Batch
from pipelines.models.tables import Table

WARM = 5
RATE = 0.003
KEPT = 16
"""Different batches: enough that none is in the cache, few enough to be held."""
Train = Callable[[Case, Sequence[Batch], int], tuple[float, list[float]]]
"""Seconds of so many steps, and losses."""


@dataclass(frozen=True)
class Contender:
    name: str
    framework: str
    train: Train
    note: str = ""


def _eyas(framework: str, **how: Any) -> Contender:
    """Looking up what a batch reads is a part of its step."""

    def train(case: Case, batches: Sequence[Batch], steps: int) -> tuple[float, list[float]]:
        from pipelines.models.mlp import architecture_of
        from pipelines.models.neural.frameworks import load_framework
        from pipelines.models.neural.step import How, NeuralStep
        from pipelines.models.neural.weights import begin
        from shared.contracts.families import MlpParams

        architecture = architecture_of(case.tables, MlpParams(layers=case.layers))
        step = NeuralStep(load_framework(framework), architecture, begin(architecture, 1), How(learning_rate=RATE, **how))  # type: ignore[arg-type]
        return _timed(step, batches, steps)

    said = [{"half": "bfloat16", "jit": "compiled", "fused": "tables apart"}[name] for name in how]
    return Contender(", ".join([f"eyas on {framework}", *said]), framework, train)


def _timed(step: Callable[[Batch], Any], batches: Sequence[Batch], steps: int) -> tuple[float, list[float]]:
    losses = [float(step(batches[at % len(batches)])) for at in range(WARM)]
    began = time.perf_counter()
    found = [step(batches[at % len(batches)]) for at in range(steps)]
    last = float(found[-1])  # waits for it
    return time.perf_counter() - began, [*losses, *map(float, found[:-1]), last]


def _keras(case: Case, batches: Sequence[Batch], steps: int) -> tuple[float, list[float]]:
    """As anybody would write it: Embedding, Dense, Adam, fit on a tf.data pipeline out of memory."""
    import keras
    import tensorflow as tf

    inputs, vectors = {}, []
    for one in case.tables:
        codes = inputs[one.column] = keras.Input(() if one.length is None else (one.length,), dtype="int32", name=one.column)
        looked_up = keras.layers.Embedding(one.cardinality, one.width)(codes)
        if one.length is not None:
            there = keras.ops.cast(keras.ops.expand_dims(keras.ops.not_equal(codes, 0), -1), "float32")
            looked_up = keras.ops.sum(looked_up * there, axis=1) / keras.ops.maximum(keras.ops.sum(there, axis=1), 1.0)
        vectors.append(looked_up)
    hidden = keras.layers.Concatenate()(vectors)
    for units in case.layers:
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
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

    def train(case: Case, batches: Sequence[Batch], steps: int) -> tuple[float, list[float]]:
        import torch

        tables = torch.nn.ModuleDict({one.column: _looked_up(torch, one, sparse) for one in case.tables})
        widths, layers = (case.width, *case.layers), list[Any]()
        for before, after in zip(widths, case.layers, strict=False):
            layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
        network = torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], 1))
        optimizers = [torch.optim.Adam([*network.parameters(), *([] if sparse else tables.parameters())], RATE)]
        if sparse:
            optimizers.append(torch.optim.SparseAdam(list(tables.parameters()), RATE))
        entropy = torch.nn.BCEWithLogitsLoss()

        def step(batch: Batch) -> Any:
            vectors = [tables[name](torch.from_numpy(codes)) for name, codes in batch.columns.items()]
            loss = entropy(network(torch.cat(vectors, 1))[:, 0], torch.from_numpy(batch.labels))
            for one in optimizers:
                one.zero_grad(set_to_none=True)
            loss.backward()
            for one in optimizers:
                one.step()
            return loss.detach()

        return _timed(step, batches, steps)

    return train


def _looked_up(torch: Any, table: Table, sparse: bool) -> Any:
    if table.length is None:
        return torch.nn.Embedding(table.cardinality, table.width, sparse=sparse)
    return torch.nn.EmbeddingBag(table.cardinality, table.width, mode="mean", padding_idx=0, sparse=sparse)


CONTENDERS = {
    one.name: one
    for one in (
        *(_eyas(framework) for framework in ("tensorflow", "torch")),
        *(_eyas(framework, fused=False) for framework in ("tensorflow", "torch")),
        *(_eyas(framework, jit=True) for framework in ("tensorflow", "torch")),
        *(_eyas(framework, half=True) for framework in ("tensorflow", "torch")),
        *(_eyas(framework, half=True, jit=True) for framework in ("tensorflow", "torch")),
        Contender("keras: model.fit", "tensorflow", _keras, "batches of tensors, no looking up in Python"),
        Contender("torch: plain loop", "torch", _torch(sparse=False)),
        Contender("torch: plain loop, sparse", "torch", _torch(sparse=True), "SparseAdam for the tables"),
    )
}


def write_case(case: Case, path: Path) -> Path:
    path.write_text(json.dumps(asdict(case)))
    return path


def read_case(path: Path) -> Case:
    said = json.loads(path.read_text())
    return Case(**said | {"tables": tuple(Table(**one) for one in said["tables"]), "layers": tuple(said["layers"])})


def main() -> None:
    contender, case, steps = CONTENDERS[sys.argv[1]], read_case(Path(sys.argv[2])), int(sys.argv[3])
    os.environ["KERAS_BACKEND"] = contender.framework
    seconds, losses = contender.train(case, list(case.batches(KEPT)), steps)
    sys.stdout.write(json.dumps({"seconds": seconds / steps, "first": losses[0], "last": float(np.mean(losses[-4:]))}) + "\n")


if __name__ == "__main__":
    main()
