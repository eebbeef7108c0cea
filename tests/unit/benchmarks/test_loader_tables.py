"""The loader benchmark: its rows, and how figures become its tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks import loader
from benchmarks.loader_contenders import Contender, Run
from benchmarks.movielens_rows import GROUP, write_coded

USED = Run(1_000, 2.0, 1.0, 0.5, 250, 0.4, whole=True, imports=10.0, peak=30.0, anonymous=15.0, sums={"user": 5})


def test_rows_are_the_same_ones_for_the_same_number_and_lists_are_as_long_as_in_movielens(tmp_path: Path) -> None:
    first, again = (pq.read_table(write_coded(tmp_path / name, GROUP + 5)) for name in "ab")
    assert first.equals(again)
    assert pq.ParquetFile(tmp_path / "a" / "0000.parquet").num_row_groups == 2
    lengths = np.diff(first.column("genres").combine_chunks().offsets.to_numpy())
    assert (lengths.min(), lengths.max()) == (1, 10)
    assert 1.9 < lengths.mean() < 2.3
    assert (first.column("label").to_numpy() == (first.column("rating").to_numpy() >= 4)).all()


def test_a_contender_that_gets_other_rows_ends_the_benchmark() -> None:
    with pytest.raises(SystemExit, match="user adds up to"):
        loader._compare_sums({"a": {"user": 5}, "b": {"user": 6}})
    loader._compare_sums({"a": {"age": 1.0}, "b": {"age": 1.0 + 1e-12}, "c": {}})


def test_of_a_part_of_an_epoch_a_sliding_buffer_is_not_charged_for_being_filled() -> None:
    assert USED.rate(steady=True) == USED.rate(steady=False) == 500
    part = replace(USED, whole=False)
    assert (part.rate(steady=True), part.rate(steady=False)) == (500, 500)
    assert replace(part, first=1.0).rate(steady=True) == 750
    assert (part.cost(steady=True), part.cost(steady=False)) == (pytest.approx(800), 1_000)
    rows = list(loader.table(4_000, [Contender("a", list, steady=True)], {"a": [part]}))
    assert rows[0].note == "1,000 of the rows, after the first batch"


def test_memory_beyond_the_budget_is_noted() -> None:
    within, *_ = loader.memory_rows(5, "cache", USED)
    over, *_ = loader.memory_rows(5, "cache", replace(USED, peak=loader.BUDGET * loader.TOLERANCE + 11.0))
    assert within.note == ""
    assert over.note.startswith("more than the budget")


def test_the_share_of_a_step_by_the_loader_is_compared_with_the_limit_of_its_own_environment() -> None:
    speeds = {loader.LIMIT: 100.0, "eyas, cache": 80.0, "merlin": 20.0, loader.MERLIN_LIMIT: 40.0}
    rows = list(loader.fit_rows("m", {name: [{"training": speed, "CPU a million rows": 1.0}] for name, speed in speeds.items()}, 7))
    shares = {row.contender: row.values for row in rows if row.unit == "%"}
    assert shares == {"eyas, cache": [pytest.approx(20.0)], "merlin": [50.0]}
