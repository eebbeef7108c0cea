"""What validation counts by key and marks as repeated is what polars counts in memory, whatever is spread over files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.data.validation import grouping, repeats
from pipelines.data.validation.grouping import KEY, grouped
from pipelines.data.validation.keys import SAMPLED_KEYS, KeySums, is_drawn
from pipelines.data.validation.repeats import mark_repeats

SUMS = [pl.len().cast(pl.Int64).alias("rows"), pl.col("n").sum().alias("n sum"), (pl.col("n") ** 2).sum().alias("n squares")]


@pytest.mark.parametrize("held", [7, 50, 10**6])
@settings(max_examples=12, deadline=None)
@given(keys=st.lists(st.one_of(st.integers(-3, 30), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=200))
def test_sums_by_key_are_those_of_one_group_by_whether_files_were_needed_or_not(
    held: int, keys: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    frame = pl.DataFrame({KEY: keys, "n": range(len(keys))}, schema={KEY: pl.Int64, "n": pl.Int64})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "_MOST_SUMS", held)
        patch.setattr(grouping, "_BATCH", 20)
        folder = tmp_path_factory.mktemp("sums")
        parts = list(grouped(frame.lazy(), SUMS, folder))
    assert pl.concat(parts).sort(KEY).equals(frame.group_by(KEY).agg(SUMS).sort(KEY))
    assert all(part[KEY].is_sorted() for part in parts) and not list(folder.rglob("*.parquet"))
    found = KeySums(iter(parts), ("n",)).keys()
    assert found.count == len(set(keys)) and sorted(set(keys)) == list(found.sample), "few keys are all of them the sample"


def test_no_rows_have_no_sums(tmp_path: Path) -> None:
    frame = pl.DataFrame(schema={KEY: pl.Int64, "n": pl.Int64})
    assert list(grouped(frame.lazy(), SUMS, tmp_path)) == []


def test_a_sample_of_many_keys_is_the_same_in_however_many_parts_they_come(tmp_path: Path) -> None:
    keys = pl.DataFrame({KEY: range(20_000), "rows": 1})
    whole = KeySums([keys], ()).keys()
    parts = KeySums(keys.iter_slices(700), ()).keys()
    assert whole == parts and SAMPLED_KEYS / 2 < len(whole.sample) < SAMPLED_KEYS * 2
    assert sorted(whole.sample) == keys.filter(is_drawn(pl.col(KEY), whole.shift))[KEY].to_list()


VALUES: dict[str, tuple[Any, pl.DataType]] = {
    "a": (st.one_of(st.none(), st.sampled_from([0.0, -0.0, float("nan"), 1.5])), pl.Float64()),
    "b": (st.one_of(st.none(), st.sampled_from(["", "x", "straße"])), pl.String()),
    "c": (st.one_of(st.none(), st.integers(0, 2)), pl.Int64()),
}


@pytest.mark.parametrize("unique", [["a"], ["b", "c"], ["a", "b", "c"]])
@settings(max_examples=15, deadline=None)
@given(rows=st.lists(st.tuples(*(values for values, _ in VALUES.values())), min_size=1, max_size=40))
def test_a_row_repeats_an_earlier_one_exactly_where_it_is_not_the_first_of_its_values(
    unique: list[str], rows: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    frame = pl.DataFrame(rows, schema={name: dtype for name, (_, dtype) in VALUES.items()}, orient="row").with_row_index("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "_SPREAD", 5)
        again = mark_repeats(frame.lazy(), unique, "place", len(frame), tmp_path_factory.mktemp("marks"))
    kept = frame.lazy().filter(~again.marked).collect()
    assert kept.equals(frame.unique(unique, keep="first", maintain_order=True), null_equal=True)
    assert len(kept) + again.count == len(frame)
    later = frame.join(kept, on="place", how="anti")
    assert again.example == (", ".join(map(str, later.select(unique).row(0))) if len(later) else "")
