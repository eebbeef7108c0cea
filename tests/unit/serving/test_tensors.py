"""Columns as the served graph takes them: lists as padded rows, or as values and offsets; never as something between."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from pydantic import ValidationError

from shared.domain.errors import Invalid
from shared.serving.signature import BLANK, DataType, Input, Signature
from shared.serving.tensors import flat, shared, tensors

KEYS = (Input(name="user", dtype="int64", side="user"), Input(name="item", dtype="int64", side="item"))
TYPES: dict[DataType, Any] = {"int64": np.int64, "float32": np.float32, "string": np.str_}
_VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    "int64": st.one_of(st.just(BLANK["int64"]), st.integers(-(2**63), 2**63 - 1)),
    "float32": st.one_of(st.just(float("nan")), st.floats(width=32)),
    "string": st.one_of(st.just(""), st.text(max_size=3).filter(lambda one: "\0" not in one)),
}
ROWS = st.sampled_from(list(TYPES)).flatmap(
    lambda dtype: st.tuples(
        st.just(dtype),
        st.integers(1, 5).flatmap(lambda width: st.lists(st.lists(_VALUES[dtype], min_size=width, max_size=width), max_size=6)),
    )
)
"""A type, and rows of one width with blanks anywhere."""


def unit(*more: Input) -> Signature:
    return Signature(user="user", item="item", inputs=(*KEYS, *more))


def lists(name: str, dtype: DataType = "string", width: int = 3) -> Input:
    return Input(name=name, dtype=dtype, width=width, side="item", lists="offsets")


def without_padding(row: Sequence[Any]) -> list[Any]:
    """Written anew, value by value."""
    found = list(row)
    while found and (found[-1] != found[-1] or found[-1] in (BLANK["int64"], "")):
        found.pop()
    return found


@pytest.mark.requirement("T-05")
@given(ROWS)
def test_values_and_offsets_are_the_lists_without_what_is_blank_behind_them(case: tuple[DataType, list[list[Any]]]) -> None:
    dtype, rows = case
    padded = np.array(rows, TYPES[dtype]).reshape(len(rows), len(rows[0]) if rows else 2)
    values, offsets = flat(padded, dtype)
    assert offsets.dtype == np.int64
    assert offsets[0] == 0
    assert offsets[-1] == len(values) == sum(len(without_padding(row)) for row in padded.tolist())
    assert len(offsets) == len(rows) + 1
    for row, start, end in zip(padded.tolist(), offsets, offsets[1:], strict=False):
        assert start <= end
        assert_array_equal(values[start:end], np.array(without_padding(row), TYPES[dtype]))


@pytest.mark.parametrize("writeable", [True, False])
def test_values_of_a_column_that_nobody_may_write_to_are_so_too(writeable: bool) -> None:
    padded = np.array([["a", ""], ["b", "c"]])
    padded.flags.writeable = writeable
    values, _ = flat(padded, "string")
    assert (values.tolist(), values.flags.writeable) == (["a", "b", "c"], writeable)


@pytest.mark.requirement("T-05")
def test_each_list_comes_as_its_input_says_and_the_encodings_have_other_names() -> None:
    columns = {
        "user": np.array([1, 1]),
        "item": np.array([10, 20]),
        "genres": np.array([["Drama", "", ""], ["", "", ""]]),
        "tags": np.array([["a", ""], ["b", "c"]]),
    }
    signature = unit(lists("genres"), Input(name="tags", dtype="string", width=2, side="item"))
    found = tensors(signature, columns)
    assert list(found) == ["user", "item", "tags", "genres__values", "genres__offsets"] == [one.name for one in signature.tensors]
    assert (found["genres__values"].tolist(), found["genres__offsets"].tolist()) == (["Drama"], [0, 1, 1])
    assert found["tags"] is columns["tags"]


def test_no_rows_are_no_values_and_one_offset() -> None:
    empty = np.empty(0, np.int64)
    found = tensors(unit(lists("genres")), {"user": empty, "item": empty, "genres": np.empty((0, 3), np.str_)})
    assert (found["genres__values"].tolist(), found["genres__offsets"].tolist()) == ([], [0])


INVALID_COLUMNS = [
    ({}, "input 'genres' is missing"),
    ({"genres": np.full((2, 2), "")}, r"'genres' has the shape \(2, 2\), expected \(rows, 3\)"),
    ({"genres__values": np.array(["a"]), "genres__offsets": np.array([0, 1, 1])}, "input 'genres' is missing"),
]


def test_what_is_no_column_of_lists_is_refused(subtests: pytest.Subtests) -> None:
    for columns, said in INVALID_COLUMNS:
        with subtests.test(columns=columns):
            keys = {"user": np.array([1, 1]), "item": np.array([10, 20])}
            with pytest.raises(Invalid, match=said):
                tensors(unit(lists("genres")), keys | columns)


def test_a_signature_says_nothing_of_lists_that_are_padded() -> None:
    padded = Input(name="genres", dtype="string", width=3, side="item")
    assert "lists" not in json.loads(padded.model_dump_json())
    assert json.loads(lists("genres").model_dump_json())["lists"] == "offsets"
    assert Input.model_validate_json(lists("genres").model_dump_json()) == lists("genres")
    assert Input.model_validate_json(padded.model_dump_json()).lists == "padded"


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([{"name": "year", "dtype": "int64", "side": "item", "lists": "offsets"}], "'year' has one value per row; offsets need a list"),
        (
            [lists("genres").model_dump(), {"name": "genres__offsets", "dtype": "int64", "side": "item"}],
            "an input has the same name as the values or the offsets of another input",
        ),
    ],
)
def test_what_could_be_taken_for_something_else_is_refused(inputs: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Signature.model_validate({"user": "user", "item": "item", "inputs": [*(one.model_dump() for one in KEYS), *inputs]})


@pytest.mark.requirement("T-05", "U-14")
@given(st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=2), max_size=8))
def test_shared_lists_and_their_numbers_give_the_rows_again(rows: list[list[int]]) -> None:
    padded = np.array(rows, np.int64).reshape(len(rows), 2)
    distinct, number = shared(padded)
    assert_array_equal(distinct[number], padded)
    assert len(distinct) == sum(at == 0 or row != rows[at - 1] for at, row in enumerate(rows))
    assert all(lists.dtype == np.int64 for lists in (distinct, number))


@pytest.mark.requirement("T-05", "U-14")
def test_a_list_that_is_repeated_without_a_copy_is_sent_once() -> None:
    one = Input(name="recent", dtype="int64", width=2, side="context", lists="shared")
    row = np.array([[7, BLANK["int64"]]])
    columns = {"user": np.zeros(5, np.int64), "item": np.arange(5), "recent": np.broadcast_to(row, (5, 2))}
    made = tensors(unit(one), columns)
    assert made["recent__lists"].tolist() == row.tolist()
    assert made["recent__list"].tolist() == [0] * 5
