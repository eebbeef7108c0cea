"""A model of two embeddings, genres and numbers, trained on the batches of a loader: Keras on TensorFlow, `model.fit`.

    python loader_fit.py SOURCE FOLDER BATCH POOL WIDTH UNITS STEPS

SOURCE: windowed (TensorFlow's loader, from TFRecord), merlin, eyas-parquet, eyas-cache, or limit: one batch repeated, so that nothing waits
for a loader. UNITS: of the hidden layers, as in 128,128,128. The first ten steps are not timed.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
warnings.filterwarnings("ignore")
import pyarrow.parquet as pq  # noqa: E402
import tensorflow as tf  # noqa: E402
from loader_peers import merlin_loader, tensorflow_windowed  # noqa: E402

keras = tf.keras
USERS, ITEMS, GENRES, MOST_GENRES = 162_542, 62_424, 21, 10
WARM = 10


def model_of(width, units):  # type: ignore[no-untyped-def]
    """The notebook's: embeddings, genres by their mean, ReLU layers, a sigmoid; binary cross-entropy by SGD."""
    user, item = (keras.Input((), dtype="int32", name=name) for name in ("user", "item"))
    genres = keras.Input((MOST_GENRES,), dtype="int32", name="genres")
    numbers = [keras.Input((), dtype="float32", name=name) for name in ("rating", "age")]
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(GENRES, 16, mask_zero=True)(genres))
    columns = [keras.layers.Embedding(USERS, width)(user), keras.layers.Embedding(ITEMS, width)(item), pooled]
    hidden = keras.layers.Concatenate()([*columns, *(keras.layers.Reshape((1,))(number) for number in numbers)])
    for size in units:
        hidden = keras.layers.Dense(size, "relu")(hidden)
    out = keras.layers.Reshape(())(keras.layers.Dense(1, "sigmoid")(hidden))
    model = keras.Model([user, item, genres, *numbers], out)
    model.compile(keras.optimizers.SGD(0.01), "binary_crossentropy", jit_compile=False)
    return model


def windowed(folder, batch, pool):  # type: ignore[no-untyped-def]
    def dense(row):  # type: ignore[no-untyped-def]
        row["genres"] = tf.cast(row["genres"].to_tensor(shape=[None, MOST_GENRES]), tf.int32)
        return row, row.pop("label")

    files = sorted(map(str, folder.glob("*.single.tfrecord")))
    rows = tensorflow_windowed(files, batch, pool, epochs=None)
    return rows.map(dense, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def merlin(folder, batch, pool, batches):  # type: ignore[no-untyped-def]
    from merlin.loader.tensorflow import Loader

    def dense(columns, label):  # type: ignore[no-untyped-def]
        genres = tf.RaggedTensor.from_row_splits(columns.pop("genres__values"), columns.pop("genres__offsets"))
        columns["genres"] = genres.to_tensor(shape=[None, MOST_GENRES])
        return columns, label

    files = sorted(map(str, folder.glob("*.parquet")))
    rows = sum(pq.ParquetFile(file).metadata.num_rows for file in files)
    return merlin_loader(Loader, files, batch, pool).epochs(-(-batches * batch // rows)).map(dense)


def repeated(folder, batch):  # type: ignore[no-untyped-def]
    """One batch of the rows themselves: popular codes are near in memory, too."""
    rows = next(pq.ParquetFile(min(folder.glob("*.parquet"))).iter_batches(batch))
    columns = {name: tf.constant(rows.column(name).to_numpy()) for name in ("user", "item", "rating", "age")}
    lists = rows.column("genres")
    genres = tf.RaggedTensor.from_row_splits(lists.flatten().to_numpy(), lists.offsets.to_numpy())
    columns["genres"] = genres.to_tensor(shape=[None, MOST_GENRES])
    return tf.data.Dataset.from_tensors((columns, tf.constant(rows.column("label").to_numpy()))).repeat()


class Timer(keras.callbacks.Callback):
    """From the end of the tenth step to that of the last: elapsed, and CPU."""

    def __init__(self):  # type: ignore[no-untyped-def]
        super().__init__()
        self.steps, self.began, self.ended = 0, (0.0, 0.0), (0.0, 0.0)

    def on_train_batch_end(self, batch, logs=None):  # type: ignore[no-untyped-def]
        self.steps += 1
        self.ended = time.perf_counter(), time.process_time()
        if self.steps == WARM:
            self.began = self.ended


def main() -> None:
    source, place, *numbers, units, count = sys.argv[1:]
    folder, (batch, pool, width), steps = Path(place), map(int, numbers), int(count)
    if source == "limit":
        data = repeated(folder, batch)
    elif source == "windowed":
        data = windowed(folder, batch, pool)
    elif source == "merlin":
        data = merlin(folder, batch, pool, WARM + steps)
    else:
        from benchmarks.loader_eyas import padded_dataset

        data = padded_dataset(folder, batch, pool, source.removeprefix("eyas-"), MOST_GENRES)
    timer = Timer()
    model = model_of(width, [int(size) for size in units.split(",")])
    history = model.fit(data, steps_per_epoch=WARM + steps, epochs=1, shuffle=False, verbose=0, callbacks=[timer])
    seconds, cpu = (ended - began for began, ended in zip(timer.began, timer.ended, strict=True))
    loss = float(history.history["loss"][-1])
    sys.stdout.write(json.dumps({"seconds": seconds, "cpu": cpu, "rows": steps * batch, "loss": loss}) + "\n")


if __name__ == "__main__":
    main()
