"""A small round of each benchmark of etl and of what training reads."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from benchmarks import (
    batches,
    etl,
    families,
    moments,
    pages,
)
from benchmarks.etl import differences
from benchmarks.movielens_rows import write_log


def test_rows_with_what_counted_of_their_users_are_measured(tmp_path: Path) -> None:
    rows = write_log(tmp_path / "rows.parquet", 3_000)
    for count in (0, 2_000):
        output = tmp_path / str(count)
        figures = moments.measure(rows, moments.write_values(tmp_path / f"{count}.jsonl", count), output)
        assert len(pl.read_parquet(output / "rows.parquet")) == 3_000
        assert figures.keys() == moments.UNITS.keys() and min(figures.values()) > 0
    assert len(pl.read_parquet(tmp_path / "2000" / "users.parquet")) > len(pl.read_parquet(tmp_path / "0" / "users.parquet"))


def test_what_etl_makes_for_a_family_is_measured(tmp_path: Path) -> None:
    families.write(tmp_path, 3_000)
    figures, _ = families.etl(tmp_path, "popularity")
    assert (figures["features"], figures["inputs of the served unit"]) == (2, 2)
    assert all(value > 0 for value in figures.values())


def test_a_contender_of_the_etl_benchmark_is_measured_and_what_it_does_differently_is_said(tmp_path: Path) -> None:
    rows = list(etl.measure([etl.REFERENCE], tmp_path, 3_000, 2))
    assert {row.metric for row in rows} == {"throughput", "peak memory"}
    assert all(len(row.values) == 2 and min(row.values) > 0 for row in rows)
    ours = tmp_path / etl.REFERENCE
    assert differences(ours, ours) == []
    (tmp_path / "other").mkdir()
    frame = pl.read_parquet(ours / "rows.parquet")
    other = frame.with_columns(pl.col("userId_code") + 1, pl.col("movieId_te") + 0.5, genres=pl.col("genres").list.head(1))
    other.drop("label").write_parquet(tmp_path / "other" / "rows.parquet")
    sentences = differences(ours, tmp_path / "other")
    assert sentences[:1] == ["no column label"]
    for start in ("userId_code: the same values by other codes", "movieId_te: 100.00% of the values differ", "genres: other numbers"):
        assert any(sentence.startswith(start) for sentence in sentences)


def test_views_of_pages_are_measured_and_change_nothing_where_no_sequence_shows_them(tmp_path: Path) -> None:
    pages.write(tmp_path, 3_000)
    (figures, digest), (_, unused) = (pages.etl(tmp_path, name) for name in pages.CONTENDERS[:2])
    assert digest == unused
    assert figures.keys() == pages.UNITS.keys() and min(figures.values()) > 0


def test_trainings_batches_are_measured(tmp_path: Path) -> None:
    folder = batches.publish_tables(tmp_path, 3_000)
    for contender, options in batches.CONTENDERS.items():
        figures = batches.read_epochs(folder, *options)
        assert figures["speed"] > 0 and ("liked, read in" in figures) == contender.endswith("verified")
