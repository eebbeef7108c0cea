"""Lists in every layout: each against plain loops, and what doesn't fit is refused by name."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.loaders.adapters.layout import (
    Chosen,
    Dense,
    PaddedLayout,
    RaggedLayout,
    layout_stage,
    layouts,
    shown,
)
from pipelines.loaders.columns import Array, Column, ListColumn, pack_lists
from pipelines.loaders.kinds import described_by
from shared.domain.errors import BadData, Invalid

RANDOM = np.random.default_rng(0)


def lists(rows: list[list[Any]], dtype: Any = np.int32) -> ListColumn:
    return ListColumn(np.array([value for row in rows for value in row], dtype), np.cumsum([0, *map(len, rows)]).astype(np.int64))


def both(rows: list[list[Any]], dtype: Any = np.int32) -> list[ListColumn]:
    """As they come out of a loader, short ones and long ones."""
    plain = lists(rows, dtype)
    column = pack_lists(plain.values, plain.offsets).column()
    assert isinstance(column, ListColumn)
    return [plain, column]


def out(chosen: Chosen, **columns: Column) -> dict[str, Array]:
    known = described_by(columns)
    layout = layouts(chosen, known, RaggedLayout())
    arrays = layout_stage(layout)(columns, RANDOM)
    said = shown(known, layout)
    assert list(said) == list(arrays)
    for name, array in arrays.items():
        assert said[name].dtype == array.dtype
        if isinstance(array, np.ndarray):
            assert len(said[name].shape) == array.ndim
            assert all(wanted in (None, there) for wanted, there in zip(said[name].shape, array.shape, strict=True))
    return {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}


ROWS = st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=30)


@pytest.mark.requirement("T-05")
@settings(max_examples=40)
@given(ROWS)
def test_offsets_and_lengths_say_where_each_rows_values_are(rows: list[list[int]]) -> None:
    for column in both(rows):
        offsets, lengths = out("offsets", x=column), out("lengths", x=column)
        assert list(offsets) == ["x__values", "x__offsets"]
        assert list(lengths) == ["x__values", "x__lengths"]
        assert lengths["x__lengths"].tolist() == [len(one) for one in rows]
        assert lengths["x__lengths"].sum() == len(lengths["x__values"])
        begins = offsets["x__offsets"].tolist()
        assert [offsets["x__values"][a:b].tolist() for a, b in pairwise(begins)] == rows


@settings(max_examples=40)
@given(ROWS, st.integers(1, 15), st.integers(-1, 3))
def test_padded_lists_are_as_wide_as_is_said_or_as_the_longest(rows: list[list[int]], width: int, value: int) -> None:
    for column in both(rows):
        longest = max([1, *map(len, rows)])
        assert out(PaddedLayout(value=value), x=column)["x"].tolist() == [
            row_values + [value] * (longest - len(row_values)) for row_values in rows
        ]
        cut = out(PaddedLayout(width, value, "cut"), x=column)["x"]
        assert cut.tolist() == [(one + [value] * width)[:width] for one in rows]
        assert cut.dtype == np.int32
        if max(map(len, rows), default=0) <= width:
            assert out(PaddedLayout(width, value), x=column)["x"].tolist() == cut.tolist()
        else:
            with pytest.raises(BadData, match=rf"column 'x' has a list of {longest} values, padded lists have width {width}"):
                out(PaddedLayout(width, value), x=column)


@settings(max_examples=40)
@given(ROWS, st.integers(1, 12))
def test_dense_lists_have_a_one_for_each_value(rows: list[list[int]], size: int) -> None:
    for column in both(rows):
        if max([-1, *(one for row in rows for one in row)]) < size:
            found = out(Dense(size), x=column)["x"]
            assert found.dtype == np.float32
            assert found.tolist() == [[float(at in one) for at in range(size)] for one in rows]
        else:
            with pytest.raises(BadData, match=f"dense lists of size {size} take 0 to {size - 1}"):
                out(Dense(size), x=column)


def test_values_below_zero_are_not_made_dense() -> None:
    with pytest.raises(BadData, match="column 'x' has the value -1"):
        out(Dense(4), x=lists([[1, -1]], np.int64))


def test_each_column_has_a_layout_of_its_own_and_others_stay_as_they_are() -> None:
    columns: dict[str, Column] = {"a": lists([[1, 2], []]), "b": lists([[0.5], [1.5]], np.float32), "c": np.arange(2)}
    batch = out({"a": PaddedLayout(3, -1), "b": "lengths"}, **columns)
    assert {name: column.tolist() for name, column in batch.items()} == {
        "a": [[1, 2, -1], [-1, -1, -1]],
        "b__values": [0.5, 1.5],
        "b__lengths": [1, 1],
        "c": [0, 1],
    }


CHOSEN: list[tuple[Any, str]] = [
    ("padedd", "unknown layout 'padedd': did you mean 'padded'"),
    ("dense", "'dense' needs a size; write Dense"),
    ({"z": "padded"}, "unknown column 'z': known: u, x"),
    ({"n": "padded"}, "column 'n' has no lists"),
    (PaddedLayout(value=0.5), "column 'x' is padded with 0.5, which is not uint8"),
    (PaddedLayout(value=-1), "column 'x' is padded with -1, which is not uint8"),
    (PaddedLayout(value=float("nan")), "column 'x' is padded with nan, which is not uint8"),
    ({"u": Dense(3)}, "column 'u' has values of float32; only integers"),
    ({"x": "offsets"}, "becomes 'x__values', which is another column's name"),
]


def test_what_is_no_layout_of_a_column_is_refused_by_name(subtests: pytest.Subtests) -> None:
    for chosen, said in CHOSEN:
        with subtests.test(chosen=chosen):
            columns: dict[str, Column] = {
                "x": lists([[1]], np.uint8),
                "u": lists([[1]], np.float32),
                "n": np.arange(1),
                "x__values": np.arange(1),
            }
            with pytest.raises(Invalid, match=said):
                layouts(chosen, described_by(columns), RaggedLayout())


def test_a_layout_that_can_not_be_is_refused_where_it_is_made(subtests: pytest.Subtests) -> None:
    for wrong in [lambda: PaddedLayout(0), lambda: PaddedLayout(3, longer="drop"), lambda: Dense(0)]:
        with subtests.test(wrong=wrong), pytest.raises(Invalid, match="lists: "):
            wrong()
