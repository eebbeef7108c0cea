"""Delta and Iceberg tables and partitions in a bucket have the rows that they have on disk, and only under the data roots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from polars.testing import assert_frame_equal

from pipelines.data.sources import ReadableRoots, SourceRows, open_source
from shared.contracts.sources import Place
from shared.datafiles import DataFiles
from shared.domain.errors import BadData, Invalid
from tests.servers.s3_server import S3Server
from tests.unit.pipelines.data.test_iceberg_tables import catalog, create

ROWS = pl.DataFrame({"userId": range(8), "place": ["a b", "x/y%=z", None, "ü"] * 2})


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    server = S3Server(tmp_path / "s3")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    yield server
    server.close()


def upload(server: S3Server, folder: Path, key: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            server.put(path, "lake", f"{key}/{path.relative_to(folder)}")


def opened(folder: Path, uri: str, version: int | None = None, root: str = "s3://lake") -> SourceRows:
    scratch = folder / f"scratch-{len(list(folder.glob('scratch-*')))}"
    return open_source(Place(uri=uri, version=version), ReadableRoots((root,), scratch), ())


@pytest.mark.requirement("G-29")
def test_tables_and_partitions_in_a_bucket(s3: S3Server, tmp_path: Path, subtests: pytest.Subtests) -> None:
    files = DataFiles(["s3://lake"])
    with subtests.test("Delta"):
        write_deltalake(tmp_path / "delta", ROWS, partition_by=["place"])
        DeltaTable(tmp_path / "delta").delete('"userId" = 3')
        upload(s3, tmp_path / "delta", "deep/delta")
        assert list(files.fingerprint("s3://lake/deep/delta")) == ["s3://lake/deep/delta (Delta version 1)"]
        for version, expected in ((None, ROWS.filter(pl.col("userId") != 3)), (0, ROWS)):
            source = opened(tmp_path, "s3://lake/deep/delta/", version)
            assert_frame_equal(source.frame.collect(), expected, check_row_order=False, check_column_order=False)
        for uri in ("s3://lake/deep", "s3://lake/deep/delta/*/*.parquet", "s3://lake/deep/delta/place=__HIVE_DEFAULT_PARTITION__"):
            with pytest.raises(BadData, match="s3://lake/deep/delta is a Delta table, and its log says which files have rows"):
                opened(tmp_path, uri)
    written = {"py-io-impl": "tests.support.bucket_files.BucketFiles", "buckets": str(s3.buckets)}
    with subtests.test("Iceberg"), catalog("s3://lake/warehouse", **written) as made:
        table = create(made, ROWS, "place")
        first = table.metadata.current_snapshot_id
        table.delete("userId = 3")
        uri = "s3://lake/warehouse/lake/table"
        name = table.metadata_location.rsplit("/", 1)[-1]
        assert list(files.fingerprint(uri)) == [f"{uri} (Iceberg metadata {name})"]
        for version, expected in ((None, ROWS.filter(pl.col("userId") != 3)), (first, ROWS)):
            assert_frame_equal(opened(tmp_path, uri, version).frame.collect(), expected, check_row_order=False)
        s3.put(s3.buckets / f"lake/warehouse/lake/table/metadata/{name}", "lake", f"allowed/copy/metadata/{name}")
        with pytest.raises(Invalid, match=r"s3://lake/allowed/copy: file s3://lake/warehouse/.* not under an allowed data root"):
            opened(tmp_path, "s3://lake/allowed/copy", root="s3://lake/allowed")
    with subtests.test("partitions"):
        ROWS.write_parquet(pl.PartitionBy(tmp_path / "hive", key="place", include_key=False), mkdir=True)
        upload(s3, tmp_path / "hive", "hive")
        source = opened(tmp_path, "s3://lake/hive")
        assert_frame_equal(source.frame.collect(), ROWS, check_row_order=False, check_column_order=False)


def test_files_of_a_table_in_another_bucket_or_prefix_are_refused(s3: S3Server, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "delta", ROWS)
    upload(s3, tmp_path / "delta", "allowed/delta")
    log = s3.buckets / "lake/allowed/delta/_delta_log" / f"{0:020}.json"
    text = log.read_text()
    for path in ("s3://other/rows.parquet", "s3://lake/secret/rows.parquet", "../../secret/rows.parquet", "/etc/rows.parquet"):
        name = next((tmp_path / "delta").glob("*.parquet")).name
        log.write_text(text.replace(f'"path":"{name}"', f'"path":"{path}"'))
        with pytest.raises(Invalid, match=r"s3://lake/allowed/delta: file .* of the table: (not under|a key cannot have)"):
            opened(tmp_path, "s3://lake/allowed/delta", root="s3://lake/allowed")
