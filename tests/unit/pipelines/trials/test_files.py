"""Files of who met what, in the layouts that people have them in."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from pipelines.trials.files import PairFile, read_negatives, read_pairs
from pipelines.trials.id_map import UNKNOWN, IdMap
from shared.domain.errors import EyasError

ROWS = pl.DataFrame({"user": [3, 1, 1], "item": [10, 20, 10], "time": [9.0, 8.0, 7.5], "label": [5.0, 3.0, 4.5]})


def reading(folder: Path, text: str, name: str = "a.txt") -> PairFile:
    (folder / name).write_text(text, encoding="utf-8")
    return read_pairs(folder / name)


LAYOUTS: list[tuple[str, str]] = [
    ("ncf.rating", "3\t10\t5\t9\n1\t20\t3\t8\n1\t10\t4.5\t7.5\n"),
    ("plain.csv", "3,10,5,9\n1,20,3,8\n1,10,4.5,7.5\n"),
    ("spaces.csv", "3, 10, 5, 9\n1, 20, 3, 8\n1, 10, 4.5, 7.5\n"),
    ("named.csv", "userId,movieId,rating,timestamp\n3,10,5,9\n1,20,3,8\n1,10,4.5,7.5\n"),
    ("turned.tsv", "rating\tat\titem\tuser\n5\t9\t10\t3\n3\t8\t20\t1\n4.5\t7.5\t10\t1\n"),
    ("ml.dat", "3::10::5::9\n1::20::3::8\n1::10::4.5::7.5\n"),
    ("ml.inter", "user_id:token\titem_id:token\trating:float\ttimestamp:float\n3\t10\t5\t9\n1\t20\t3\t8\n1\t10\t4.5\t7.5\n"),
]


@pytest.mark.requirement("N-03")
def test_every_layout_says_the_same(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for name, text in LAYOUTS:
        with subtests.test(name=name):
            found = reading(tmp_path, text, name)
            assert found.has_times
            assert_frame_equal(found.frame.select("user", "item", "time", "label"), ROWS)


def test_parquet_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    ROWS.rename({"item": "sku", "time": "ts"}).with_columns(movie_title=pl.lit("x")).write_parquet(tmp_path / "a.parquet")
    assert_frame_equal(read_pairs(tmp_path / "a.parquet").frame.select("user", "item", "time", "label"), ROWS)
    pl.DataFrame({"user": [0, 1], "item": [5, 6], "movie_id": [1, 2]}).write_parquet(tmp_path / "b.parquet")
    assert read_pairs(tmp_path / "b.parquet").frame["item"].to_list() == [5, 6]


def test_times_are_taken_as_text_too(tmp_path: Path) -> None:
    found = reading(tmp_path, "user,item,time\n1,2,1970-01-02T00:00:01\n1,3,1970-01-01\n")
    assert found.frame["time"].to_list() == [86401.0, 0.0]


def test_ids_are_numbers_or_text(tmp_path: Path) -> None:
    assert reading(tmp_path, "u,i\n1,2\n3,4\n").frame["user"].to_list() == [1, 3]
    assert reading(tmp_path, "ann,x\nbob,y\n").frame["user"].to_list() == ["ann", "bob"]
    assert reading(tmp_path, "user,item\n007,x\n7,y\n").frame["user"].to_list() == ["007", "7"]
    assert reading(tmp_path, "1,2\n").frame.columns == ["user", "item"]
    pl.DataFrame({"user": [1.0, 2.0], "item": ["a", "b"]}).write_parquet(tmp_path / "f.parquet")
    assert read_pairs(tmp_path / "f.parquet").frame["user"].to_list() == [1, 2]


UNREADABLE: list[tuple[str, str]] = [
    ("", "no rows"),
    ("user,item\n", "no rows"),
    ("1 2\n", "line 1 has no tab, comma or '::' between a user and an item: '1 2'"),
    ("1,2\n,3\n", "1 rows have no user; the first is row 2"),
    ("user,user,item\n1,2,3\n", "the header has a name twice"),
    ("user,item,time\n1,2,x\n", "column 'time' has 1 rows without a time"),
    ("user,item,time\n1,2,nan\n3,4,inf\n5,6,7\n", "column 'time' has 2 rows without a time"),
    ("1,2\n1,2,3\n", "cannot be read"),
    ("\ufffd".encode("utf-16").decode("latin-1") + "\n", "line 1 has no tab"),
]


def test_what_cannot_be_read_is_one_line_with_the_file(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for text, said in UNREADABLE:
        with subtests.test(msg=said, text=text):
            with pytest.raises(EyasError) as caught:
                reading(tmp_path, text)
            assert said in str(caught.value)
            assert str(tmp_path / "a.txt") in str(caught.value)
            assert "\n" not in str(caught.value)


def test_what_is_not_there_or_no_text_is_said(tmp_path: Path) -> None:
    with pytest.raises(EyasError, match=r"none\.csv: file not found"):
        read_pairs(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe1,2\n")
    with pytest.raises(EyasError, match="not UTF-8 text"):
        read_pairs(tmp_path / "b.csv")
    pl.DataFrame({"user": [1.5], "item": [2]}).write_parquet(tmp_path / "c.parquet")
    with pytest.raises(EyasError, match="column 'user' has fractions or missing values"):
        read_pairs(tmp_path / "c.parquet")
    pl.DataFrame({"user": [1], "item": [None]}, schema={"user": pl.Int64, "item": pl.Int64}).write_parquet(tmp_path / "d.parquet")
    with pytest.raises(EyasError, match="1 rows have no item"):
        read_pairs(tmp_path / "d.parquet")


@pytest.mark.requirement("N-03")
@pytest.mark.parametrize(
    "text", ["(3,10)\t1\t2\t7\n(1,20)\t4\t5\t6\n", '"(3,10)",1,2,7\n"(1,20)",4,5,6\n', "(3, 10)\t1\t2\t7\t\n\n(1, 20) 4 5 6\n"]
)
def test_negatives_are_lines_of_a_pair_and_what_it_is_ranked_among(tmp_path: Path, text: str) -> None:
    (tmp_path / "n.negative").write_text(text)
    wanted = pl.DataFrame({"user": [3, 1], "item": [10, 20], "negatives": [[1, 2, 7], [4, 5, 6]]})
    assert_frame_equal(read_negatives(tmp_path / "n.negative").frame, wanted)


def test_negatives_may_be_parquet_and_text(tmp_path: Path) -> None:
    wanted = pl.DataFrame({"user": [3, 1], "item": [10, 20], "negatives": [[1, 2], [4, 5]]})
    wanted.write_parquet(tmp_path / "a.parquet")
    assert_frame_equal(read_negatives(tmp_path / "a.parquet").frame, wanted)
    pl.DataFrame({"user": [3, 1], "item": [10, 20], "n0": [1, 4], "n1": [2, 5]}).write_parquet(tmp_path / "b.parquet")
    assert_frame_equal(read_negatives(tmp_path / "b.parquet").frame, wanted)
    (tmp_path / "c").write_text("(ann,x)\ty\tz\n")
    assert read_negatives(tmp_path / "c").frame.row(0) == ("ann", "x", ["y", "z"])


@pytest.mark.parametrize(
    ("text", "said"), [("(1,2)\t3\n1,2,3\n", r"line 2: expected \(user,item\) followed by negatives, got '1,2,3'"), ("", "no rows")]
)
def test_a_line_that_is_none_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "n").write_text(text)
    with pytest.raises(EyasError, match=said):
        read_negatives(tmp_path / "n")


@given(st.lists(st.one_of(st.integers(-3, 9), st.text("ab", max_size=2)), min_size=1, max_size=20))
def test_a_numbering_gives_each_id_a_place_of_its_own(ids: list[int | str]) -> None:
    text = pl.Series([str(one) for one in ids])
    numbering = IdMap.of(text)
    places = numbering.places(text)
    assert numbering.ids[places].to_list() == text.to_list()
    assert sorted(set(places.tolist())) == list(range(len(numbering)))
    assert numbering.places(pl.Series(["zzz"])).tolist() == [UNKNOWN]


def test_numbers_are_found_among_text() -> None:
    assert IdMap.of(pl.Series(["7", "x"])).places(pl.Series([7, 8])).tolist() == [0, UNKNOWN]
    assert IdMap.of(pl.Series([8, 7])).places(pl.Series(["7", "07"])).tolist() == [0, UNKNOWN]
