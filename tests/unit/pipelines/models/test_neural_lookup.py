"""What a batch reads of fused tables: each row once, every code found again, padding nowhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.models.neural.fused import fuse
from pipelines.models.neural.lookup import BEYOND, FusedTableReader, steady
from pipelines.models.tables import Table
from shared.domain.errors import BadData
from tests.support import neural_model


@pytest.mark.requirement("G-23")
def test_tables_of_one_width_lie_in_one_with_offsets() -> None:
    wide, narrow = fuse(neural_model.tables())
    assert [one.column for one in wide.tables] == ["user", "item", "genres"] and wide.starts == (0, 40, 70)
    assert (wide.rows, wide.width, narrow.rows, narrow.width) == (77, 8, 14, 4)
    assert [len(one.tables) for one in fuse(neural_model.tables(), apart=True)] == [1] * 5


def test_joined_rows_are_parted_again() -> None:
    fused = fuse(neural_model.tables())[0]
    arrays = {f"table_{one.column}/embeddings": np.full((one.cardinality, 8), at, np.float32) for at, one in enumerate(fused.tables)}
    parted = fused.parted(fused.joined(arrays))
    assert all((parted[path] == one).all() and parted[path].shape == one.shape for path, one in arrays.items())


@pytest.mark.requirement("L-04", "T-08")
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 80))
@settings(max_examples=50, deadline=None)
def test_a_batch_reads_each_row_once_and_finds_every_code_again(seed: int, rows: int) -> None:
    columns = neural_model.batch(seed, rows).columns
    for fused in fuse(neural_model.tables()):
        reader = FusedTableReader(fused)
        for _ in range(2):  # what the first time left behind is of no meaning to the second
            found = reader(columns)
            assert len(set(found.rows)) == len(found.rows)
            for table, places in zip(fused.single, found.places, strict=True):
                np.testing.assert_array_equal(found.rows[places], columns[table.column] + fused.start(table))
            for table, one in zip(fused.lists, found.lists, strict=True):
                codes = columns[table.column]
                values = found.rows[one.places] - fused.start(table)
                for row in range(rows):
                    expected = codes[row][codes[row] != 0]
                    np.testing.assert_array_equal(values[one.offsets[row] : one.offsets[row + 1]], expected)
                    np.testing.assert_array_equal(values[one.segments == row], expected)
                    assert one.shares[row, 0] == pytest.approx(1 if table.pooling == "sum" else 1 / max(1, len(expected)))
            reached = {int(place) for place in found.places.ravel()} | {int(one) for some in found.lists for one in some.places}
            assert reached == set(range(len(found.rows)))


@pytest.mark.parametrize("odd", [5, -1])
def test_a_code_beyond_its_vocabulary_is_named(odd: int) -> None:
    reader = FusedTableReader(fuse((Table("user", 5, 4, None), Table("item", 9, 4, None)))[0])
    with pytest.raises(BadData, match=f"feature 'user': code {odd} is beyond its vocabulary of 5: run etl again"):
        reader({"user": np.array([1, odd], np.int32), "item": np.array([1, 2], np.int32)})


@given(seed=st.integers(0, 1000), rows=st.integers(1, 3000))
@settings(max_examples=30, deadline=None)
def test_what_differs_from_batch_to_batch_is_filled_up_by_a_quarter_at_most(seed: int, rows: int) -> None:
    for fused in fuse(neural_model.tables()):
        reads = FusedTableReader(fused)(neural_model.batch(seed, rows).columns)
        filled = steady(reads)
        pairs = [(reads.rows, filled.rows)]
        for column_list, other in zip(reads.lists, filled.lists, strict=True):
            pairs += [(column_list.places, other.places), (column_list.segments, other.segments)]
            assert column_list.offsets is other.offsets and column_list.shares is other.shares
        for short, long in pairs:
            np.testing.assert_array_equal(long[: len(short)], short)
            assert (long[len(short) :] == BEYOND).all()
            assert len(long) % 256 == 0 and len(long) - len(short) < max(256, len(short) / 4 + 1)
