"""The loader benchmark's rows as TFRecord: an Example a row, or an Example a batch, as TensorFlow's own readers want them.

    python -m benchmarks.loader_records rows|batches FOLDER COUNT BATCH

This is preparation and never timed. Examples of single rows are put together from ready pieces, for there are millions of them.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from benchmarks.loader_rows import FILE, GROUP, ITEMS, USERS, genres_of_items, pieces

_INTS, _FLOATS = 0x1A, 0x12


def write_single(folder: Path, count: int) -> None:
    users = [_ints("user", [code]) for code in range(USERS + 1)]
    values, offsets = genres_of_items()
    items = [b"", *(_ints("item", [n + 1]) + _ints("genres", values[offsets[n] : offsets[n + 1]].tolist()) for n in range(ITEMS))]
    ratings = {half / 2: _float("rating", half / 2) + _float("label", float(half >= 8)) for half in range(11)}
    age = _float("age", 0.0)[:-4]
    for piece, writer in _written(folder, count, "single"):
        user, item, rating = (piece.column(name).to_pylist() for name in ("user", "item", "rating"))
        ages = piece.column("age").to_numpy().tobytes()
        for n in range(len(user)):
            body = b"".join((users[user[n]], items[item[n]], ratings[rating[n]], age, ages[4 * n : 4 * n + 4]))
            writer.write(b"\x0a" + _varint(len(body)) + body)


def write_batches(folder: Path, count: int, batch: int) -> None:
    """A record is a batch: its rows stay together for ever."""
    for piece, writer in _written(folder, count, "batches"):
        for start in range(0, len(piece), batch):
            writer.write(example(piece.slice(start, batch)))


def _written(folder: Path, count: int, kind: str) -> Iterator[tuple[pa.RecordBatch, Any]]:
    """Each piece of the rows, and the file that it belongs into."""
    every = pieces(count)
    for number in range(-(-count // FILE)):
        with tf.io.TFRecordWriter(str(folder / f"{number:04}.{kind}.tfrecord")) as writer:
            for piece in islice(every, -(-FILE // GROUP)):
                yield piece, writer


def example(rows: pa.RecordBatch) -> bytes:
    lists = rows.column("genres")
    ints: dict[str, Any] = {
        "user": rows.column("user"),
        "item": rows.column("item"),
        "genres": lists.flatten(),
        "lengths": np.diff(lists.offsets.to_numpy()),
    }
    made: dict[str, tf.train.Feature] = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=np.asarray(column))) for name, column in ints.items()
    }
    for name in ("rating", "age", "label"):
        made[name] = tf.train.Feature(float_list=tf.train.FloatList(value=rows.column(name).to_numpy()))
    found: bytes = tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()
    return found


def _ints(name: str, values: Sequence[int]) -> bytes:
    packed = b"".join(map(_varint, values))
    return _entry(name, _INTS, _field(0x0A, packed))


def _float(name: str, value: float) -> bytes:
    return _entry(name, _FLOATS, _field(0x0A, struct.pack("<f", value)))


def _entry(name: str, kind: int, values: bytes) -> bytes:
    """One of the map from names to features; `kind`: which list of a feature's three it is."""
    return _field(0x0A, _field(0x0A, name.encode()) + _field(0x12, _field(kind, values)))


def _field(tag: int, body: bytes) -> bytes:
    return bytes([tag]) + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def main() -> None:
    what, folder, count, batch = sys.argv[1:]
    if what == "rows":
        write_single(Path(folder), int(count))
    else:
        write_batches(Path(folder), int(count), int(batch))


if __name__ == "__main__":
    main()
