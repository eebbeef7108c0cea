"""Fits a small Keras model on a loader's batches, on the backend that KERAS_BACKEND names, and prints as JSON what it has seen.

`python -m tests.support.keras_fit ROWS.parquet`: in a process of its own, since a backend is chosen once in a process.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from pipelines.loaders.adapters.keras import RepeatedEpochs, py_dataset
from pipelines.loaders.adapters.layout import Dense, PaddedLayout
from pipelines.loaders.adapters.opened import opened
from pipelines.loaders.columns import Column
from pipelines.loaders.loader import open_loader
from shared.domain.errors import Invalid

GENRES = 6


def counting(counts: Counter[int]) -> Callable[[dict[str, Column], np.random.Generator], dict[str, Column]]:
    def count(columns: dict[str, Column], _: np.random.Generator) -> dict[str, Column]:
        counts.update(np.asarray(columns["id"]).tolist())
        return columns

    return count


def model(keras: Any, dense: bool) -> Any:
    keras.utils.set_random_seed(1)
    id, item = keras.Input((), name="id"), keras.Input((), name="item", dtype="int32")
    genres = keras.Input((GENRES,), name="genres") if dense else keras.Input((None,), name="genres", dtype="int32")
    pooled = genres if dense else keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(GENRES, 4)(genres))
    parts = [keras.layers.Embedding(20, 8)(item), pooled, keras.layers.Reshape((1,))(id * 0.0)]
    found = keras.Model([id, item, genres], keras.layers.Dense(1, activation="sigmoid")(keras.layers.Concatenate()(parts)))
    found.compile(keras.optimizers.Adam(0.05), "binary_crossentropy", metrics=["accuracy"])
    return found


def ids(batches: Any) -> list[int]:
    return list(chain.from_iterable(np.asarray(columns["id"]).tolist() for columns, _ in batches))


def main(path: str) -> None:
    import keras

    warnings.filterwarnings("ignore", message="`shuffle=True` was passed")
    validated: Counter[int] = Counter()
    train = open_loader(path, batch_size=64, seed=5)
    seen = open_loader(path, batch_size=150, shuffle=False, stages=(counting(validated),))
    validation = seen.as_keras()
    validated.clear()  # a few rows have shown what columns there are
    history = model(keras, dense=False).fit(train.as_keras(), epochs=3, validation_data=validation, verbose=0).history
    validated_once = Counter(validated)
    dense = model(keras, dense=True).fit(
        train.as_keras(lists=Dense(GENRES)), epochs=2, validation_data=seen.as_keras(lists=Dense(GENRES)), verbose=0
    )
    batches = train.as_keras(start=(2, 3))
    dataset = py_dataset(RepeatedEpochs(opened(train, None, PaddedLayout(4), PaddedLayout()), 0))
    try:
        model(keras, dense=False).fit(dataset, epochs=2, shuffle=True, verbose=0)
        shuffled = None
    except Exception as error:  # TensorFlow's own has ours in its text
        shuffled = str(error)
    dataset = py_dataset(RepeatedEpochs(opened(train, None, PaddedLayout(4), PaddedLayout()), 0))
    plain = model(keras, dense=False).fit(dataset, epochs=3, shuffle=False, verbose=0).history
    try:
        train.as_keras(lists="ragged")
        ragged = None
    except Invalid as error:
        ragged = str(error)
    passes = [ids(batches), ids(batches)]
    print(  # noqa: T201
        json.dumps(
            {
                "backend": keras.backend.backend(),
                "history": history,
                "validated": sorted(set(validated_once.values())),
                "rows": len(validated_once),
                "dense": dense.history["val_accuracy"],
                "plain": plain["accuracy"],
                "shuffled": shuffled,
                "ragged": ragged,
                "passes": passes,
                "expected": [ids_of(train, 2, 3, len(train)), ids_of(train, 3, 3, len(train))],
            }
        )
    )


def ids_of(loader: Any, epoch: int, step: int, batches: int) -> list[int]:
    found = chain(loader.epoch(epoch, step), loader.epoch(epoch + 1))
    return [one for _, batch in zip(range(batches), found, strict=False) for one in np.asarray(batch["id"]).tolist()]


if __name__ == "__main__":
    main(sys.argv[1])
