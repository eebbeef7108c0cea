"""The loader benchmark: its rows, and how figures become its tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks import loader, loader_fit, loader_memory
from benchmarks.loader_contenders import Contender
from benchmarks.loader_processes import Run
from benchmarks.loader_rows import GROUP, write_rows

HAD = Run(1_000, 2.0, 1.0, 0.5, 250, 0.4, whole=True, imports=10.0, peak=30.0, anonymous=15.0, sums={"user": 5})


def test_rows_are_the_same_ones_for_the_same_number_and_lists_are_as_long_as_in_movielens(tmp_path: Path) -> None:
    first, again = (pq.read_table(write_rows(tmp_path / name, GROUP + 5)) for name in "ab")
    assert first.equals(again)
    assert pq.ParquetFile(tmp_path / "a" / "0000.parquet").num_row_groups == 2
    lengths = np.diff(first.column("genres").combine_chunks().offsets.to_numpy())
    assert (lengths.min(), lengths.max()) == (1, 10)
    assert 1.9 < lengths.mean() < 2.3
    assert (first.column("label").to_numpy() == (first.column("rating").to_numpy() >= 4)).all()


def test_a_contender_that_gets_other_rows_ends_the_benchmark() -> None:
    with pytest.raises(SystemExit, match="user adds up to"):
        loader._agree({"a": {"user": 5}, "b": {"user": 6}})
    loader._agree({"a": {"age": 1.0}, "b": {"age": 1.0 + 1e-12}, "c": {}})


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
