"""TFRecord, read and written: rows come back as they were, and no damage goes unnoticed."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from pipelines.data.tfrecord import reader, writer
from pipelines.data.tfrecord.framing import masked_crc, records, write_records
from pipelines.data.tfrecord.layout import beside, read_layout
from pipelines.data.tfrecord.reader import scan_tfrecord
from pipelines.data.tfrecord.writer import write_tfrecord
from shared.domain.errors import BadData, Invalid

WAYS: list[dict[str, Any]] = [{}, {"grouped": True}, {"batch": 7}, {"batch": 7, "grouped": True}, {"batch": 4096, "grouped": True}]


def frame(rows: int = 300) -> pl.DataFrame:
    n = range(rows)
    return pl.DataFrame(
        {
            "user": pl.Series([2**63 - 1 if k == 3 else -(2**63) if k == 4 else k for k in n], dtype=pl.Int64),
            "small": pl.Series([k % 200 - 100 for k in n], dtype=pl.Int8),
            "good": [k % 3 == 0 for k in n],
            "rating": [k % 10 / 2 for k in n],
            "short": pl.Series([k / 3 for k in n], dtype=pl.Float32),
            "maybe": pl.Series([None if k % 4 else k for k in n], dtype=pl.Int64),
            "wild": [float("nan") if k % 5 == 0 else -math.inf if k % 5 == 1 else None if k % 5 == 2 else 0.5 for k in n],
            "title": [None if k % 7 == 0 else "" if k % 7 == 1 else f"ünï 🦅 {k}" for k in n],
            "genres": [None if k % 5 == 0 else [f"g{j}" for j in range(k % 4)] for k in n],
            "seen": pl.Series([list(range(k % 6)) for k in n], dtype=pl.List(pl.Int64)),
            "born": pl.Series([None if k % 9 == 0 else date(1950 + k % 60, 1, 31) for k in n]),
            "at": pl.Series([datetime(2026, 1, 1, 12, 0, 0, k, UTC) for k in n]),
        }
    )


def back(path: Path, scratch: Path) -> pl.DataFrame:
    return scan_tfrecord([path], scratch, path.name).collect()


@pytest.mark.requirement("G-28")
def test_what_was_written_is_read_as_it_was(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for way, ending in product(WAYS, [".tfrecord", ".tfrecord.gz"]):
        with subtests.test(way=way, ending=ending):
            path = tmp_path / f"x{ending}"
            write_tfrecord(frame().lazy(), path, {"user": "u", "genres": "g"}, **way)
            assert_frame_equal(back(path, tmp_path / "s"), frame())


@pytest.mark.requirement("G-28")
def test_more_rows_than_a_chunk_keep_their_order(subtests: pytest.Subtests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reader, writer):
        monkeypatch.setattr(module, "CHUNK", 1_000)
    for way in WAYS[:3]:
        with subtests.test(way=way):
            long = frame(2_500).select("user", "rating", "title")
            write_tfrecord(long.lazy(), tmp_path / "x.tfrecord", {}, **way)
            assert_frame_equal(back(tmp_path / "x.tfrecord", tmp_path / "s"), long)
            first = (tmp_path / "x.tfrecord").read_bytes()
            write_tfrecord(long.lazy(), tmp_path / "x.tfrecord", {}, **way)
            assert (tmp_path / "x.tfrecord").read_bytes() == first


@pytest.mark.requirement("G-28")
@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.floats(width=32, allow_nan=False),
            st.none() | st.text(),
            st.none() | st.lists(st.text(), max_size=4),
        ),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from(WAYS),
)
def test_any_rows_come_back(tmp_path_factory: pytest.TempPathFactory, rows: list[Any], way: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("any")
    schema = {"a": pl.Int64, "b": pl.Float64, "c": pl.String, "d": pl.List(pl.String)}
    wanted = pl.DataFrame(rows, schema=schema, orient="row")
    write_tfrecord(wanted.lazy(), folder / "x.tfrecord", {"b": "r"}, **way)
    assert_frame_equal(back(folder / "x.tfrecord", folder / "s"), wanted)


def test_no_byte_of_a_file_can_change_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    write_records([b"one", b"", b"three" * 60], path)
    whole = path.read_bytes()
    assert list(records(path)) == [b"one", b"", b"three" * 60]
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        with pytest.raises(BadData, match=r"record [123]"):
            list(records(path))


def test_a_file_that_was_cut_off_is_told_by_its_record(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    write_records([b"one", b"two!"], path)
    whole = path.read_bytes()
    for size in set(range(1, len(whole))) - {19}:
        path.write_bytes(whole[:size])
        with pytest.raises(BadData, match=f"ends in the middle of record {1 if size < 19 else 2}; it is truncated"):
            list(records(path))


def test_the_stored_checksum_is_that_of_the_format() -> None:
    """The masked CRC-32C of `123456789`, whose CRC is 0xE3069283 in the tables of Castagnoli's polynomial."""
    assert masked_crc(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17) & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


UNSUITABLE: list[tuple[pl.DataFrame, str]] = [
    (pl.DataFrame({"a": [0.1]}), "column 'a' has fractions that float32 cannot hold exactly; round them, or set --narrow"),
    (pl.DataFrame({"a": [[1, None]]}), "column 'a' has nulls in lists"),
    (pl.DataFrame({"a": [{"b": 1}]}), "column 'a' is Struct.* which TFRecord cannot hold"),
]


def test_what_no_feature_holds_is_refused_and_nothing_written(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, (bad, said) in enumerate(UNSUITABLE):
        with subtests.test(said=said):
            folder = tmp_path / str(number)
            folder.mkdir()
            with pytest.raises(BadData, match=said):
                write_tfrecord(bad.lazy(), folder / "x.tfrecord", {})
            assert list(folder.iterdir()) == []
            with pytest.raises(BadData, match="--short: unknown column 'z'; columns: "):
                write_tfrecord(frame(3).lazy(), folder / "x.tfrecord", {"z": "y"})


def test_a_column_that_is_called_as_a_group_needs_another_short_name(tmp_path: Path) -> None:
    some = pl.LazyFrame({"i": [1, None], "n": [1, 2]})
    with pytest.raises(Invalid, match="two columns have the feature 'i'; give one another short name") as caught:
        write_tfrecord(some, tmp_path / "x.tfrecord", {}, grouped=True)
    assert "\n" not in str(caught.value)
    write_tfrecord(some, tmp_path / "x.tfrecord", {"i": "maybe"}, grouped=True)
    assert_frame_equal(back(tmp_path / "x.tfrecord", tmp_path / "s"), some.collect())


def test_fractions_may_be_allowed_to_lose_digits(tmp_path: Path) -> None:
    write_tfrecord(pl.LazyFrame({"a": [0.1]}), tmp_path / "x.tfrecord", {}, narrow=True)
    assert back(tmp_path / "x.tfrecord", tmp_path / "s")["a"][0] == pytest.approx(0.1, rel=1e-7)


LAYOUTS: list[tuple[str, str]] = [
    ('{"columns": [{"name": "user", "short": "v", "type": "int64"}]}', "record 1, feature 'v': missing"),
    ('{"columns": [{"name": "user", "short": "u", "type": "text"}]}', "record 1, feature 'u': is int64_list, but the layout says"),
    ('{"columns": [{"name": "user", "short": "u", "type": "complex"}]}', "'user': unknown type 'complex'"),
    ('{"columns": [{"name": "a", "short": "u", "type": "int64"}, {"name": "b", "short": "u", "type": "int64"}]}', "the feature 'u'"),
    ('{"columns": [{"name": "user", "short": "u", "type": "int8"}]}', "values do not fit the layout"),
    ('{"columns": []}', "columns"),
    ('{"rows": 1}', "unknown field 'rows'"),
    ("nothing", "layout.json"),
]


def test_a_layout_that_does_not_fit_is_refused_in_one_line(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, (layout, said) in enumerate(LAYOUTS):
        with subtests.test(layout=layout):
            folder = tmp_path / str(number)
            folder.mkdir()
            path = folder / "x.tfrecord"
            write_tfrecord(frame(1000).select("user").lazy(), path, {"user": "u"})
            assert read_layout(path) is not None
            beside(path).write_text(layout)
            with pytest.raises(Invalid, match=said) as caught:
                back(path, folder / "s")
            assert "\n" not in str(caught.value)


def test_what_is_no_tfrecord_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_text("userId,movieId\n1,2\n3,4\n")
    with pytest.raises(BadData, match="record 1 at byte 0: not a TFRecord file"):
        back(path, tmp_path / "s")
    write_records([b"\xff\xff\xff"], path)
    with pytest.raises(BadData, match=r"record 1 is not a tf\.train\.Example"):
        back(path, tmp_path / "s")
