"""Every bad input is refused in one line that names the file and the column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.data.times import iso_time
from shared.domain.errors import BadData, Invalid, Unsupported
from tests.support.etl_stage import Etl
from tests.unit.pipelines.recommender import films, ratings, spec, write

WITH_NULL = pl.when(pl.int_range(pl.len()) % 10 == 7).then(None)
WITH_INF = pl.when(pl.int_range(pl.len()) % 10 == 7).then(-float("inf"))
HUGE = f"{2**63 + 1}, which does not fit int64"
WITH_NAN = pl.when(pl.int_range(pl.len()) % 10 == 7).then(float("nan"))

FAULTS: dict[str, tuple[pl.DataFrame, str]] = {
    "one user": (ratings().with_columns(userId=1), "ratings.parquet: column 'userId' has only one value"),
    "one item": (ratings().with_columns(movieId=1), "ratings.parquet: column 'movieId' has only one value"),
    "nothing liked": (ratings().with_columns(rating=1.0), "column 'rating' has no positive"),
    "everything liked": (ratings().with_columns(rating=5.0), "column 'rating' makes every row a positive"),
    "null users": (ratings().with_columns(userId=WITH_NULL.otherwise("userId")), "column 'userId' has 20 nulls or NaN"),
    "NaN users": (ratings().with_columns(userId=WITH_NAN.otherwise("userId")), "column 'userId' is Float64; ids must be integers or text"),
    "null items": (ratings().with_columns(movieId=WITH_NULL.otherwise("movieId")), "column 'movieId' has 20 nulls or NaN"),
    "null times": (ratings().with_columns(at=WITH_NULL.otherwise("at")), "column 'at' has 20 nulls or NaN"),
    "NaN labels": (ratings().with_columns(rating=WITH_NAN.otherwise("rating")), "column 'rating' has 20 nulls or NaN"),
    "huge keys": (
        ratings().with_columns(userId=pl.lit(2**63, dtype=pl.UInt64) + pl.col("userId")),
        f"ratings.parquet: column 'userId' has {HUGE}",
    ),
    "huge items": (
        ratings().with_columns(movieId=pl.lit(2**63, dtype=pl.UInt64)),
        "column 'movieId' has 9223372036854775808, which does not fit int64",
    ),
    "truth values as keys": (ratings().with_columns(pl.col("userId") > 9), "'userId' is Boolean; ids must be integers or text"),
    "fractional keys": (ratings().with_columns(pl.col("userId").cast(pl.Float64)), "'userId' is Float64; ids must be integers or text"),
    "text times": (ratings().with_columns(at=pl.lit("noon")), "column 'at' has 'noon', which is not an ISO 8601 time; write it as"),
    "times from always": (ratings().with_columns(at=WITH_INF.otherwise("at")), "column 'at' has 20 infinite values"),
    "endless labels": (ratings().with_columns(rating=WITH_INF.otherwise("rating")), "column 'rating' has 20 infinite values"),
    "milliseconds": (ratings().with_columns(pl.col("at") * 1000), "column 'at' goes up to 1.6e\\+12, not in seconds"),
    "text labels": (ratings().with_columns(rating=pl.lit("good")), "column 'rating' is String; the label must be a number"),
    "few rows": (ratings(10), "10 usable interactions are too few"),
    "no rows": (ratings(0), "ratings.parquet: header without rows"),
    "one moment": (ratings().with_columns(at=1.0), "split.test leaves no rows for train"),
    "a missing column": (ratings().drop("at"), "ratings.parquet: column 'at' is missing; columns: userId"),
    "strange items": (ratings().with_columns(pl.col("movieId") + 999), "no item is in the items table films.parquet"),
}

TABLES: dict[str, tuple[pl.DataFrame, str]] = {
    "doubled keys": (pl.concat([films(), films(2)]), "films.parquet: 2 rows repeat an earlier row's movieId, such as 1"),
    "huge keys": (
        films().with_columns(movieId=pl.lit(2**63, dtype=pl.UInt64) + pl.col("movieId")),
        f"films.parquet: column 'movieId' has {HUGE}",
    ),
    "huge years": (films().with_columns(year=pl.lit(2**63 + 1, dtype=pl.UInt64)), f"films.parquet: column 'year' has {HUGE}"),
    "null keys": (films().with_columns(movieId=WITH_NULL.otherwise("movieId")), "films.parquet: column 'movieId' has 2 nulls"),
    "no key": (films().rename({"movieId": "id"}), "films.parquet: column 'movieId' is missing"),
    "a feature missing": (
        films().drop("year"),
        "features: column 'year' is neither a key nor in ratings.parquet or the items table .*films.parquet; available columns: at, genres",
    ),
    "a fractional feature": (films().with_columns(pl.col("year").cast(pl.Float64)), "column 'year' is Float64: categorify takes"),
}


def test_interactions_with_a_fault_are_refused(subtests: pytest.Subtests, tmp_path: Path, etl: Etl) -> None:
    for fault, (frame, message) in FAULTS.items():
        with subtests.test(fault=fault):
            write(tmp_path, frame)
            with pytest.raises(BadData, match=message):
                etl(spec(tmp_path))


def test_an_items_table_with_a_fault_is_refused(subtests: pytest.Subtests, tmp_path: Path, etl: Etl) -> None:
    for fault, (frame, message) in TABLES.items():
        with subtests.test(fault=fault):
            write(tmp_path, items=frame)
            with pytest.raises(Invalid, match=message):
                etl(spec(tmp_path))


def _with_uri(folder: Path, uri: str) -> Any:
    items = {"uri": str(folder / "films.parquet"), "key": "movieId"}
    return spec(folder, data={"interactions": {"uri": uri}, "items": items})


UNREADABLE: list[tuple[str, bytes | None, str]] = [
    ("missing.parquet", None, "missing.parquet: file not found"),
    ("empty.parquet", b"", "empty.parquet: the file is empty"),
    ("empty.csv", b"", "empty.csv: the file is empty"),
    ("broken.parquet", b"PAR1 not really PAR1", "broken.parquet: cannot be read"),
    (
        "ragged.csv",
        b"userId,movieId,rating,at\n1,2,3,4\n1,2,3,4,5\n",
        "ragged.csv: cannot be read: rows have different lengths[^.]*set csv: {separator: ...} if another one is used$",
    ),
    ("none-*.parquet", None, "none-\\*.parquet: no file matches"),
]


def test_a_file_that_cannot_be_read_is_refused(subtests: pytest.Subtests, tmp_path: Path, etl: Etl) -> None:
    for name, content, message in UNREADABLE:
        with subtests.test(name=name):
            write(tmp_path)
            if content is not None:
                (tmp_path / name).write_bytes(content)
            with pytest.raises(BadData, match=message):
                etl(_with_uri(tmp_path, str(tmp_path / name)))


def test_nothing_outside_the_roots_is_read_and_whether_it_exists_is_not_told(tmp_path: Path, etl: Etl) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    write(inside)
    write(outside)
    (inside / "link.parquet").symlink_to(outside / "ratings.parquet")
    (inside / "folder").symlink_to(outside)
    uris = [
        str(outside / "ratings.parquet"),
        str(outside / "missing.parquet"),
        str(outside / "*.parquet"),
        str(inside / "link.parquet"),
        str(inside / "folder" / "*.parquet"),
        str(inside / "l*.parquet"),
        f"file://{outside}/ratings.parquet",
        f"{inside}/../outside/ratings.parquet",
        str(tmp_path / "inside-not" / "ratings.parquet"),
    ]
    for uri in uris:
        with pytest.raises(Invalid, match="not under an allowed data root") as caught:
            etl(_with_uri(inside, uri), roots=(str(inside),))
        assert not isinstance(caught.value, BadData), uri
        assert uri in str(caught.value) and str(inside) in str(caught.value)
    with pytest.raises(Invalid, match="a pattern cannot have"):
        etl(_with_uri(inside, f"{inside}/*/../../outside/*.parquet"), roots=(str(inside),))
    with pytest.raises(Invalid, match="none are set"):
        etl(spec(inside), roots=())


def test_sources_of_another_scheme_are_not_yet_supported(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path)
    with pytest.raises(Unsupported, match="'hdfs' are not yet supported"):
        etl(_with_uri(tmp_path, "hdfs://lake/ratings.parquet"))


def test_interactions_with_items_that_the_table_lacks_are_dropped_and_counted(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path, items=films(15))
    strange = ratings().filter(pl.col("movieId") > 15)
    assert etl(spec(tmp_path)).facts["rows"]["dropped"] == len(strange) > 0


SHAPES: list[str] = ["csv", "glob", "file uri", "datetime", "text in csv", "text in parquet", "text with zones"]


def test_the_same_interactions_in_another_shape_give_the_same_training_rows(subtests: pytest.Subtests, tmp_path: Path, etl: Etl) -> None:
    write(tmp_path)
    plain = pl.read_parquet(etl(spec(tmp_path)).files["train.parquet"])
    for shape in SHAPES:
        with subtests.test(shape=shape):
            uri = str(tmp_path / "ratings.parquet")
            if shape == "csv":
                uri = str(tmp_path / "ratings.csv")
                ratings().write_csv(uri)
            elif shape == "glob":
                ratings()[:90].write_parquet(tmp_path / "part-0.parquet")
                ratings()[90:].write_parquet(tmp_path / "part-1.parquet")
                uri = str(tmp_path / "part-*.parquet")
            elif shape == "file uri":
                uri = f"file://{uri}"
            elif shape.startswith("text"):
                zone = pl.lit("+05:30") if shape == "text with zones" else pl.lit("")
                moment = pl.from_epoch(pl.col("at").cast(pl.Int64) + (19_800 if shape == "text with zones" else 0))
                frame = ratings().with_columns(at=moment.dt.strftime("%Y-%m-%dT%H:%M:%S") + zone)
                if shape == "text in csv":
                    uri = str(tmp_path / "ratings.csv")
                    frame.write_csv(uri)
                else:
                    frame.write_parquet(uri)
            else:
                ratings().with_columns((pl.col("at") * 1e6).cast(pl.Int64).cast(pl.Datetime("us", "UTC"))).write_parquet(uri)
            assert plain.equals(pl.read_parquet(etl(_with_uri(tmp_path, uri)).files["train.parquet"]))


def test_a_date_in_csv_that_is_no_iso_8601_is_refused_and_not_guessed(subtests: pytest.Subtests, tmp_path: Path, etl: Etl) -> None:
    for written in ["%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y %H:%M", "%Y%m%dT%H%M%S"]:
        with subtests.test(written=written):
            write(tmp_path)
            moment = pl.from_epoch(pl.col("at").cast(pl.Int64))
            ratings().with_columns(at=moment.dt.strftime(written)).write_csv(tmp_path / "ratings.csv")
            with pytest.raises(
                BadData, match=r"ratings.csv: column 'at' has '.*', which is not an ISO 8601 time; write it as 2026-01-31T18:30:00Z"
            ):
                etl(_with_uri(tmp_path, str(tmp_path / "ratings.csv")))


TIMES: list[tuple[str, float | None]] = [
    ("1970-01-02", 86400.0),
    ("1970-01-01 01:00", 3600.0),
    ("1970-01-01T00:00:01.5Z", 1.5),
    ("1970-01-01T02:00:00+02", 0.0),
    ("1970-01-01 02:00:00 +0200", 0.0),
    ("1970-01-01T00:00:00-05:30", 19800.0),
    ("1970-13-01", None),
    ("01/02/1970", None),
    ("", None),
]


def test_iso_text_is_read_with_or_without_a_zone(subtests: pytest.Subtests) -> None:
    for text, seconds in TIMES:
        with subtests.test(text=text):
            found = pl.DataFrame({"t": [text]}).select(iso_time("t").dt.epoch("us") / 1e6).item()
            assert found == seconds
