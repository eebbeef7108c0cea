"""Files with values by key: read as they were written, in parts, and nothing else is taken."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.contracts.online import OnlineColumn, View
from shared.domain.errors import Unavailable
from shared.domain.feature_values import moment
from shared.serving.values_file import ValueRows, join_values, read_values, write_values

VIEW = View(
    name="user",
    columns=(
        OnlineColumn(name="age", dtype="int64"),
        OnlineColumn(name="mean", dtype="float32"),
        OnlineColumn(name="home", dtype="string"),
        OnlineColumn(name="last", dtype="int64", width=3),
        OnlineColumn(name="weights", dtype="float32", width=2),
    ),
)
LEAST = -(2**63)
VALUES = ValueRows(
    np.array([5, -1, 3]),
    np.array([30, 10, 20]),
    {
        "age": np.array([LEAST, 7, 0]),
        "mean": np.array([0.5, np.nan, np.inf]),
        "home": np.array(["Zürich", "", "b"]),
        "last": np.array([[1, 2, LEAST], [LEAST, LEAST, LEAST], [4, LEAST, 5]]),
        "weights": np.array([[0.5, np.nan], [np.nan, 1.0], [np.nan, np.nan]]),
    },
)
ROWS: dict[int, dict[str, Any]] = {
    -1: {"age": 7, "weights": (None, 1.0)},
    3: {"age": 0, "home": "b", "last": (4, LEAST, 5)},
    5: {"mean": 0.5, "home": "Zürich", "last": (1, 2), "weights": (0.5,)},
}


@pytest.mark.requirement("G-08")
@pytest.mark.parametrize("part", [1, 2, 50_000])
def test_rows_come_back_by_key_and_what_is_blank_is_not_known(tmp_path: Path, part: int) -> None:
    told, files = write_values(VIEW, VALUES, lambda name: tmp_path / name, part)
    assert (told.rows, list(told.parts), told.name) == (3, list(files), "user")
    assert len(files) == -(-3 // part)
    read = join_values([read_values(path.read_bytes(), told, name) for name, path in files.items()])
    rows = [read.row(place, told.columns) for place in range(3)]
    assert {row.key: dict(row.values) for row in rows} == ROWS
    assert [row.at for row in rows] == [moment(10), moment(20), moment(30)]


def test_equal_values_make_equal_files(tmp_path: Path) -> None:
    _, first = write_values(VIEW, VALUES, lambda name: tmp_path / f"a-{name}")
    _, second = write_values(VIEW, VALUES, lambda name: tmp_path / f"b-{name}")
    assert [path.read_bytes() for path in first.values()] == [path.read_bytes() for path in second.values()]


def test_a_key_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two rows have the same key"):
        write_values(VIEW, ValueRows(np.array([1, 1, 2]), VALUES.at, VALUES.columns), lambda name: tmp_path / name)


INVALID_ARRAYS = [
    {"key": None},
    {"column/age": None},
    {"key": np.array([3, 1, 5])},
    {"at": np.array([1, 2])},
    {"at": np.array([1.0, 2.0, 3.0])},
    {"column/age": np.array([1.0, 2.0, 3.0])},
    {"column/last": np.array([[1, 2]] * 3)},
    {"column/home": np.array([b"a", b"b", b"c"])},
]


def test_a_file_that_is_not_what_its_view_says_is_refused(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for changes in INVALID_ARRAYS:
        with subtests.test(changes=changes):
            _, files = write_values(VIEW, VALUES, lambda name: tmp_path / name)
            (path,) = files.values()
            with np.load(path) as stored:
                arrays = {name: value for name, value in {**stored, **changes}.items() if value is not None}
            stream = io.BytesIO()
            np.savez(stream, **arrays)
            with pytest.raises(Unavailable, match=r"^the part"):
                read_values(stream.getvalue(), VIEW, "the part")


def test_a_damaged_file_is_refused(subtests: pytest.Subtests) -> None:
    for content in (b"", b"not a zip", b"PK\x03\x04"):
        with subtests.test(content=content), pytest.raises(Unavailable, match=r"^the part: cannot be read"):
            read_values(content, VIEW, "the part")


def test_a_part_that_was_damaged_anywhere_is_refused_or_reads_the_same(tmp_path: Path) -> None:
    _, files = write_values(VIEW, VALUES, lambda name: tmp_path / name)
    (path,) = files.values()
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        damaged = content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]
        try:
            read = read_values(damaged, VIEW, "the part")
        except Unavailable:
            continue
        assert {row.key: dict(row.values) for row in (read.row(n, VIEW.columns) for n in range(3))} == ROWS


def test_a_pickle_is_never_loaded() -> None:
    stream = io.BytesIO()
    np.savez(stream, key=np.array([{}], dtype=object), at=np.array([1]))
    with pytest.raises(Unavailable, match=r"^the part: cannot be read"):
        read_values(stream.getvalue(), VIEW, "the part")
