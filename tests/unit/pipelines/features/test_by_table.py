"""What looks things up at once gives what its slower or plainer way gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.features.columns import NULL, Column, polars_type
from pipelines.features.engines.history import ValueFile
from pipelines.features.operators import codes
from pipelines.features.vocabulary import EntryRule, fit_vocabulary

COUNT = 300_000
INTS = st.one_of(st.integers(-3, 12), st.integers(-(2**63) + 1, 2**63 - 1))
WORDS = st.text(min_size=1, max_size=3)


@pytest.mark.requirement("G-14")
@pytest.mark.parametrize("shape", [(), (3,)])
def test_values_laid_down_by_row_are_those_of_any_rows(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = np.arange(COUNT * int(np.prod(shape)), dtype=np.int32).reshape(COUNT, *shape)
    values.tofile(tmp_path / "values")
    value_file = ValueFile(tmp_path / "values", np.int32, shape)
    chance = np.random.default_rng(5)
    near = chance.integers(1_000, 1_200, 500)
    for rows in (
        [],
        [7],
        range(5, 900),
        range(900, 5, -1),
        [3, 3, 4],
        [0, COUNT - 1],
        near,
        chance.integers(0, COUNT, 400),
        range(0, COUNT, 2),
    ):
        picked = np.array(rows, np.uint32)
        assert np.array_equal(value_file.at(picked), values[picked.astype(np.int64)])


@pytest.mark.requirement("G-14")
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_values_are_coded_at_once_as_they_are_one_by_one(data: st.DataObject) -> None:
    kind, strategy = data.draw(st.sampled_from([("int64", INTS), ("string", WORDS)]))
    buckets = data.draw(st.sampled_from([None, 7])) if kind == "int64" else None
    known: list[Any] = data.draw(st.lists(strategy, unique=True, max_size=8))
    counted = pl.DataFrame({"value": pl.Series(known, dtype=polars_type(kind)), "count": pl.Series([1] * len(known), dtype=pl.Int64)})
    vocabulary = fit_vocabulary(counted, kind, EntryRule(hash_buckets=buckets))
    values = pl.Series(
        "value", data.draw(st.lists(st.one_of(st.none(), strategy, st.sampled_from([*known, None])), max_size=20)), polars_type(kind)
    )
    plain = values.to_frame().select(vocabulary.encode(pl.col("value"))).to_series()
    assert vocabulary.coded(values).tolist() == plain.to_list()
    where = {value: 2 + place for place, value in enumerate(vocabulary.values)}
    assert all(
        code == (NULL if value is None else where[value])
        for value, code in zip(values, plain, strict=True)
        if value is None or value in where
    )


@pytest.mark.requirement("G-14")
def test_a_cross_is_the_same_by_a_table_of_all_combinations(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(5)
    rows, hours = chance.integers(0, 9, (1_000, 4)).astype(np.int32), chance.integers(0, 26, 1_000).astype(np.int32)
    columns = (Column("genres", "code", "item", True), Column("hour", "code", "context", False))
    by_table = codes.Cross(columns, 10_000, 4, (9, 26))
    assert by_table.table is not None
    monkeypatch.setattr(codes, "_TABLE", 1)
    hashed = codes.Cross(columns, 10_000, 4, (9, 26))
    assert hashed.table is None
    assert np.array_equal(by_table.arrays([rows, hours]), hashed.arrays([rows, hours]))
    assert len(np.unique(by_table.arrays([rows, hours]))) > 150
