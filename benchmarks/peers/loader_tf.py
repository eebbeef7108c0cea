"""TensorFlow's own ways to batches from TFRecord: `python loader_tf.py windowed|per-item|pre-batched ...`

windowed: tf.data.experimental.make_batched_features_dataset, an Example a row, which it shuffles, batches and then parses together, two
threads each for reading and parsing. per-item: Examples shuffled, each parsed by itself, and batched with lists padded to the longest, all
calls in parallel as AUTOTUNE sees fit. pre-batched: a record is a whole batch, whose rows were put together when the file was written;
records are shuffled.
"""

from __future__ import annotations

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf
from loader_run import asked, run

RECORDS = "*.single.tfrecord"
_RAGGED = tf.io.RaggedFeature(tf.int64)
_ONE = {name: tf.io.FixedLenFeature([], tf.int64) for name in ("user", "item")}
_ONE |= {name: tf.io.FixedLenFeature([], tf.float32) for name in ("rating", "age", "label")} | {"genres": _RAGGED}


def windowed(files, batch, pool, epochs=1):  # type: ignore[no-untyped-def]
    return tf.data.experimental.make_batched_features_dataset(
        files,
        batch,
        _ONE,
        num_epochs=epochs,
        shuffle_buffer_size=pool,
        reader_num_threads=2,
        parser_num_threads=2,
        prefetch_buffer_size=tf.data.AUTOTUNE,
        sloppy_ordering=True,
    )


def per_item(files, batch, pool):  # type: ignore[no-untyped-def]
    return (
        tf.data.Dataset.from_tensor_slices(files)
        .shuffle(len(files))
        .interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
        .shuffle(pool)
        .map(lambda record: tf.io.parse_single_example(record, _ONE), num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
        .padded_batch(batch)
        .prefetch(tf.data.AUTOTUNE)
    )


def pre_batched(files, batch, pool):  # type: ignore[no-untyped-def]
    many = {name: tf.io.RaggedFeature(tf.int64) for name in ("user", "item", "genres", "lengths")}
    many |= {name: tf.io.RaggedFeature(tf.float32) for name in ("rating", "age", "label")}
    return (
        tf.data.Dataset.from_tensor_slices(files)
        .shuffle(len(files))
        .interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
        .shuffle(max(1, pool // batch))
        .map(lambda record: tf.io.parse_single_example(record, many), num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
        .prefetch(tf.data.AUTOTUNE)
    )


def arrays(batch):  # type: ignore[no-untyped-def]
    if not said.check:
        return {"user": batch["user"].numpy()}
    lists = batch["genres"]
    found = {name: value.numpy() for name, value in batch.items() if name != "genres"}
    if isinstance(lists, tf.RaggedTensor):
        return found | {"genres": lists.values.numpy(), "lengths": np.diff(lists.row_splits.numpy())}
    if said.what == "pre-batched":
        return found | {"genres": lists.numpy()}
    padded = lists.numpy()  # with zeros, that are no genre
    return found | {"genres": padded[padded > 0], "lengths": (padded > 0).sum(axis=1)}


if __name__ == "__main__":
    said = asked()
    way = {"windowed": windowed, "per-item": per_item, "pre-batched": pre_batched}[said.what]
    files = said.files("*.batches.tfrecord" if said.what == "pre-batched" else RECORDS)
    tf.constant(0).numpy()
    run(said, lambda: iter(way(files, said.batch, said.pool)), arrays)
