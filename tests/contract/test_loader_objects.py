"""A loader of objects in S3, against a real server: the same batches as of files, few bytes fetched, and what is said when it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from pipelines.loaders.files import find_files
from pipelines.loaders.loader import open_loader
from shared.datafiles.object_store import ObjectStore
from shared.domain.errors import BadData, Unavailable
from tests.servers.s3_server import Between, S3Server


def write(path: Path, first: int = 0, rows: int = 60, group: int = 20) -> Path:
    ids = np.arange(first, first + rows)
    wide = pa.array(np.random.default_rng(first).random((rows, 50)).tolist(), pa.list_(pa.float64()))
    table = pa.table({"id": ids, "wide": wide, "half": ids / 2})
    pq.write_table(table, path, row_group_size=group, compression="none", use_dictionary=False)
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("s3")
    server = S3Server(folder)
    for at, key in enumerate(("rows/a.parquet", "rows/b.parquet", "rows/deep/c.parquet")):
        server.put(write(folder / "file.parquet", 6_000 * at, rows=6_000, group=2_000), "lake", key)
    (folder / "notes.txt").write_text("what this is")
    server.put(folder / "notes.txt", "lake", "rows/_notes.txt")
    server.put(folder / "notes.txt", "lake", "texts/notes.csv")
    yield server
    server.close()


@pytest.fixture
def between(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Between]:
    between = Between(server.port)
    for name, value in (server.environment | {"AWS_ENDPOINT_URL": between.endpoint}).items():
        monkeypatch.setenv(name, value)
    yield between
    between.close()


def ids(loader: Any) -> list[int]:
    return [one for batch in loader.epoch(0) for one in batch["id"].tolist()]


@pytest.mark.requirement("T-03")
def test_objects_give_the_same_batches_as_files(server: S3Server, between: Between) -> None:
    here = open_loader(server.buckets / "lake" / "rows", batch_size=700)
    there = open_loader("s3://lake/rows", batch_size=700)
    for one, other in zip(here.epoch(3), there.epoch(3), strict=True):
        assert one["id"].tolist() == other["id"].tolist()  # type: ignore[union-attr]
        assert one["wide"].values.tolist() == other["wide"].values.tolist()  # type: ignore[union-attr]
    assert [one.name for one in find_files("s3://lake/rows/*.parquet")] == ["s3://lake/rows/a.parquet", "s3://lake/rows/b.parquet"]
    assert len(find_files(["s3://lake/rows/**/c.parquet", "s3://lake/rows/a.parquet"])) == 2


def test_of_an_object_only_the_wanted_columns_are_fetched(server: S3Server, between: Between) -> None:
    size = (server.buckets / "lake/rows/a.parquet").stat().st_size
    loader = open_loader("s3://lake/rows/a.parquet", ["id", "half"])
    footer = between.passed
    assert footer < 140_000, "rclone sends the first part twice, to obstore and by a presigned URL"
    assert sorted(ids(loader)) == list(range(6_000))
    wanted = 6_000 * 16
    assert wanted < between.passed - footer < wanted + 10_000 < size // 10


def test_what_is_fetched_counts_as_memory_and_changes_no_batch(server: S3Server, between: Between) -> None:
    here, there = (
        open_loader(where, ["id", "wide"], batch_size=64, memory=100 * 2**20) for where in (server.buckets / "lake/rows", "s3://lake/rows")
    )
    assert here.plan == there.plan
    assert max(one.fetched for one in here.chunks.chunks) == 0
    assert 2_000 * 50 * 8 < max(one.fetched for one in there.chunks.chunks) < 2_000 * 51 * 8 + 20_000
    assert there._memory.decoders(64) < here._memory.decoders(64)


def test_a_connection_that_is_cut_is_taken_up_again(between: Between) -> None:
    loader = open_loader("s3://lake/rows/a.parquet", ["id", "wide"])
    between.breaks, between.after = 3, 40_000
    assert sorted(ids(loader)) == list(range(6_000))
    assert between.breaks == 0


def test_a_store_that_always_breaks_off_is_given_up_in_one_line(between: Between, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.datafiles.object_store.time.sleep", lambda _: None)
    loader = open_loader("s3://lake/rows/a.parquet")
    between.breaks, between.after = 10**6, 0
    with pytest.raises(Unavailable, match=r"s3://lake/rows/a.parquet: the object store .*"):
        ids(loader)


def test_an_object_that_is_written_anew_while_it_is_read_is_refused(server: S3Server, between: Between, tmp_path: Path) -> None:
    server.put(write(tmp_path / "x.parquet"), "lake", "more/x.parquet")
    loader = open_loader("s3://lake/more/x.parquet")
    server.put(write(tmp_path / "x.parquet", first=5), "lake", "more/x.parquet")
    with pytest.raises(BadData, match=r"s3://lake/more/x.parquet: changed while it was read"):
        ids(loader)


NOT_THERE: list[tuple[str, str]] = [
    ("s3://lake/rows/none.parquet", "object not found"),
    ("s3://lake/none/*.parquet", "no object matches"),
    ("s3://lake/texts", "no Parquet files"),
    ("s3://pond/rows", "bucket not found"),
]


def test_objects_that_arent_there_are_said(subtests: pytest.Subtests, between: Between) -> None:
    for uri, said in NOT_THERE:
        with subtests.test(uri=uri), pytest.raises(BadData, match=f"^{uri.replace('*', '.')}: .*{said}".replace(": .*", ": ")):
            open_loader(uri)


def test_a_part_of_an_object_is_read_as_it_was_listed(server: S3Server, between: Between) -> None:
    store = ObjectStore()
    (entry,) = store.list("s3://lake/rows/a.parquet")
    into = bytearray(1000)
    store.read(entry.uri, entry.tag, 500, memoryview(into))
    assert into == (server.buckets / "lake/rows/a.parquet").read_bytes()[500:1500]
    with pytest.raises(BadData, match="changed while it was read: retry when"):
        store.read(entry.uri, "other", 500, memoryview(into))


def test_a_filesystem_of_pyarrow_reads_objects(server: S3Server) -> None:
    s3 = pyarrow.fs.S3FileSystem(
        access_key="reader",
        secret_key="hush-hush-hush",
        region="eu-central-1",
        endpoint_override=server.endpoint.removeprefix("http://"),
        scheme="http",
    )
    assert sorted(ids(open_loader("lake/rows/*.parquet", filesystem=s3))) == list(range(12_000))
