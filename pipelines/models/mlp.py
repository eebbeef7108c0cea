"""The MLP: an embedding for each code column, side by side, then hidden ReLU layers and a sigmoid.

Multi-hot columns are averaged over their values; padding (code 0) doesn't count. Weights are kept as plain arrays
in `.npz` under their variables' paths, beside `model.json`, which says all that is needed to build the model again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.vocabulary import FIRST, NULL
from pipelines.models.runtime import load_keras
from pipelines.models.tables import Table
from shared.domain.errors import Invalid

WEIGHTS, MODEL = "weights.npz", "model.json"
Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Architecture:
    tables: tuple[Table, ...]
    layers: tuple[int, ...]

    @property
    def lengths(self) -> dict[str, int | None]:
        return {table.column: table.length for table in self.tables}

    def save(self, path: Path) -> Path:
        path.write_text(json.dumps({"version": 1, "family": "mlp"} | asdict(self), indent=1))
        return path


def load_architecture(path: Path) -> Architecture:
    value = json.loads(path.read_text())
    return Architecture(tuple(Table(**table) for table in value["tables"]), tuple(value["layers"]))


def build(architecture: Architecture) -> Any:
    """The Keras model; inputs are named as the columns, the output has one score a row."""
    keras = load_keras()
    inputs, vectors = {}, []
    for table in architecture.tables:
        shape = () if table.length is None else (table.length,)
        codes = inputs[table.column] = keras.Input(shape, dtype="int32", name=table.column)
        embedding = keras.layers.Embedding(table.cardinality, table.width, name=f"table_{table.column}")
        vectors.append(embedding(codes) if table.length is None else _mean(embedding(codes), codes))
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


def scorer(model: Any) -> Callable[[Mapping[str, NDArray[np.int32]]], NDArray[np.float32]]:
    """The model as a plain function from code columns to scores."""
    import tensorflow as tf

    call = tf.function(lambda columns: model(columns, training=False), reduce_retracing=True)

    def score(columns: Mapping[str, NDArray[np.int32]]) -> NDArray[np.float32]:
        values: NDArray[np.float32] = call({name: tf.constant(codes) for name, codes in columns.items()}).numpy()
        return values

    return score
