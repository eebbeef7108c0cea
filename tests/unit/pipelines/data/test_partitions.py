"""Folders with sub-folders `key=value`: the keys are columns of the rows below."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import polars as pl
import pyarrow.dataset as ds
import pytest
from polars.testing import assert_frame_equal

from pipelines.data.ids import text_of, with_kinds
from pipelines.data.interactions import open_interactions
from pipelines.data.sources import ReadableRoots
from pipelines.data.tools import describe
from pipelines.data.validation.command import validate
from shared.contracts.sources import Place
from shared.datafiles import DataFiles
from shared.domain.errors import BadData
from tests.unit.pipelines.data.test_delta_tables import opened, refusal
from tests.unit.pipelines.recommender import ratings, spec

ROWS = pl.DataFrame(
    {
        "userId": range(8),
        "day": [date(2024, 1, 1), date(2024, 1, 2), None, date(2024, 1, 1)] * 2,
        "place": ["a b", "x/y%=z", None, "ünï"] * 2,
        "month": [1, 2, 12, 1] * 2,
    }
)


def write(folder: Path, **files: pl.DataFrame) -> None:
    for name, rows in files.items():
        path = folder / "days" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows.write_parquet(path)


@pytest.mark.requirement("G-29")
@pytest.mark.parametrize("uri", ["days", "days/**/*.parquet", "days/day=*/*/*/*.parquet"])
def test_partitions_that_polars_wrote_are_columns(uri: str, tmp_path: Path) -> None:
    ROWS.write_parquet(pl.PartitionBy(tmp_path / "days", key=["day", "place", "month"]), mkdir=True)
    rows = opened(tmp_path, uri).frame.collect()
    assert_frame_equal(rows, ROWS, check_row_order=False, check_column_order=False)
    library = pl.scan_parquet(tmp_path / "days", hive_partitioning=True, try_parse_hive_dates=True).collect()
    assert_frame_equal(rows, library, check_row_order=False, check_column_order=False)


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_partitions_that_pyarrow_wrote_are_columns(format: str, tmp_path: Path) -> None:
    ds.write_dataset(ROWS.to_arrow(), tmp_path / "days", format=format, partitioning=["day", "place", "month"], partitioning_flavor="hive")
    assert_frame_equal(opened(tmp_path, "days").frame.collect(), ROWS, check_row_order=False, check_column_order=False)


def test_types_of_partitions_keep_every_value(tmp_path: Path) -> None:
    cases: dict[str, tuple[list[str], pl.DataType, list[object]]] = {
        "month": (["01", "12"], pl.Int64(), [1, 12]),
        "code": (["1", "01"], pl.String(), ["1", "01"]),
        "wide": (["1", str(2**63)], pl.String(), ["1", str(2**63)]),
        "day": (["2024-02-29", "__HIVE_DEFAULT_PARTITION__"], pl.Date(), [date(2024, 2, 29), None]),
        "odd": (["2024-02-30", "2024-02-01"], pl.String(), ["2024-02-30", "2024-02-01"]),
        "text": (["a%2Fb", "50%25"], pl.String(), ["a/b", "50%"]),
        "_hidden": (["1", "2"], pl.Int64(), [1, 2]),
    }
    for name, (folders, dtype, values) in cases.items():
        for number, folder in enumerate(folders):
            write(tmp_path / name, **{f"{name}={folder}/rows.parquet": pl.DataFrame({"number": [number]})})
        rows = opened(tmp_path, f"{name}/days").frame.collect().sort("number")
        assert (rows.schema[name], rows[name].to_list()) == (dtype, values)


def test_a_column_that_is_in_the_files_too_must_agree(tmp_path: Path) -> None:
    day = pl.DataFrame({"userId": [1, 2], "day": [date(2024, 1, 1)] * 2})
    write(tmp_path, **{"day=2024-01-01/a.parquet": day, "day=2024-01-02/b.parquet": day.with_columns(day=date(2024, 1, 2))})
    assert opened(tmp_path, "days").frame.collect()["day"].to_list() == [date(2024, 1, 1)] * 2 + [date(2024, 1, 2)] * 2
    write(tmp_path, **{"day=2024-01-02/b.parquet": day})
    message = "days: column 'day' is 2024-01-01 in b.parquet, but 2024-01-02 in the name of its folder"
    assert refusal(tmp_path, BadData, "days") == message


def test_files_of_different_partitions_are_refused(tmp_path: Path) -> None:
    rows = pl.DataFrame({"userId": [1]})
    write(tmp_path, **{"day=1/a.parquet": rows, "b.parquet": rows})
    assert "have different partition columns: none and day" in refusal(tmp_path, BadData, "days")


def test_a_file_in_another_partition_changes_the_digest(tmp_path: Path) -> None:
    rows = pl.DataFrame({"userId": [1]})
    write(tmp_path, **{"day=1/a.parquet": rows})
    before = opened(tmp_path, "days").digest()
    (tmp_path / "days/day=1").rename(tmp_path / "days/day=2")
    assert opened(tmp_path, "days").digest() != before
    (tmp_path / "days/day=2").rename(tmp_path / "days/day=1")
    assert opened(tmp_path, "days").digest() == before


def test_a_partition_is_not_lost_above_the_folder(tmp_path: Path) -> None:
    write(tmp_path, **{"year=2024/day=1/a.parquet": pl.DataFrame({"userId": [1]})})
    assert opened(tmp_path, "days/year=2024").frame.collect().columns == ["userId", "day"]
    assert opened(tmp_path, "days/year=2024/day=1/a.parquet").frame.collect().columns == ["userId"]


def test_text_ids_and_attributes_can_be_partitions(tmp_path: Path) -> None:
    for user in ("007", "8", "u%201"):
        (tmp_path / "days" / f"userId={user}").mkdir(parents=True)
        (tmp_path / "days" / f"userId={user}" / "rows.csv").write_text("movieId,rating,at\n1,5,7\n2,4,8\n")
    assert DataFiles([str(tmp_path)]).header(Place(uri="days")) == ("movieId", "rating", "at", "userId")
    recommender = spec(tmp_path, data={"interactions": {"uri": "days"}, "items": {"uri": "films.csv", "key": "movieId"}})
    reach = with_kinds(recommender, ReadableRoots((str(tmp_path),), tmp_path / "scratch"))
    assert (reach.kinds.user, reach.kinds.item) == ("text", "integer")
    rows = open_interactions(recommender, reach).frame.collect()
    assert set(rows[text_of("userId")]) == {"007", "8", "u 1"}


def test_tools_read_partitions_and_tables(tmp_path: Path) -> None:
    rows = ratings(200).with_columns(day=pl.from_epoch(pl.col("at").cast(pl.Int64)).dt.date())
    rows.write_parquet(pl.PartitionBy(tmp_path / "days", key="day"), mkdir=True)
    rows.write_delta(tmp_path / "table")
    rows.head(100).write_delta(tmp_path / "table", mode="overwrite")
    for uri, count in (("days", 200), ("table", 100)):
        description = describe({"uri": str(tmp_path / uri), "top": 3})
        assert (description.rows, {column.name for column in description.columns}) == (count, set(rows.columns))
        report = validate({"source": str(tmp_path / uri), "positive": ">= 4", "roots": ["/"]}).report
        assert report.rows.read == count
