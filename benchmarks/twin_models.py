"""Steps of our families, and of the same models written plainly in Keras and torch. Both sides take turns in one process:

    python -m benchmarks.twin_models FRAMEWORK CASE ROUNDS

It prints as JSON the seconds of a step by side and round, and each side's first and last loss. With a side (eyas or plain) in place of
ROUNDS it takes some steps of that side alone, and prints the MiB of memory that model, optimizer and steps add at most.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, get_args

import numpy as np

from benchmarks.harness import memory
from benchmarks.tables import answer
from benchmarks.train_cases import Case
from benchmarks.train_contenders import CASE, RATE
from pipelines.inputs.batches import TrainingBatch
from pipelines.models import dlrm, mlp, neumf, two_tower, wide_deep
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.frameworks.protocol import Name
from pipelines.models.neural.fused import HOST_FACTOR
from pipelines.models.neural.losses import InBatch, log_chances
from pipelines.models.neural.step import LOGISTIC, NeuralStep, StepOptions
from pipelines.models.neural.weights import begin
from pipelines.models.tables import Table
from shared.contracts.families import DlrmParams, MlpParams, NeumfParams, TwoTowerParams, WideDeepParams

Step = Callable[[TrainingBatch], Any]
WARM, LEAST, MOST, SECONDS = 3, 3, 30, 0.4
"""Steps that are not counted; fewest, most and aimed-at seconds of one side's steps in a round."""
DIFFERENT = 8
"""Batches in memory."""
BOTTOM, TOWER, TEMPERATURE = DlrmParams().bottom, TwoTowerParams().width, TwoTowerParams().temperature
NEVER = -1e9
"""Logit of an item that cannot be chosen."""


def architecture_of(case: Case) -> Architecture:
    numbers = tuple((name, None) for name in case.number_names)
    if case.family == "neumf":
        user, item = case.tables
        return neumf.architecture_of(user, item, NeumfParams(width=case.product, layers=case.layers))
    if case.family == "two_tower":
        sides = ("user", *case.number_names), ("item", "genres")
        return two_tower.architecture_of(case.tables, numbers, sides, TwoTowerParams(layers=case.layers))
    if case.family == "dlrm":
        return dlrm.architecture_of(case.tables, DlrmParams(layers=case.layers, width=case.tables[0].width), numbers)
    if case.family == "wide_deep":
        return wide_deep.architecture_of(case.tables, WideDeepParams(layers=case.layers), numbers)
    return mlp.architecture_of(case.tables, MlpParams(layers=case.layers), numbers)


def _chances(case: Case) -> Any:
    """Log share of each item; all items are equally popular here."""
    return log_chances(np.ones(case.tables[1].cardinality))


def eyas(case: Case, framework: Name) -> Step:
    architecture = architecture_of(case)
    loss = InBatch("user_vector", "item_vector", "item", _chances(case)) if case.family == "two_tower" else LOGISTIC
    how = StepOptions(learning_rate=RATE, dense_rows=HOST_FACTOR * case.batch)
    return NeuralStep(load_framework(framework), architecture, begin(architecture, 1), how, loss)


def keras_model(case: Case) -> Any:
    """A functional model; two towers give two vectors, other models a logit."""
    import keras
    from keras import layers, ops

    inputs = {name: keras.Input((), dtype="float32", name=name) for name in case.number_names}
    inputs |= {
        table.column: keras.Input((table.length,) if table.length else (), dtype="int32", name=table.column) for table in case.tables
    }
    numbers = [ops.expand_dims(inputs[name], 1) for name in case.number_names]

    def embedded(table: Table, width: int) -> Any:
        vectors = layers.Embedding(table.cardinality, width)(inputs[table.column])
        if table.length is None:
            return vectors
        present = ops.cast(ops.expand_dims(ops.not_equal(inputs[table.column], 0), -1), "float32")
        total = ops.sum(vectors * present, axis=1)
        return total / ops.maximum(ops.sum(present, axis=1), 1.0) if table.pooling == "mean" else total

    def dense(rows: Any, units: Sequence[int]) -> Any:
        for width in units:
            rows = layers.Dense(width, activation="relu")(rows)
        return rows

    def tower(parts: Sequence[Any]) -> Any:
        vector = layers.Dense(TOWER)(dense(ops.concatenate(parts, axis=1), case.layers))
        return layers.UnitNormalization()(vector)

    if case.family == "two_tower":
        user, item, genres = (embedded(table, table.width) for table in case.tables)
        return keras.Model(inputs, [tower([user, *numbers]), tower([item, genres])])
    if case.family == "neumf":
        product = layers.Multiply()([embedded(table, case.product) for table in case.tables])
        pair = ops.concatenate([embedded(table, table.width - case.product) for table in case.tables], axis=1)
        last = ops.concatenate([product, dense(pair, case.layers)], axis=1)
    elif case.family == "dlrm":
        width = case.tables[0].width
        bottom = dense(ops.concatenate(numbers, axis=1), (*BOTTOM, width))
        vectors = ops.stack([bottom, *(embedded(table, width) for table in case.tables)], axis=1)
        square = ops.reshape(ops.matmul(vectors, ops.transpose(vectors, (0, 2, 1))), (-1, (len(case.tables) + 1) ** 2))
        pairs = ops.take(square, _below(len(case.tables) + 1), axis=1)
        last = dense(ops.concatenate([bottom, pairs], axis=1), case.layers)
    else:
        wide = 1 if case.family == "wide_deep" else 0
        last = dense(ops.concatenate([*(embedded(table, table.width - wide) for table in case.tables), *numbers], axis=1), case.layers)
    logit = layers.Dense(1)(last)
    if case.family == "wide_deep":
        logit = layers.Add()([logit, layers.Dense(1)(ops.concatenate(numbers, axis=1)), *(embedded(table, 1) for table in case.tables)])
    return keras.Model(inputs, logit)


def _below(count: int) -> Any:
    """Places of the pairs in a flattened square."""
    return np.array([count * row + column for row in range(count) for column in range(row)], np.int32)


def _keras_loss(case: Case) -> Callable[[Any, Mapping[str, Any], Any], Any]:
    import keras
    from keras import ops

    entropy = keras.losses.BinaryCrossentropy(from_logits=True)
    chances = ops.convert_to_tensor(_chances(case)) if case.family == "two_tower" else None

    def loss(outputs: Any, columns: Mapping[str, Any], labels: Any) -> Any:
        if case.family != "two_tower":
            return entropy(ops.expand_dims(labels, 1), outputs)
        (users, items), codes = outputs, columns["item"]
        logits = ops.matmul(users, ops.transpose(items)) / TEMPERATURE - ops.take(chances, codes)
        same = ops.equal(codes[:, None], codes[None, :]) & ~ops.eye(case.batch, dtype="bool")
        logits = ops.where(same, NEVER, logits)
        return ops.mean(ops.sparse_categorical_crossentropy(ops.arange(case.batch), logits, from_logits=True))

    return loss


def keras_on_tensorflow(case: Case) -> Step:
    """A custom loop: one function for the whole step, on tensors that are made before the clock starts."""
    import keras
    import tensorflow as tf

    model, loss_of, optimizer = keras_model(case), _keras_loss(case), keras.optimizers.Adam(RATE)
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]
    def step(columns: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(model(columns, training=True), columns, labels)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return _on_tensors(step, tf.constant)


def keras_on_jax(case: Case) -> Step:
    """A custom loop: one compiled function that writes the new state over the old one."""
    import jax
    import keras

    model, loss_of, optimizer = keras_model(case), _keras_loss(case), keras.optimizers.Adam(RATE)
    optimizer.build(model.trainable_variables)
    state = [[variable.value for variable in variables] for variables in (model.trainable_variables, optimizer.variables)]

    def forward(weights: Any, columns: Any, labels: Any) -> Any:
        outputs, _ = model.stateless_call(weights, [], columns, training=True)
        return loss_of(outputs, columns, labels)

    def step(weights: Any, slots: Any, columns: Any, labels: Any) -> Any:
        loss, gradients = jax.value_and_grad(forward)(weights, columns, labels)
        return loss, *optimizer.stateless_apply(slots, gradients, weights)

    program = jax.jit(step, donate_argnums=(0, 1))
    for variable in (*model.trainable_variables, *optimizer.variables):
        variable._value = None  # the program owns the memory

    def run(columns: Any, labels: Any) -> Any:
        loss, *state[:] = program(*state, columns, labels)
        return loss

    return _on_tensors(run, jax.numpy.asarray)


def _on_tensors(step: Callable[[Any, Any], Any], tensor: Callable[[Any], Any]) -> Step:
    tensors: dict[int, Any] = {}

    def run(batch: TrainingBatch) -> Any:
        if id(batch) not in tensors:
            tensors[id(batch)] = {name: tensor(column) for name, column in batch.columns.items()}, tensor(batch.labels)
        return step(*tensors[id(batch)])

    return run


def plain_torch(case: Case) -> Step:
    import torch
    from torch import nn

    def embedding(table: Table, width: int) -> Any:
        if table.length is None:
            return nn.Embedding(table.cardinality, width)
        return nn.EmbeddingBag(table.cardinality, width, mode=table.pooling, padding_idx=0)

    def dense(before: int, units: Sequence[int]) -> Any:
        widths = (before, *units)
        return nn.Sequential(*(part for pair in zip(widths, units, strict=False) for part in (nn.Linear(*pair), nn.ReLU())))

    wide = {"wide_deep": 1, "neumf": case.product}.get(case.family, 0)
    parts = nn.ModuleDict({table.column: embedding(table, table.width - wide) for table in case.tables})
    width, count = case.tables[0].width, len(case.tables) + 1
    more = nn.ModuleDict({f"wide_{table.column}": embedding(table, wide) for table in case.tables if wide})
    joined = sum(table.width - wide for table in case.tables) + case.numbers
    if case.family == "two_tower":
        more["user_tower"] = nn.Sequential(dense(width + case.numbers, case.layers), nn.Linear(case.layers[-1], TOWER))
        more["item_tower"] = nn.Sequential(dense(2 * width, case.layers), nn.Linear(case.layers[-1], TOWER))
    else:
        if case.family == "dlrm":
            more["bottom"], joined = dense(case.numbers, (*BOTTOM, width)), width + count * (count - 1) // 2
        more["hidden"] = dense(joined, case.layers)
        more["score"] = nn.Linear(case.layers[-1] + case.product, 1)
        if case.family == "wide_deep":
            more["linear"] = nn.Linear(case.numbers, 1)
    below, entropy = torch.from_numpy(_below(count)), nn.BCEWithLogitsLoss()
    chances = torch.from_numpy(_chances(case))

    def logits(vectors: Sequence[Any], seconds: Sequence[Any], numbers: Any) -> Any:
        if case.family == "dlrm":
            bottom = more["bottom"](numbers)
            stacked = torch.stack([bottom, *vectors], 1)
            pairs = torch.bmm(stacked, stacked.transpose(1, 2)).flatten(1)[:, below]
            return more["score"](more["hidden"](torch.cat([bottom, pairs], 1)))
        hidden = more["hidden"](torch.cat([*vectors, *([numbers] if case.numbers else [])], 1))
        if case.family == "neumf":
            return more["score"](torch.cat([seconds[0] * seconds[1], hidden], 1))
        return more["score"](hidden) + sum(seconds) + more["linear"](numbers) if seconds else more["score"](hidden)

    def loss_of(batch: TrainingBatch) -> Any:
        columns = {name: torch.from_numpy(column) for name, column in batch.columns.items()}
        numbers = torch.stack([columns[name] for name in case.number_names], 1) if case.numbers else None
        vectors = [parts[table.column](columns[table.column]) for table in case.tables]
        if case.family == "two_tower":
            users, items = more["user_tower"](torch.cat([vectors[0], numbers], 1)), more["item_tower"](torch.cat(vectors[1:], 1))
            users, items, codes = nn.functional.normalize(users), nn.functional.normalize(items), columns["item"]
            scores = users @ items.T / TEMPERATURE - chances[codes]
            same = (codes[:, None] == codes[None, :]).fill_diagonal_(False)
            return nn.functional.cross_entropy(scores.masked_fill(same, NEVER), torch.arange(case.batch))
        seconds = [more[f"wide_{table.column}"](columns[table.column]) for table in case.tables if wide]
        return entropy(logits(vectors, seconds, numbers)[:, 0], torch.from_numpy(batch.labels))

    optimizer = torch.optim.Adam([*parts.parameters(), *more.parameters()], RATE)

    def step(batch: TrainingBatch) -> Any:
        loss = loss_of(batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


PLAIN: Mapping[Name, Callable[[Case], Step]] = {"tensorflow": keras_on_tensorflow, "torch": plain_torch, "jax": keras_on_jax}


def measure(case: Case, framework: Name, rounds: int) -> dict[str, Any]:
    """Both sides begin every second round. A side's steps follow each other, and the clock waits for the last loss."""
    batches = list(case.batches(DIFFERENT))
    sides = {"eyas": eyas(case, framework), "plain": PLAIN[framework](case)}

    def seconds(step: Step, count: int) -> tuple[float, float]:
        began = time.perf_counter()
        losses = [step(batch) for batch in islice((batch for _ in range(count) for batch in batches), count)]
        last = float(losses[-1])
        return (time.perf_counter() - began) / count, last

    first = {name: float(step(batches[0])) for name, step in sides.items()}
    slowest = max(seconds(step, WARM)[0] for _ in range(2) for step in sides.values())
    count = int(min(MOST, max(LEAST, SECONDS / slowest)))
    times: dict[str, list[float]] = {name: [] for name in sides}
    last: dict[str, float] = {}
    for at in range(rounds):
        for name in sorted(sides, reverse=bool(at % 2)):
            each, last[name] = seconds(sides[name], count)
            times[name].append(each)
    return {"seconds": times, "first": first, "last": last, "steps": count}


def peak(case: Case, framework: Name, side: str) -> dict[str, Any]:
    batches = list(case.batches(DIFFERENT))
    load_framework(framework)
    before = memory(os.getpid(), "VmRSS")
    step = eyas(case, framework) if side == "eyas" else PLAIN[framework](case)
    for batch in batches:
        float(step(batch))
    return {"mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before}


def main() -> None:
    framework, case = sys.argv[1], CASE.validate_json(sys.argv[2])
    assert framework in get_args(Name) and isinstance(case, Case)
    os.environ["KERAS_BACKEND"] = framework
    what = sys.argv[3]
    answer(measure(case, framework, int(what)) if what.isdigit() else peak(case, framework, what))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
