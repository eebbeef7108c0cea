"""Iceberg tables that pyiceberg wrote: the rows of a snapshot, and refusals of what is not read right or lies outside the data roots."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from shared.datafiles import DataFiles
from shared.domain.errors import BadData, Invalid
from tests.support.etl_stage import Etl
from tests.unit.pipelines.data.test_delta_tables import opened, refusal
from tests.unit.pipelines.recommender import films, ratings, spec

ROWS = pl.DataFrame(
    {
        "userId": range(8),
        "day": [date(2024, 1, 1), date(2024, 1, 2), None, date(2024, 1, 1)] * 2,
        "place": ["a b", "x/y%=z", None, "ünï"] * 2,
        "tags": [["a"], [], None, ["b", "c"]] * 2,
    }
)


@contextmanager
def catalog(warehouse: Path | str, **settings: str) -> Iterator[SqlCatalog]:
    uri = f"file://{warehouse}" if isinstance(warehouse, Path) else warehouse
    catalog = SqlCatalog("test", uri="sqlite:///:memory:", warehouse=uri, **settings)
    catalog.create_namespace("lake")
    yield catalog
    catalog.engine.dispose()


def create(catalog: SqlCatalog, rows: pl.DataFrame, *keys: str) -> Table:
    table = catalog.create_table("lake.table", rows.to_arrow().schema)
    with table.update_spec() as change:
        for key in keys:
            change.add_identity(key)
    table.append(rows.to_arrow())
    return table


def assert_rows_of_library(folder: Path, table: Table, snapshot: int | None = None) -> None:
    rows = opened(folder, "lake/table", snapshot).frame.collect()
    expected = pl.DataFrame(table.scan(snapshot_id=snapshot).to_arrow())
    assert len(rows) > 0
    assert_frame_equal(rows, expected, check_row_order=False)


def metadata_of(table: Table) -> Path:
    return Path(table.metadata_location.removeprefix("file://"))


@pytest.mark.requirement("G-29")
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
def test_rows_of_a_snapshot_are_those_of_pyiceberg(tmp_path: Path, subtests: pytest.Subtests) -> None:
    with catalog(tmp_path) as made:
        table = create(made, ROWS, "day", "place")
        with table.update_schema() as change:
            change.rename_column("place", "where")
            change.add_column("count", LongType())
        table.append(ROWS.rename({"place": "where"}).with_columns(count=pl.col("userId") * 10).to_arrow())
        table.delete("userId = 3")
        with table.update_spec() as changed:
            changed.remove_field("place")
        table.append(ROWS.rename({"place": "where"}).with_columns(count=pl.lit(7, pl.Int64)).to_arrow())
        for snapshot in (None, *(entry.snapshot_id for entry in table.history())):
            with subtests.test(snapshot=snapshot):
                assert_rows_of_library(tmp_path, table, snapshot)
        rows = opened(tmp_path, "lake/table").frame
        with subtests.test("columns, a filter, a count and a limit"):
            assert rows.filter(pl.col("userId") == 4).select("count").collect().to_series().sort().to_list() == [None, 7, 40]
            assert rows.select(pl.len()).collect(engine="streaming").item() == len(rows.collect())
            assert len(rows.head(3).collect()) == 3
        with subtests.test("the table at another place than its files' names say"):
            shutil.copytree(tmp_path / "lake", tmp_path / "copy")
            shutil.rmtree(tmp_path / "lake/table/data")
            assert "file not found; was it vacuumed or expired?" in refusal(tmp_path, BadData, "copy/table")
        with subtests.test("an unknown snapshot"):
            newest = table.metadata.current_snapshot_id
            message = f"lake/table: snapshot 5 is not in the Iceberg table; its newest snapshot is {newest}"
            assert refusal(tmp_path, BadData, "lake/table", 5) == message


def delete_file(folder: Path, table: Table, content: DataFileContent, rows: pl.DataFrame) -> None:
    """Adds a file of deletes, which pyiceberg reads but does not write."""
    path = folder / f"deletes-{content.value}.parquet"
    rows.write_parquet(path)
    file = DataFile.from_args(
        content=content,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(rows),
        file_size_in_bytes=path.stat().st_size,
        equality_ids=[1] if content == DataFileContent.EQUALITY_DELETES else None,
    )
    file.spec_id = table.spec().spec_id
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        snapshot.append_data_file(file)


def test_position_deletes_delete_rows_and_equality_deletes_are_refused(tmp_path: Path) -> None:
    with catalog(tmp_path) as made:
        table = create(made, ROWS)
        path = next(iter(table.scan().plan_files())).file.file_path
        delete_file(tmp_path, table, DataFileContent.POSITION_DELETES, pl.DataFrame({"file_path": [path] * 2, "pos": [0, 5]}))
        assert opened(tmp_path, "lake/table").frame.select("userId").collect().to_series().to_list() == [1, 2, 3, 4, 6, 7]
        assert_rows_of_library(tmp_path, table)
        delete_file(tmp_path, table, DataFileContent.EQUALITY_DELETES, pl.DataFrame({"userId": [1]}))
        assert "does not yet support equality deletes" in refusal(tmp_path, BadData, "lake/table")


@pytest.mark.requirement("G-29")
def test_etl_reads_only_the_rows_of_the_snapshot(tmp_path: Path, etl: Etl) -> None:
    films().write_parquet(tmp_path / "films.parquet")
    data = {"interactions": {"uri": "lake/table"}, "items": {"uri": "films.parquet", "key": "movieId"}}
    files = DataFiles([str(tmp_path)])
    with catalog(tmp_path) as made:
        table = create(made, ratings(1000))
        first, mark = table.metadata.current_snapshot_id, files.fingerprint("lake/table")
        table.overwrite(ratings(300).to_arrow())
        assert files.fingerprint("lake/table") != mark
        outcome = etl(spec(tmp_path, data=data))
        assert outcome.facts["rows"]["file"] == 300
        assert outcome.facts["versions"] == {"interactions": f"Iceberg snapshot {table.metadata.current_snapshot_id}"}
    data["interactions"]["version"] = first  # type: ignore[assignment]
    before = etl(spec(tmp_path, data=data))
    assert before.facts["rows"]["file"] == 1000
    assert before.facts["snapshot"] != outcome.facts["snapshot"]
    assert files.fingerprint("lake/table", version=first) == {f"lake/table (Iceberg snapshot {first})": "set by the spec"}


def replace_text(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.requirement("G-11")
def test_every_file_of_a_table_is_checked_against_the_data_roots(tmp_path: Path, subtests: pytest.Subtests) -> None:
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    roots = (str(allowed),)
    with catalog(outside) as made:
        table = create(made, ROWS)
        shutil.copytree(outside / "lake", allowed / "lake")
        path = allowed / metadata_of(table).relative_to(outside)
        with subtests.test("manifests outside"):
            assert "not under an allowed data root" in refusal(allowed, Invalid, "lake/table", roots=roots)
        for other in (f"{allowed}/../outside", "s3://lake"):
            with subtests.test("manifests outside", other=other):
                shutil.copy(metadata_of(table), path)
                replace_text(path, f"file://{outside}/lake", f"{other}/lake")
                assert "not under an allowed data root" in refusal(allowed, Invalid, "lake/table", roots=roots)
        with subtests.test("data files outside, by absolute paths in manifests inside"):
            shutil.copy(metadata_of(table), path)
            (list_name,) = (snapshot.manifest_list.rsplit("/", 1)[-1] for snapshot in table.snapshots())
            replace_text(path, f"file://{outside}/lake/table/metadata/{list_name}", f"file://{allowed}/lake/table/metadata/{list_name}")
            assert "not under an allowed data root" in refusal(allowed, Invalid, "lake/table", roots=roots)
        with subtests.test("links to data files outside"):
            shutil.rmtree(allowed)
            with catalog(allowed) as inside:
                create(inside, ROWS)
            data = next((allowed / "lake/table/data").iterdir())
            shutil.move(data, outside / "data.parquet")
            data.symlink_to(outside / "data.parquet")
            assert "not under an allowed data root" in refusal(allowed, Invalid, "lake/table", roots=roots)


def test_a_table_cannot_choose_the_code_that_opens_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the table's own FileIO was used")

    with catalog(tmp_path) as made:
        table = create(made, ROWS)
        path = metadata_of(table)
        metadata = json.loads(path.read_text())
        path.write_text(json.dumps(metadata | {"properties": {"py-io-impl": "tests.no_such_module.FileIO"}}))
        monkeypatch.setattr(PyArrowFileIO, "new_input", refuse)
        assert len(opened(tmp_path, "lake/table").frame.collect()) == len(ROWS)


def test_the_newest_metadata_is_that_of_the_hint_or_of_the_highest_number(tmp_path: Path, subtests: pytest.Subtests) -> None:
    with catalog(tmp_path) as made:
        table = create(made, ROWS)
        first = metadata_of(table)
        table.append(ROWS.head(1).to_arrow())
        folder, hint = first.parent, first.parent / "version-hint.text"

        def count() -> int:
            return len(opened(tmp_path, "lake/table").frame.collect())

        with subtests.test("without a hint"):
            assert count() == 9
        with subtests.test("a hint with a name"):
            hint.write_text(first.name)
            assert count() == 8
        with subtests.test("a hint with a number, and a later version that the hint lacks"):
            shutil.copy(first, folder / "v1.metadata.json")
            hint.write_text("1\n")
            assert count() == 8
            shutil.copy(metadata_of(table), folder / "v2.metadata.json")
            assert count() == 9
        with subtests.test("a hint to nothing"):
            hint.write_text("7")
            assert refusal(tmp_path, BadData, "lake/table") == "lake/table: version-hint.text names the metadata '7', which is missing"
        with subtests.test("two files of the highest number"):
            hint.unlink()
            for name in ("00007-a.metadata.json", "00007-b.metadata.json"):
                shutil.copy(first, folder / name)
            assert "2 files have the number 7; write the right file's name to version-hint.text" in refusal(tmp_path, BadData, "lake/table")


def test_files_of_a_table_are_not_read_without_its_metadata(tmp_path: Path) -> None:
    with catalog(tmp_path) as made:
        create(made, ROWS)
    says = "lake/table is an Iceberg table, and its log says which files have rows; set uri to that folder"
    for uri in ("lake/table/data", "lake/table/data/*.parquet", "lake"):
        assert refusal(tmp_path, BadData, uri).endswith(says)
    assert refusal(tmp_path, BadData, "lake/table/metadata").startswith("lake/table/metadata: ")
