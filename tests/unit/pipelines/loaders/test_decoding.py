"""Every type that Parquet can hold: it is loaded as documented, or refused in one line that says what to do."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.loaders.chunks import open_chunks
from pipelines.loaders.columns import ListColumn
from pipelines.loaders.loader import open_loader
from shared.domain.errors import BadData, Invalid

WHOLE = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
TEXTS = [pa.string(), pa.large_string()]
TIMES: list[tuple[pa.DataType, Any]] = [
    *((pa.timestamp(unit), dt.datetime(2026, 1, 1)) for unit in ("s", "ms", "us", "ns")),
    (pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 1)),
    (pa.date32(), dt.date(2026, 1, 1)),
    (pa.date64(), dt.date(2026, 1, 1)),
    (pa.time32("ms"), dt.time(1)),
    (pa.time64("us"), dt.time(1)),
    (pa.duration("s"), dt.timedelta(1)),
]
TENSORS = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(6, dtype=np.float32).reshape(3, 2))


def numpy_of(kind: pa.DataType) -> np.dtype[Any]:
    return pa.array([], kind).to_numpy().dtype  # type: ignore[no-any-return]


def loaded(folder: Path, column: pa.Array, name: str = "x", shuffle: bool = False, **settings: Any) -> Any:
    pq.write_table(pa.table({name: column}), folder / "rows.parquet", row_group_size=2)
    batches = list(open_loader(folder / "rows.parquet", shuffle=shuffle, batch_size=len(column), **settings).epoch(0))
    assert len(batches) == 1
    return batches[0][name]


def each(column: Any) -> list[Any]:
    assert isinstance(column, ListColumn)
    return [one.tolist() for one in np.split(column.values, column.offsets[1:-1])]


@pytest.mark.requirement("T-01")
def test_whole_numbers_keep_their_type_to_its_ends(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for kind in WHOLE:
        with subtests.test(kind=str(kind)):
            ends = np.iinfo(numpy_of(kind))
            found = loaded(tmp_path, pa.array([ends.min, 0, ends.max], kind))
            assert found.dtype == numpy_of(kind) and found.tolist() == [ends.min, 0, ends.max]
            lists = loaded(tmp_path, pa.array([[ends.min], [], [0, ends.max]], pa.list_(kind)))
            assert lists.values.dtype == numpy_of(kind) and each(lists) == [[ends.min], [], [0, ends.max]]
            fixed = loaded(tmp_path, pa.array([[ends.min, 0], [1, 2], [3, ends.max]], pa.list_(kind, 2)))
            assert fixed.dtype == numpy_of(kind) and fixed.tolist() == [[ends.min, 0], [1, 2], [3, ends.max]]


def test_a_missing_fraction_is_no_number_or_what_is_said(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for kind in FLOATS:
        with subtests.test(kind=str(kind)):
            numpy = numpy_of(kind).type
            some = [numpy(0.5), None, numpy(-2)]
            found = loaded(tmp_path, pa.array(some, kind))
            assert found.dtype == numpy
            np.testing.assert_array_equal(found, np.array([0.5, np.nan, -2], numpy))
            np.testing.assert_array_equal(loaded(tmp_path, pa.array(some, kind), nulls={"x": 7}), np.array([0.5, 7, -2], numpy))
            lists = loaded(tmp_path, pa.array([some, [], some[:1]], pa.list_(kind)))
            np.testing.assert_array_equal(lists.values, np.array([0.5, np.nan, -2, 0.5], numpy))
            assert lists.lengths.tolist() == [3, 0, 1]


def test_a_missing_whole_number_is_refused_when_the_file_is_opened_unless_something_counts_for_it(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for kind in [*WHOLE, pa.bool_(), pa.decimal128(5, 0)]:
        with subtests.test(kind=str(kind)):
            column = pa.array([1, None, 0], pa.int8()).cast(kind)
            with pytest.raises(BadData, match=r"rows.parquet: row group 0: column 'x' has 1 missing values.*nulls=\{'x': 0\}"):
                loaded(tmp_path, column)
            with pytest.raises(BadData, match="missing values"):
                open_chunks(tmp_path / "rows.parquet")
            assert loaded(tmp_path, column, nulls={"x": 1}).tolist() == [1, 1, 0]
            listed = pa.array([[1, None], [0], []], pa.list_(pa.int8())).cast(pa.list_(kind))
            with pytest.raises(BadData, match=r"column 'x' has 1 missing values"):
                loaded(tmp_path, listed)
            assert each(loaded(tmp_path, listed, nulls={"x": 1})) == [[1, 1], [0], []]


def test_a_column_is_named_whole_in_what_is_proposed(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"nulls=\{'year of birth': 0\}"):
        loaded(tmp_path, pa.array([1, None]), "year of birth")


def test_a_missing_list_is_refused_or_empty(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for large in [False, True]:
        with subtests.test(large=large):
            kind = pa.large_list(pa.int32()) if large else pa.list_(pa.int32())
            column = pa.array([[1, 2], None, [3]], kind)
            with pytest.raises(BadData, match=r"row group 0: column 'x' has 1 missing lists, but lists may only be empty"):
                loaded(tmp_path, column)
            assert each(loaded(tmp_path, column, nulls={"x": 9})) == [[1, 2], [], [3]]


def test_a_missing_list_of_a_fixed_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"row group 0: column 'x' has 1 missing lists of a fixed size; fill them"):
        loaded(tmp_path, pa.array([[1.0, None], None, [5.0, 6.0]], pa.list_(pa.float32(), 2)), nulls={"x": 9})
    found = loaded(tmp_path, pa.array([[1.0, None], [5.0, 6.0]], pa.list_(pa.float32(), 2)), nulls={"x": 9})
    assert found.tolist() == [[1, 9], [5, 6]]


def test_booleans_and_lists_of_them_are_booleans(tmp_path: Path) -> None:
    found = loaded(tmp_path, pa.array([True, False, True]))
    assert found.dtype == bool and found.tolist() == [True, False, True]
    lists = loaded(tmp_path, pa.array([[True], [], [False, True]]))
    assert lists.values.dtype == bool and each(lists) == [[True], [], [False, True]]


def test_decimals_are_whole_numbers_or_float64(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for kind in [pa.decimal128, pa.decimal256]:
        with subtests.test(kind=str(kind)):
            prices = pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-99999999.99")], kind(10, 2))
            found = loaded(tmp_path, prices)
            assert found.dtype == np.float64
            np.testing.assert_array_equal(found, [1.25, np.nan, -99999999.99])
            ids = loaded(tmp_path, pa.array([decimal.Decimal(2**62 + 1), decimal.Decimal(0)], kind(38, 0)))
            assert ids.dtype == np.int64 and ids.tolist() == [2**62 + 1, 0]
            with pytest.raises(BadData, match="column 'x' has numbers that do not fit int64"):
                loaded(tmp_path, pa.array([decimal.Decimal(2**70)], kind(38, 0)))
            lists = loaded(tmp_path, pa.array([[decimal.Decimal("0.50")], []], pa.list_(kind(4, 2))))
            assert lists.values.dtype == np.float64 and each(lists) == [[0.5], []]


def test_dictionaries_of_numbers_are_what_they_stand_for(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for kind in [pa.int64(), pa.float32()]:
        with subtests.test(kind=str(kind)):
            found = loaded(tmp_path, pa.array([30, 10, 30], kind).dictionary_encode())
            assert found.dtype == numpy_of(kind) and found.tolist() == [30, 10, 30]
            with pytest.raises(Invalid, match="column 'x' is text"):
                loaded(tmp_path, pa.array(["a", "b"]).dictionary_encode())
            values = pa.array([30, 10, 30], kind).dictionary_encode()
            assert each(loaded(tmp_path, pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), values))) == [[30], [10, 30]]


def test_extension_types_are_what_they_are_stored_as(tmp_path: Path) -> None:
    assert loaded(tmp_path, TENSORS).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert loaded(tmp_path, pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8()))).tolist() == [1, 0]
    with pytest.raises(Invalid, match="holds bytes"):
        loaded(tmp_path, pa.array([b"1" * 16], pa.uuid()))


NO_NUMBERS: list[tuple[pa.Array, str]] = [
    *((pa.array(["a"], kind), "is text") for kind in TEXTS),
    *((pa.array([b"a"], kind), "holds bytes") for kind in (pa.binary(), pa.large_binary(), pa.binary(1))),
    *((pa.array([value], kind), r"holds times .*write numbers, such as seconds") for kind, value in TIMES),
    (pa.array([{"a": 1}]), "is nested .*write its fields as separate columns"),
    (pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8())), "is nested"),
    (pa.array([[{"a": 1}]]), "is nested"),
    (pa.array([[[1]]]), "holds lists of lists"),
    (pa.array([["a"]]), "is text"),
    (pa.array([[dt.date(2026, 1, 1)]]), "holds times"),
    (pa.array([None]), "has only missing values, and so no type"),
]


def test_what_is_no_number_is_refused_in_one_line(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for column, said in NO_NUMBERS:
        with subtests.test(type=str(column.type)):
            pq.write_table(pa.table({"id": [1], "odd": column}), tmp_path / "rows.parquet")
            with pytest.raises(Invalid, match=rf"^\S+rows.parquet: column 'odd' {said}") as caught:
                open_chunks(tmp_path / "rows.parquet")
            assert "leave the column out: columns=['id']" in str(caught.value) and "\n" not in str(caught.value)
            assert [one["id"].tolist() for one in open_loader(tmp_path / "rows.parquet", ["id"]).epoch(0)] == [[1]]  # type: ignore[union-attr]


NULLS: list[tuple[Any, str]] = [
    ({"y": 0}, "nulls: column 'y' is not loaded; loaded columns: x"),
    ({"x": 300}, "nulls: 300 is not a value of column 'x', which is int8"),
    ({"x": 0.5}, "nulls: 0.5 is not a value"),
    ({"x": "a"}, "nulls: 'a' is not a value"),
]


def test_what_counts_for_missing_values_must_fit(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for nulls, said in NULLS:
        with subtests.test(nulls=nulls), pytest.raises(Invalid, match=said):
            loaded(tmp_path, pa.array([1, None], pa.int8()), nulls=nulls)
