"""A small round of each benchmark of etl and of what training reads."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

from benchmarks import (
    batches,
    etl,
    families,
    moments,
    pages,
)
from benchmarks.etl_check import differences
from benchmarks.etl_rows import write_rows


def test_rows_with_what_counted_of_their_users_are_measured(tmp_path: Path) -> None:
    rows, found = write_rows(tmp_path / "rows.parquet", 3_000), {}
    for count in (0, 2_000):
        out = tmp_path / str(count)
        out.mkdir()
        writes = moments.write_values(tmp_path / f"{count}.jsonl", count)
        found[count] = [etl.watched([sys.executable, "-m", "benchmarks.moments_eyas", str(rows), str(writes), str(out)])]
        assert len(pl.read_parquet(out / "rows.parquet")) == 3_000
    assert len(pl.read_parquet(tmp_path / "2000" / "users.parquet")) > len(pl.read_parquet(tmp_path / "0" / "users.parquet"))
    assert all(value > 0 for row in moments.table(found, 3_000) for value in row.values)


def test_what_etl_makes_for_a_family_is_measured(tmp_path: Path) -> None:
    families.write(tmp_path, 3_000)
    found = families.etl(tmp_path, "popularity", 0)
    assert (found["features"], found["inputs of the served unit"]) == (2, 2)
    assert all(value > 0 for value in found.values())


def test_a_contender_of_the_etl_benchmark_is_measured_and_what_it_does_differently_is_said(tmp_path: Path) -> None:
    (contender,) = (one for one in etl.CONTENDERS if one.name == etl.REFERENCE)
    found = etl.measured([contender], tmp_path, 3_000, 2)
    assert {row.metric for row in etl.table(found, 3_000, 0)} == {"throughput", "peak memory"}
    assert all(run.seconds > 0 and run.mebibytes > 0 for run in found[etl.REFERENCE, 3_000])
    ours = etl.place(tmp_path, etl.REFERENCE)
    assert differences(ours, ours) == []
    (tmp_path / "other").mkdir()
    frame = pl.read_parquet(ours / "rows.parquet")
    other = frame.with_columns(pl.col("userId_code") + 1, pl.col("movieId_te") + 0.5, genres=pl.col("genres").list.head(1))
    other.drop("label").write_parquet(tmp_path / "other" / "rows.parquet")
    said = differences(ours, tmp_path / "other")
    assert said[:1] == ["no column label"]
    assert any(one.startswith("userId_code: the same values by other codes") for one in said)
    assert any(one.startswith("movieId_te: 100.00% of the values differ") for one in said)
    assert any(one.startswith("genres: other numbers") for one in said)


def test_views_of_pages_are_measured_and_change_nothing_where_no_sequence_shows_them(tmp_path: Path) -> None:
    pages.write(tmp_path, 3_000)
    rows, same = pages.measured(tmp_path, 3_000, 1)
    assert same and {row.contender for row in rows} == set(pages.CONTENDERS)
    assert all(value > 0 for row in rows for value in row.values)


def test_trainings_batches_are_measured(tmp_path: Path) -> None:
    folder = batches.published(tmp_path, 3_000)
    for contender, taken in ((name, batches.eaten(folder, *said)) for name, said in batches.CONTENDERS.items()):
        assert taken["speed"] > 0 and ("liked, read in" in taken) == contender.endswith("verified")
