"""Contenders of the training benchmark, and the rates of this machine, each in a process of its own:

    python -m benchmarks.train_contenders NAME CASE STEPS
    python -m benchmarks.train_contenders rates FRAMEWORK

The first prints as JSON the mean seconds of STEPS steps, after a few that are not counted, and the loss of the first and last ones; the
second matrix products a second by precision, and bytes a second to and from memory.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from benchmarks.tables import answer
from benchmarks.train_cases import Case, LikesCase
from pipelines.inputs.batches import TrainingBatch
from pipelines.models.neural.frameworks.protocol import Name
from pipelines.models.tables import Table

WARM = 5
RATE = 0.003
DIFFERENT = 16
"""Batches in memory: enough that none is in the cache."""
SIZE, MEMORY, SECONDS = 2_048, 1 << 28, 1.5
"""Of a matrix, of a copy in bytes, and of a measurement."""
CASE: TypeAdapter[Case | LikesCase] = TypeAdapter(Case | LikesCase)
Result = tuple[float, list[float]]
"""Seconds of all steps, and losses."""


@dataclass(frozen=True)
class Contender:
    name: str
    framework: str
    train: Callable[[Any, Sequence[Any], int], Result]
    note: str = ""


def _eyas(framework: Name, *switches: str) -> Contender:
    """Looking up the rows of a batch is a part of its step."""
    settings = {"bfloat16": {"half": True}, "compiled": {"jit": True}, "tables apart": {"fused": False}}
    options: dict[str, Any] = {name: value for switch in switches for name, value in settings[switch].items()}

    def train(case: Case, batches: Sequence[TrainingBatch], steps: int) -> Result:
        from pipelines.models import mlp, neumf
        from pipelines.models.neural.frameworks import load_framework
        from pipelines.models.neural.fused import HOST_FACTOR
        from pipelines.models.neural.step import NeuralStep, StepOptions
        from pipelines.models.neural.weights import begin
        from shared.contracts.families import MlpParams, NeumfParams

        if case.family == "neumf":
            user, item = case.tables
            architecture = neumf.architecture_of(user, item, NeumfParams(width=case.product, layers=case.layers))
        else:
            architecture = mlp.architecture_of(case.tables, MlpParams(layers=case.layers))
        how = StepOptions(learning_rate=RATE, dense_rows=HOST_FACTOR * case.batch, **options)
        return _timed(NeuralStep(load_framework(framework), architecture, begin(architecture, 1), how), batches, steps)

    return Contender(", ".join([f"eyas on {framework}", *switches]), framework, train)


def _timed(step: Callable[[Any], Any], batches: Sequence[Any], steps: int) -> Result:
    losses = [float(step(batches[at % len(batches)])) for at in range(WARM)]
    began = time.perf_counter()
    new = [step(batches[at % len(batches)]) for at in range(steps)]
    last = float(new[-1])  # waits for it
    return time.perf_counter() - began, [*losses, *map(float, new[:-1]), last]


def _keras(case: Case, batches: Sequence[TrainingBatch], steps: int) -> Result:
    """The usual way: Embedding, Dense, Adam, fit on a tf.data pipeline out of memory."""
    import keras
    import tensorflow as tf

    inputs, vectors, products = dict[str, Any](), list[Any](), list[Any]()
    for table in case.tables:
        codes = inputs[table.column] = keras.Input(() if table.length is None else (table.length,), dtype="int32", name=table.column)
        if case.product:
            products.append(keras.layers.Embedding(table.cardinality, case.product)(codes))
        looked_up = keras.layers.Embedding(table.cardinality, table.width - case.product)(codes)
        if table.length is not None:
            present = keras.ops.cast(keras.ops.expand_dims(keras.ops.not_equal(codes, 0), -1), "float32")
            looked_up = keras.ops.sum(looked_up * present, axis=1) / keras.ops.maximum(keras.ops.sum(present, axis=1), 1.0)
        vectors.append(looked_up)
    hidden = keras.layers.Concatenate()(vectors)
    for units in case.layers:
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
    if products:
        hidden = keras.layers.Concatenate()([keras.layers.Multiply()(products), hidden])
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden))
    model.compile(optimizer=keras.optimizers.Adam(RATE), loss="binary_crossentropy")
    columns = {table.column: np.stack([batch.columns[table.column] for batch in batches]) for table in case.tables}
    data = tf.data.Dataset.from_tensor_slices((columns, np.stack([batch.labels for batch in batches]))).repeat().prefetch(4)

    def fit(count: int) -> float:
        return float(model.fit(data, epochs=1, steps_per_epoch=count, verbose=0, shuffle=False).history["loss"][0])

    first = fit(1)
    fit(WARM - 1)
    began = time.perf_counter()
    fit(steps)
    return time.perf_counter() - began, [first, fit(1)]


def _torch(*, sparse: bool) -> Callable[[Any, Sequence[Any], int], Result]:
    """The usual way; `sparse`: with sparse gradients, and SparseAdam for them."""

    def train(case: Case, batches: Sequence[TrainingBatch], steps: int) -> Result:
        import torch

        def embedding(table: Table, width: int) -> Any:
            if table.length is None:
                return torch.nn.Embedding(table.cardinality, width, sparse=sparse)
            return torch.nn.EmbeddingBag(table.cardinality, width, mode="mean", padding_idx=0, sparse=sparse)

        tables = torch.nn.ModuleDict({table.column: embedding(table, table.width - case.product) for table in case.tables})
        factors = torch.nn.ModuleDict({table.column: embedding(table, case.product) for table in case.tables if case.product})
        widths, layers = (case.width, *case.layers), list[Any]()
        for before, after in zip(widths, case.layers, strict=False):
            layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
        network, score = torch.nn.Sequential(*layers), torch.nn.Linear(widths[-1] + case.product, 1)
        looked_up, others = [*tables.parameters(), *factors.parameters()], [*network.parameters(), *score.parameters()]
        optimizers = [torch.optim.Adam([*others, *([] if sparse else looked_up)], RATE)]
        if sparse:
            optimizers.append(torch.optim.SparseAdam(looked_up, RATE))
        entropy = torch.nn.BCEWithLogitsLoss()

        def loss_of(batch: TrainingBatch) -> Any:
            codes = {name: torch.from_numpy(column) for name, column in batch.columns.items()}
            hidden = network(torch.cat([tables[name](column) for name, column in codes.items()], 1))
            if case.product:
                first, second = (factors[name](column) for name, column in codes.items())
                hidden = torch.cat([first * second, hidden], 1)
            return entropy(score(hidden)[:, 0], torch.from_numpy(batch.labels))

        return _timed(_torch_step(loss_of, *optimizers), batches, steps)

    return train


def _torch_step(loss_of: Callable[[Any], Any], *optimizers: Any) -> Callable[[Any], Any]:
    def step(batch: Any) -> Any:
        loss = loss_of(batch)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    return step


def _likes_eyas(case: LikesCase, batches: Sequence[Any], steps: int) -> Result:
    """Whole epochs, with the making of batches."""
    from pipelines.training.mf_contrastive import Contrast, ContrastiveTask, begin_parts

    pairs, each = case.pairs(), -(-case.users // case.batch)
    epochs = -(-steps // each)
    task = ContrastiveTask("softmax", float(case.items), 0.0)
    training = Contrast(pairs, begin_parts(pairs, case.width, False, 1), task, RATE, epochs + 1, 1)
    losses = [training.epoch()]
    began = time.perf_counter()
    losses += [training.epoch() for _ in range(epochs)]
    return (time.perf_counter() - began) * steps / (epochs * each), losses


def _likes_keras(case: LikesCase, batches: Sequence[Any], steps: int) -> Result:
    import keras

    user = keras.Input((), dtype="int32")
    model = keras.Model(user, keras.layers.Dense(case.items)(keras.layers.Embedding(case.users, case.width)(user)))
    model.compile(optimizer=keras.optimizers.Adam(RATE), loss=keras.losses.CategoricalCrossentropy(from_logits=True))
    return _timed(lambda batch: model.train_on_batch(*batch), batches, steps)


def _likes_torch(case: LikesCase, batches: Sequence[Any], steps: int) -> Result:
    import torch

    model = torch.nn.Sequential(torch.nn.Embedding(case.users, case.width), torch.nn.Linear(case.width, case.items))
    entropy = torch.nn.CrossEntropyLoss()

    def loss_of(batch: tuple[Any, Any]) -> Any:
        users, shares = map(torch.from_numpy, batch)
        return entropy(model(users), shares)

    return _timed(_torch_step(loss_of, torch.optim.Adam(model.parameters(), RATE)), batches, steps)


_HOST: tuple[Name, ...] = ("tensorflow", "torch")
SWITCHES = ((), ("tables apart",), ("compiled",), ("bfloat16",), ("bfloat16", "compiled"))
CONTENDERS = {
    contender.name: contender
    for contender in (
        *(_eyas(framework, *switches) for framework in _HOST for switches in SWITCHES),
        _eyas("jax"),
        Contender("keras: model.fit", "tensorflow", _keras, "batches of tensors, no looking up in Python"),
        Contender("torch: plain loop", "torch", _torch(sparse=False)),
        Contender("torch: plain loop, sparse", "torch", _torch(sparse=True), "SparseAdam for the tables"),
        Contender("eyas in numpy", "numpy", _likes_eyas, "other likes are no negatives; its batches are made in its time"),
        Contender("keras: rows of likes", "tensorflow", _likes_keras, "softmax over the catalogue, a row of shares for each user"),
        Contender("torch: rows of likes", "torch", _likes_torch, "as in Keras"),
    )
}


def rates(framework: str) -> dict[str, float]:
    """Floating point operations a second, and bytes a second, read and written: the best of several."""
    pair = [np.random.default_rng(seed).random((SIZE, SIZE), dtype=np.float32) for seed in (1, 2)]
    products: dict[str, Callable[[], object]] = {}
    if framework == "numpy":
        products["float32"] = lambda: pair[0] @ pair[1]
    elif framework == "jax":
        from jax import numpy as jnp

        arrays = list(map(jnp.array, pair))
        products["float32"] = lambda: jnp.matmul(*arrays).block_until_ready()
    for kind in ("float32", "bfloat16"):
        if framework == "tensorflow":
            import tensorflow as tf

            tensors = [tf.cast(matrix, kind) for matrix in pair]
            products[kind] = lambda tensors=tensors: tf.matmul(*tensors).numpy()  # type: ignore[misc]
        elif framework == "torch":
            import torch

            tensors = [torch.from_numpy(matrix).to(getattr(torch, kind)) for matrix in pair]
            products[kind] = lambda tensors=tensors: tensors[0] @ tensors[1]  # type: ignore[misc]
    best = {f"{framework} {kind}": 2.0 * SIZE**3 * _rate(product) for kind, product in products.items()}
    if framework == "numpy":
        source, target = np.ones(MEMORY // 4, np.float32), np.zeros(MEMORY // 4, np.float32)
        best["bandwidth"] = 2 * MEMORY * _rate(lambda: np.copyto(target, source))
    return best


def _rate(work: Callable[[], object]) -> float:
    """The most a second."""
    work()
    least, ends = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < ends:
        began = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - began)
    return 1 / least


def main() -> None:
    if sys.argv[1] == "rates":
        answer(rates(sys.argv[2]))
    contender, case, steps = CONTENDERS[sys.argv[1]], CASE.validate_json(sys.argv[2]), int(sys.argv[3])
    os.environ["KERAS_BACKEND"] = "tensorflow" if contender.framework == "numpy" else contender.framework
    seconds, losses = contender.train(case, list(case.batches(DIFFERENT)), steps)
    answer({"seconds": seconds / steps, "first": losses[0], "last": float(np.mean(losses[-4:]))})


if __name__ == "__main__":
    main()
