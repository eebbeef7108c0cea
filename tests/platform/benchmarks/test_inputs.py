"""Inputs of the benchmarks of etl and lists."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from benchmarks import (
    lists,
)
from benchmarks.movielens_rows import write_log
from pipelines.features.raw import item_columns
from shared.serving.signature import Input, Signature


@pytest.mark.parametrize("kind", ["text", "full lists of int64"])
def test_lists_are_sent_as_they_are_counted(kind: str) -> None:
    table = lists.items(kind)
    values, width = table["words"].list.len(), lists.WIDTH
    assert (values.max(), values.min()) == (width, width if kind.startswith("full") else 1)
    keys = [Input(name="userId", dtype="int64", side="user"), Input(name="movieId", dtype="int64", side="item")]
    words = Input(name="words", dtype="string" if kind == "text" else "int64", width=width, side="item")
    padded, offsets = (
        Signature(user="userId", item="movieId", inputs=(*keys, words.model_copy(update={"lists": layout}))) for layout in lists.LAYOUTS
    )
    columns = item_columns(table, padded)
    sizes = [lists.size_of(one, lists.feeder(one, columns, lists.ITEMS)(0)) for one in (padded, offsets)]
    each = 4 if kind == "text" else 8
    missing = lists.ITEMS * width - int(values.sum())
    assert sizes[0] - sizes[1] == each * missing - 8 * (lists.ITEMS + 1)


def test_rows_of_the_etl_benchmark_are_the_same_ones_for_the_same_number(tmp_path: Path) -> None:
    rows, again = write_log(tmp_path / "a.parquet", 3_000), write_log(tmp_path / "b.parquet", 3_000)
    assert rows.read_bytes() == again.read_bytes()
    frame = pl.read_parquet(rows)
    assert frame["timestamp"].n_unique() == len(frame) == 3_000
    assert frame["timestamp"].is_sorted()
    assert 1.8 < frame["genres"].list.len().mean() < 2.2
