"""The loader benchmark: its records, and the rows that each contender gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import loader, loader_profile
from benchmarks.harness import Row
from benchmarks.loader_contenders import CONTENDERS, Contender, prepare
from benchmarks.loader_records import example, write_batches, write_single
from benchmarks.movielens_rows import coded_rows
from tests.support.torch_available import torch

ROWS = 20_000


def _named(*names: str) -> list[Contender]:
    return [CONTENDERS[name] for name in names]


def test_records_say_what_the_rows_do(tmp_path: Path) -> None:
    rows = coded_rows(25, 0, 50)
    write_single(tmp_path, 50)
    write_batches(tmp_path, 50, 20)
    singles = [record.numpy() for record in tf.data.TFRecordDataset(str(tmp_path / "0000.single.tfrecord"))]
    for number, row in enumerate(rows.to_pylist()):
        features = tf.train.Example.FromString(singles[number]).features.feature
        kinds = {
            name: one.float_list.value if name in ("rating", "age", "label") else one.int64_list.value for name, one in features.items()
        }
        assert {name: list(value) for name, value in kinds.items()} == {
            name: value if isinstance(value, list) else [value] for name, value in row.items()
        }
    batches = [record.numpy() for record in tf.data.TFRecordDataset(str(tmp_path / "0000.batches.tfrecord"))]
    assert batches == [example(rows.slice(start, 20)) for start in (0, 20, 40)]


def _gets_all_of(names: list[Contender], folder: Path) -> None:
    reference = coded_rows(25, 0, ROWS)
    sums_of = loader.checked(names, folder, ROWS)
    assert set(sums_of) == {contender.name for contender in names}
    for name, sums in sums_of.items():
        whole = {"user", "item", "rating", "age", "label", "genres", "lengths", "user x lengths", "item x genres"}
        assert set(sums) == whole, name
        assert sums["user"] == reference.column("user").to_numpy().sum(dtype=np.int64)
        assert sums["genres"] == reference.column("genres").flatten().to_numpy().sum()


@pytest.mark.requirement("L-03")
def test_limits_and_our_loader_get_every_row_with_its_list(tmp_path: Path) -> None:
    ours = ("eyas: numpy, parquet", "eyas: numpy, cache", "eyas: numpy, cache being written")
    _gets_all_of(_named(*ours, "pyarrow: iter_batches", "pyarrow: read_row_group", "pyarrow: dataset.to_batches", "memcpy"), tmp_path)


def test_into_tensorflow_every_contender_gets_every_row_with_its_list(tmp_path: Path) -> None:
    theirs = ("tensorflow: windowed", "tensorflow: per item", "tensorflow: pre-batched")
    _gets_all_of(_named("eyas: tensorflow, parquet", *theirs), tmp_path)


def test_into_torch_every_contender_gets_every_row_with_its_list(tmp_path: Path) -> None:
    torch()
    _gets_all_of(_named("eyas: torch, cache", "torch: by row, 0 workers", "torch: by batch, 2 workers"), tmp_path)


def test_turns_are_measured_and_told_with_what_is_done_differently(tmp_path: Path) -> None:
    chosen = _named("eyas: numpy, parquet", "pyarrow: iter_batches")
    rows = list(loader.table(ROWS, chosen, loader.measure(chosen, tmp_path, ROWS, 2)))
    (speed,) = (row for row in rows if (row.contender, row.metric) == ("pyarrow: iter_batches", "throughput"))
    assert set(speed.ratio_to) == {"eyas: numpy, parquet"}
    assert speed.note == "Arrow, not shuffled"
    assert all(value > 0 for row in rows for value in row.values)
    assert list(tmp_path.iterdir()) == []


def test_the_profile_tells_of_the_functions_that_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_profile, "LEAST", 0.0)  # so few rows take less CPU than the imports
    prepare(tmp_path, ROWS, set())
    rows = [row for row in loader_profile.measure(tmp_path, 1_000, 5_000, ("parquet",)) if isinstance(row, Row)]
    cpu = {row.metric.removeprefix("CPU, "): row.values[0] for row in rows if row.metric.startswith("CPU, ")}
    parts = sum(cpu.values()) - cpu["all threads"]
    assert parts == pytest.approx(cpu["all threads"])
    modules = {path.stem for path in (Path(__file__).parents[3] / "pipelines/loaders").rglob("*.py")}
    assert {name.partition(".")[0] for name in cpu} & modules
