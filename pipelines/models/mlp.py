"""The family `mlp`: an embedding for each feature of codes beside the numbers as they are, then hidden ReLU layers and a sigmoid.

Multi-hot columns are averaged over their values; padding (code 0) doesn't count. Weights are kept as plain arrays
in `.npz` under their variables' paths, beside `model.json`, which says all that is needed to build the model again.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import FIRST, NULL
from pipelines.features.graph import OPSET, Graph
from pipelines.features.reading import Reads
from pipelines.loaders.batches import Batches
from pipelines.loaders.liked import read_liked
from pipelines.loaders.memory import MEBIBYTE
from pipelines.loaders.tables import Codes
from pipelines.models.family import MODEL, Fetch, Fitted, Task
from pipelines.models.runtime import load_keras
from pipelines.models.tables import Table, check_size, plan_tables
from pipelines.training.fit import fit
from pipelines.training.validation import Validation, hold_out
from shared.contracts.models import MlpParams
from shared.domain.errors import Invalid

WEIGHTS = "weights.npz"
LOADER = 512 * MEBIBYTE
"""What batches that are read ahead and shuffled take at most; or a quarter of what training may take."""
Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Architecture:
    tables: tuple[Table, ...]
    layers: tuple[int, ...]
    numbers: tuple[tuple[str, int | None], ...] = ()
    """Features of numbers, and how long those are that are vectors."""

    @property
    def size(self) -> int:
        """Bytes of all weights."""
        widths = (sum(table.width for table in self.tables) + sum(width or 1 for _, width in self.numbers), *self.layers, 1)
        return sum(table.size for table in self.tables) + 4 * sum((one + 1) * other for one, other in pairwise(widths))

    def save(self, path: Path) -> Path:
        path.write_text(json.dumps({"version": 1, "family": "mlp"} | asdict(self), indent=1))
        return path


def load_architecture(path: Path) -> Architecture:
    value = json.loads(path.read_text())
    numbers = tuple((name, width) for name, width in value.get("numbers", ()))
    return Architecture(tuple(Table(**table) for table in value["tables"]), tuple(value["layers"]), numbers)


def build(architecture: Architecture) -> Any:
    """The Keras model; inputs are named as the features, the output has one score a row."""
    keras = load_keras()
    inputs, vectors = {}, []
    for table in architecture.tables:
        shape = () if table.length is None else (table.length,)
        codes = inputs[table.column] = keras.Input(shape, dtype="int32", name=table.column)
        embedding = keras.layers.Embedding(table.cardinality, table.width, name=f"table_{table.column}")
        vectors.append(embedding(codes) if table.length is None else _mean(embedding(codes), codes))
    for name, width in architecture.numbers:
        number = inputs[name] = keras.Input(() if width is None else (width,), dtype="float32", name=name)
        vectors.append(keras.ops.expand_dims(number, -1) if width is None else number)
    hidden = keras.layers.Concatenate(name="features")(vectors) if len(vectors) > 1 else vectors[0]
    for number, width in enumerate(architecture.layers):
        hidden = keras.layers.Dense(width, activation="relu", name=f"hidden_{number}")(hidden)
    score = keras.layers.Dense(1, activation="sigmoid", name="score")(hidden)
    return keras.Model(inputs, keras.ops.squeeze(score, axis=-1), name="mlp")


def _mean(vectors: Any, codes: Any) -> Any:
    from keras import ops

    counts = ops.cast(ops.expand_dims(ops.not_equal(codes, NULL), -1), vectors.dtype)
    return ops.sum(vectors * counts, axis=1) / ops.maximum(ops.sum(counts, axis=1), 1.0)


def weights_of(model: Any) -> Weights:
    return {weight.path: np.asarray(weight.value, dtype=np.float32) for weight in model.weights}


def save_weights(model: Any, path: Path) -> Path:
    with path.open("wb") as stream:
        np.savez(stream, **weights_of(model))
    return path


def load_weights(path: Path) -> Weights:
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def set_weights(model: Any, weights: Mapping[str, NDArray[np.float32]]) -> None:
    for weight in model.weights:
        weight.assign(weights[weight.path])


def grow_weights(model: Any, parent: Mapping[str, NDArray[np.float32]]) -> None:
    """Starts `model` from its parent's weights.

    Embedding tables may have grown: old rows keep their vectors, and each new row starts as the mean of the parent's
    known rows (null, padding and unknown left out). Any other difference in shape is refused.
    """
    for weight in model.weights:
        old = parent.get(weight.path)
        wanted = tuple(weight.shape)
        if old is None or old.shape[1:] != wanted[1:] or old.shape[0] > wanted[0] or (old.shape != wanted and len(wanted) < 2):
            raise Invalid(f"model.params: '{weight.path}' is not as the parent's: a warm run can't change layers, start a full one")
        if old.shape[0] < wanted[0]:
            if "table_" not in weight.path:
                raise Invalid(f"model.params: '{weight.path}' is not as the parent's: a warm run can't, start a full one")
            known = old[FIRST:] if len(old) > FIRST else old
            new = np.repeat(known.mean(axis=0, keepdims=True), wanted[0] - old.shape[0], axis=0)
            old = np.concatenate([old, new])
        weight.assign(old)


def scorer(model: Any) -> Callable[[Codes], NDArray[np.float32]]:
    """The model as a plain function from code columns to scores."""
    import tensorflow as tf

    call = tf.function(lambda columns: model(columns, training=False), reduce_retracing=True)

    def score(columns: Codes) -> NDArray[np.float32]:
        values: NDArray[np.float32] = call({name: tf.constant(codes) for name, codes in columns.items()}).numpy()
        return values

    return score


class MlpModel:
    """Implements Trained."""

    meaning: ClassVar[str] = "how likely the user likes the item, between 0 and 1; sampled negatives shift it, so compare it, don't read it"

    def __init__(self, architecture: Architecture, model: Any) -> None:
        self.architecture, self.model = architecture, model
        self.score = scorer(model)

    @property
    def tables(self) -> tuple[Table, ...]:
        return self.architecture.tables

    def save(self, folder: Path) -> dict[str, Path]:
        return {MODEL: self.architecture.save(folder / MODEL), WEIGHTS: save_weights(self.model, folder / WEIGHTS)}

    def lower(self) -> Any:
        import tensorflow as tf
        import tf2onnx

        logging.getLogger("tf2onnx").setLevel(logging.ERROR)
        inputs = {
            table.column: tf.TensorSpec((None,) if table.length is None else (None, table.length), tf.int32, name=table.column)
            for table in self.architecture.tables
        }
        inputs |= {
            name: tf.TensorSpec((None,) if width is None else (None, width), tf.float32, name=name)
            for name, width in self.architecture.numbers
        }
        core, _ = tf2onnx.convert.from_keras(self.model, input_signature=[inputs], opset=OPSET)
        return core

    def embeddings(self, codes: Codes) -> None:
        """None: hidden layers join the user's vectors with the item's, so no inner product of vectors stands for the score."""


class Mlp:
    """Implements Family."""

    name = "mlp"
    reads: Reads = "deep"

    def train(self, task: Task) -> Fitted:
        params = task.model.params
        assert isinstance(params, MlpParams)
        parent = load_architecture(task.parent(MODEL)) if task.parent else None
        architecture = plan(task.graph, params, parent)
        for table in architecture.tables:
            task.log.info("table %s: %s x %d, %.1f MB", table.column, f"{table.cardinality:,}", table.width, table.size / 1e6)
        training = task.model.train
        with batches_of(task, params) as (batches, held):
            task.log.info("starting TensorFlow")
            started = time.monotonic()
            load_keras().utils.set_random_seed(training.seed % 2**32)
            model = build(architecture)
            if task.parent is not None:
                grow_weights(model, load_weights(task.parent(WEIGHTS)))
            looked = Validation(held, scorer(model)) if held is not None else None
            done = fit(model, batches, training, task.log, looked)
        metrics = {
            "train.seconds": done.seconds,
            "train.startup_seconds": time.monotonic() - started - done.seconds,
            "train.rows": float(done.rows),
            "train.rows_per_s": done.rows / done.seconds,
            "train.loss": done.losses[-1],
            "train.parameters": float(model.count_params()),
        }
        facts: dict[str, Any] = {"losses": [round(loss, 6) for loss in done.losses]}
        if looked is not None:
            metrics |= looked.metrics
            facts["validation"] = looked.facts
        return Fitted(MlpModel(architecture, model), metrics, facts)

    def load(self, fetch: Fetch) -> MlpModel:
        architecture = load_architecture(fetch(MODEL))
        model = build(architecture)
        set_weights(model, load_weights(fetch(WEIGHTS)))
        return MlpModel(architecture, model)


@contextmanager
def batches_of(task: Task, params: MlpParams) -> Iterator[tuple[Batches, Batches | None]]:
    """To train on, and to look at after each epoch."""
    training = task.model.train
    liked = read_liked(task.rows, task.history, task.popularity.items) if params.verified else None
    memory = LOADER if task.memory is None else min(LOADER, task.memory // 4)
    whole = Batches(
        task.rows,
        task.graph,
        task.items,
        task.users,
        training.batch_size,
        params.negatives,
        training.seed,
        liked=liked,
        memory=memory,
    )
    if not training.validation:
        yield whole, None
        return
    with tempfile.TemporaryDirectory(prefix="validation-", dir=task.rows.parent) as folder:
        rest, held = hold_out(task.rows, training.validation, training.seed, Path(folder))
        yield replace(whole, path=rest), replace(whole, path=held, shuffle=False, unknown_share=0)


def plan(graph: Graph, params: MlpParams, parent: Architecture | None) -> Architecture:
    """What will be trained; refused here, before training, where it couldn't be exported or isn't as the parent's."""
    if parent is not None and parent.layers != params.layers:
        raise Invalid(
            f"model.params.layers: {list(params.layers)} is not the parent's {list(parent.layers)}: a warm run can't change it,"
            " start a full one"
        )
    widths = {table.column: table.width for table in parent.tables} if parent is not None else None
    numbers = tuple((one.name, one.width) for one in graph.numbers)
    architecture = Architecture(plan_tables(graph, params.width, widths), params.layers, numbers)
    check_size(graph, architecture.size)
    return architecture
