"""The loader benchmark's rows as TFRecord: an Example a row, or an Example a batch, as TensorFlow's own readers want them.

    python -m benchmarks.loader_records rows|batches FOLDER COUNT BATCH

This is preparation and never timed. Examples of single rows are joined from serialised parts, because there are millions of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from benchmarks.movielens_rows import CODED_FILMS, FILE, GROUP, USERS, coded_groups, genres_of_films


def write_single(folder: Path, count: int) -> None:
    users = [_features(user=[code]) for code in range(USERS + 1)]
    values, offsets = genres_of_films()
    items = [b"", *(_features(item=[n + 1]) + _features(genres=values[offsets[n] : offsets[n + 1]]) for n in range(CODED_FILMS))]
    ratings = {half / 2: _features(rating=[half / 2]) + _features(label=[float(half >= 8)]) for half in range(11)}
    age = _features(age=[0.0])[:-4]  # a float is its last bytes
    for rows, writer in _groups(folder, count, "single"):
        user, item, rating = (rows.column(name).to_pylist() for name in ("user", "item", "rating"))
        ages = rows.column("age").to_numpy().tobytes()
        for n in range(len(user)):
            body = b"".join((users[user[n]], items[item[n]], ratings[rating[n]], age, ages[4 * n : 4 * n + 4]))
            size = len(body)
            writer.write(b"\x0a" + bytes([size] if size < 128 else [size & 127 | 128, size >> 7]) + body)


def write_batches(folder: Path, count: int, batch: int) -> None:
    """A record is a batch, whose rows stay together."""
    for rows, writer in _groups(folder, count, "batches"):
        for start in range(0, len(rows), batch):
            writer.write(example(rows.slice(start, batch)))


def _groups(folder: Path, count: int, kind: str) -> Iterator[tuple[pa.RecordBatch, Any]]:
    """Each row group, and the file that it belongs to."""
    groups = coded_groups(count)
    for number in range(-(-count // FILE)):
        with tf.io.TFRecordWriter(str(folder / f"{number:04}.{kind}.tfrecord")) as writer:
            for group in islice(groups, -(-FILE // GROUP)):
                yield group, writer


def example(rows: pa.RecordBatch) -> bytes:
    lists = rows.column("genres")
    columns = {name: rows.column(name).to_numpy() for name in ("user", "item", "rating", "age", "label")}
    columns |= {"genres": lists.flatten().to_numpy(), "lengths": np.diff(lists.offsets.to_numpy())}
    serialised: bytes = tf.train.Example(features=tf.train.Features(feature=_typed(columns))).SerializeToString()
    return serialised


def _features(**columns: Any) -> bytes:
    """Serialised features: those of a row may be joined."""
    serialised: bytes = tf.train.Features(feature=_typed(columns)).SerializeToString()
    return serialised


def _typed(columns: dict[str, Any]) -> dict[str, tf.train.Feature]:
    features = {}
    for name, values in columns.items():
        if np.asarray(values).dtype.kind == "f":
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return features


if __name__ == "__main__":
    target, total = Path(sys.argv[2]), int(sys.argv[3])
    if sys.argv[1] == "rows":
        write_single(target, total)
    else:
        write_batches(target, total, int(sys.argv[4]))
