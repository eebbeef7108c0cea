"""The loader benchmark: its rows, its records, and what every contender that needs no environment of its own gets of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from benchmarks import loader, loader_fit, loader_memory, loader_profile
from benchmarks.loader_contenders import Contender, contenders
from benchmarks.loader_processes import Run, prepare
from benchmarks.loader_records import example, write_batches, write_single
from benchmarks.loader_rows import GROUP, piece, write_rows
from benchmarks.peers.loader_run import Asked
from tests.support.torch_available import torch

ROWS = 20_000
HAD = Run(1_000, 2.0, 1.0, 0.5, 250, 0.4, whole=True, imports=10.0, peak=30.0, anonymous=15.0, sums={"user": 5})


def _named(*names: str) -> list[Contender]:
    return [one for one in contenders() if one.name in names]


def test_rows_are_the_same_ones_for_the_same_number_and_lists_are_as_long_as_in_movielens(tmp_path: Path) -> None:
    first, again = (pq.read_table(write_rows(tmp_path / name, GROUP + 5)) for name in "ab")
    assert first.equals(again)
    assert pq.ParquetFile(tmp_path / "a" / "0000.parquet").num_row_groups == 2
    lengths = np.diff(first.column("genres").combine_chunks().offsets.to_numpy())
    assert (lengths.min(), lengths.max()) == (1, 10)
    assert 1.9 < lengths.mean() < 2.3
    assert (first.column("label").to_numpy() == (first.column("rating").to_numpy() >= 4)).all()


def test_records_say_what_the_rows_do(tmp_path: Path) -> None:
    rows = piece(25, 0, 50)
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
    reference = piece(25, 0, ROWS)
    found = loader.checked(names, folder, ROWS)
    assert set(found) == {one.name for one in names}
    for name, sums in found.items():
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


def test_a_contender_that_gets_other_rows_ends_the_benchmark() -> None:
    with pytest.raises(SystemExit, match="user adds up to"):
        loader._agree({"a": {"user": 5}, "b": {"user": 6}})
    loader._agree({"a": {"age": 1.0}, "b": {"age": 1.0 + 1e-12}, "c": {}})


def test_turns_are_measured_and_told_with_what_is_done_differently(tmp_path: Path) -> None:
    chosen = _named("eyas: numpy, parquet", "pyarrow: iter_batches")
    found = loader.measured(chosen, tmp_path, ROWS, 2)
    rows = loader.table(found, {one.name: one for one in chosen})
    (speed,) = (row for row in rows if (row.contender, row.metric) == ("pyarrow: iter_batches", "throughput"))
    assert set(speed.ratio_to) == {"eyas: numpy, parquet"}
    assert speed.note == "Arrow, not shuffled"
    assert all(value > 0 for row in rows for value in row.values)
    assert list(tmp_path.iterdir()) == []


def test_of_a_part_of_an_epoch_a_sliding_buffer_is_not_charged_for_being_filled() -> None:
    assert HAD.rate(steady=True) == HAD.rate(steady=False) == 500
    part = replace(HAD, whole=False)
    assert (part.rate(steady=True), part.rate(steady=False)) == (500, 500)
    assert replace(part, first=1.0).rate(steady=True) == 750
    assert (part.cost(steady=True), part.cost(steady=False)) == (pytest.approx(800), 1_000)
    named = {"a": Contender("a", list, steady=True)}
    assert loader.table({("a", 4_000): [part]}, named)[0].note == "1,000 of the rows, after the first batch"


def test_what_holds_more_than_its_budget_is_told_so() -> None:
    within = loader_memory.told(5, "cache", HAD)
    over = loader_memory.told(5, "cache", replace(HAD, peak=loader_memory.BUDGET * loader_memory.OVER + 11.0))
    assert within[0].note == ""
    assert over[0].note.startswith("more than the budget")


def test_what_a_step_takes_by_its_loader_is_told_against_the_limit_of_its_own_environment() -> None:
    speeds = {loader_fit.LIMIT: 100.0, "eyas, cache": 80.0, "merlin": 20.0, loader_fit.MERLIN_LIMIT: 40.0}
    rows = loader_fit.table({("m", name): [loader_fit.Trained(speed, 1.0)] for name, speed in speeds.items()}, 7)
    shares = {row.contender: row.values for row in rows if row.unit == "%"}
    assert shares == {"eyas, cache": [pytest.approx(20.0)], "merlin": [50.0]}


def test_the_profile_tells_of_the_functions_that_ran(tmp_path: Path) -> None:
    prepare(tmp_path, ROWS, set())
    found = loader_profile.in_a_process(Asked("numpy-parquet", tmp_path, 1_000, 5_000, 0.0, 0, check=False, held={}))
    assert found["rows"] == ROWS
    assert found["parts"]["decode: pyarrow"]["calls"] >= 1
    assert "decode: pyarrow" in loader_profile.told(found)
