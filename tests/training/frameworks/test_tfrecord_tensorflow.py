"""TFRecord beside TensorFlow: TensorFlow reads what is written here, and what it writes is read here."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.data.tfrecord.framing import records
from pipelines.data.tfrecord.reader import scan_tfrecord
from pipelines.data.tfrecord.writer import write_tfrecord


def frame(rows: int) -> pl.DataFrame:
    n = range(rows)
    return pl.DataFrame(
        {
            "user": pl.Series([2**63 - 1 if k == 3 else -(2**63) if k == 4 else k for k in n], dtype=pl.Int64),
            "small": pl.Series([k % 200 - 100 for k in n], dtype=pl.Int8),
            "rating": [k % 10 / 2 for k in n],
            "title": [None if k % 7 == 0 else "" if k % 7 == 1 else f"ünï 🦅 {k}" for k in n],
            "seen": pl.Series([list(range(k % 6)) for k in n], dtype=pl.List(pl.Int64)),
        }
    )


def back(path: Path, scratch: Path) -> pl.DataFrame:
    return scan_tfrecord([path], scratch, path.name).collect()


@pytest.mark.requirement("G-28")
def test_tensorflow_reads_what_we_write(tmp_path: Path) -> None:
    import tensorflow as tf

    path = tmp_path / "x.tfrecord"
    some = frame(100).select("user", "rating", "title", "seen").with_columns(pl.col("title").fill_null("-"))
    write_tfrecord(some.lazy(), path, {"user": "u", "rating": "r"})
    wanted = {
        "u": tf.io.FixedLenFeature([], tf.int64),
        "r": tf.io.FixedLenFeature([], tf.float32),
        "title": tf.io.FixedLenFeature([], tf.string),
        "seen": tf.io.RaggedFeature(tf.int64),
    }
    whole = tf.data.TFRecordDataset(str(path)).batch(100).map(lambda one: tf.io.parse_example(one, wanted))
    (found,) = list(whole)
    assert found["u"].numpy().tolist() == some["user"].to_list()
    assert found["r"].numpy().tolist() == some["rating"].to_list()
    assert [one.decode() for one in found["title"].numpy().tolist()] == some["title"].to_list()
    assert found["seen"].to_list() == some["seen"].to_list()


@pytest.mark.requirement("G-28")
def test_tensorflow_reads_batches_and_columns_grouped_by_type(tmp_path: Path) -> None:
    import tensorflow as tf

    path = tmp_path / "x.tfrecord.gz"
    some = frame(100).select("user", "small", "rating")
    write_tfrecord(some.lazy(), path, {}, batch=40, grouped=True)
    wanted = {"i": tf.io.VarLenFeature(tf.int64), "f": tf.io.VarLenFeature(tf.float32)}
    read = tf.data.TFRecordDataset(str(path), compression_type="GZIP").map(lambda one: tf.io.parse_single_example(one, wanted))
    found = [tf.reshape(one["i"].values, (2, -1)).numpy() for one in read]
    assert [one.shape for one in found] == [(2, 40), (2, 40), (2, 20)]
    assert [value for one in found for value in one[0].tolist()] == some["user"].to_list()
    assert [value for one in found for value in one[1].tolist()] == some["small"].to_list()


@pytest.mark.requirement("G-28")
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_we_read_what_tensorflow_writes(compression: str, tmp_path: Path) -> None:
    import tensorflow as tf

    def example(row: int) -> bytes:
        features = {
            "u": tf.train.Feature(int64_list=tf.train.Int64List(value=[row - 50])),
            "r": tf.train.Feature(float_list=tf.train.FloatList(value=[row / 2])),
            "t": tf.train.Feature(bytes_list=tf.train.BytesList(value=[f"ü{row}".encode()])),
            "l": tf.train.Feature(int64_list=tf.train.Int64List(value=range(row % 3))),
        }
        if row % 10 == 0:
            del features["t"]
        return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())

    path = tmp_path / ("x.tfrecord.gz" if compression else "x.tfrecords")
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for row in range(100):
            writer.write(example(row))
    found = back(path, tmp_path / "s").select("u", "r", "t", "l")
    rows = range(100)
    wanted = pl.DataFrame(
        {
            "u": [row - 50 for row in rows],
            "r": pl.Series([row / 2 for row in rows], dtype=pl.Float32),
            "t": [None if row % 10 == 0 else f"ü{row}" for row in rows],
            "l": pl.Series([list(range(row % 3)) for row in rows], dtype=pl.List(pl.Int64)),
        }
    )
    assert_frame_equal(found, wanted)
    assert [len(one) for one in records(path)] == [len(example(row)) for row in rows]
