"""Delta tables that deltalake wrote: the rows of a version, and refusals of what is not read right or lies outside the data roots."""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import polars as pl
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from polars.testing import assert_frame_equal
from pyroaring import BitMap64

from pipelines.data import lake
from pipelines.data.delta import B85, Z85
from pipelines.data.sources import ReadableRoots, SourceRows, open_source
from shared.contracts.sources import Place
from shared.datafiles import DataFiles
from shared.domain.errors import BadData, EyasError, Invalid, Unsupported
from tests.support.etl_stage import Etl
from tests.unit.pipelines.recommender import films, ratings, spec

ROWS = pl.DataFrame(
    {
        "userId": range(8),
        "day": [date(2024, 1, 1), date(2024, 1, 2), None, date(2024, 1, 1)] * 2,
        "place": ["a b", "x/y%=z", None, "ünï"] * 2,
        "price": [Decimal("1.25"), None] * 4,
        "at": [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=hour) for hour in range(8)],
        "tags": [["a"], [], None, ["b", "c"]] * 2,
    }
)


def opened(folder: Path, uri: str = "table", version: int | None = None, roots: tuple[str, ...] = ()) -> SourceRows:
    scratch = folder / f"scratch-{len(list(folder.glob('scratch-*')))}"
    return open_source(Place(uri=uri, version=version), ReadableRoots(roots or (str(folder),), scratch), ())


def assert_rows_of_library(folder: Path, version: int | None = None) -> None:
    rows = opened(folder, version=version).frame.collect()
    expected = pl.DataFrame(DeltaTable(folder / "table", version=version).scan())
    assert len(rows) > 0
    assert_frame_equal(rows.select(expected.columns), expected, check_row_order=False, check_dtypes=False)


def refusal(folder: Path, kind: type[EyasError], uri: str = "table", version: int | None = None, roots: tuple[str, ...] = ()) -> str:
    with pytest.raises(kind) as caught:
        opened(folder, uri, version, roots)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def add_commit(table: Path, *actions: dict[str, Any]) -> None:
    version = len(list((table / "_delta_log").glob("*.json")))
    (table / "_delta_log" / f"{version:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def last_add(table: Path) -> dict[str, Any]:
    newest = max((table / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    return next(action["add"] for action in actions if "add" in action)


@pytest.mark.requirement("G-29")
def test_rows_of_a_version_are_those_of_deltalake(tmp_path: Path, subtests: pytest.Subtests) -> None:
    table = tmp_path / "table"
    write_deltalake(table, ROWS, partition_by=["day", "place"])
    write_deltalake(table, ROWS.with_columns(pl.col("userId") + 100, kind=pl.lit("new")), mode="append", schema_mode="merge")
    DeltaTable(table).delete('"userId" = 3')
    DeltaTable(table).update({"kind": "'updated'"}, predicate='"userId" > 104')
    DeltaTable(table).create_checkpoint()
    DeltaTable(table).optimize.compact()
    write_deltalake(table, ROWS.head(2).with_columns(kind=pl.lit("last")), mode="overwrite", schema_mode="merge")
    for version in (None, *range(6)):
        with subtests.test(version=version):
            assert_rows_of_library(tmp_path, version)
    with subtests.test("a version after a checkpoint needs no older commit"):
        for version in range(3):
            (table / "_delta_log" / f"{version:020}.json").unlink()
        assert_rows_of_library(tmp_path, 4)
        assert refusal(tmp_path, BadData, version=1) == (
            "table: version 1 cannot be read: the Delta log lacks version 0 and a Parquet checkpoint after it"
        )
    with subtests.test("an unknown version"):
        assert refusal(tmp_path, BadData, version=6) == "table: version 6 is missing; the newest version of the Delta table is 5"


def test_each_version_has_its_own_digest_time_and_fingerprint(tmp_path: Path) -> None:
    table, files = tmp_path / "table", DataFiles([str(tmp_path)])
    write_deltalake(table, ROWS)
    first, mark = opened(tmp_path), files.fingerprint("table")
    assert list(mark) == ["table (Delta version 0)"]
    assert first.digest() == opened(tmp_path).digest()
    DeltaTable(table).delete('"userId" = 3')
    second = opened(tmp_path)
    assert len({first.digest(), second.digest(), opened(tmp_path, version=0).digest()}) == 2
    assert second.changed_at() > first.changed_at()
    assert files.changed_at(Place(uri="table")) == second.changed_at()
    assert list(files.fingerprint("table")) == ["table (Delta version 1)"]
    assert files.fingerprint("table", version=0) == mark
    assert "version 5 is missing" in str(files.fault(Place(uri="table", version=5)))


@pytest.mark.requirement("G-29")
def test_etl_reads_only_the_rows_of_the_version(tmp_path: Path, etl: Etl) -> None:
    films().write_parquet(tmp_path / "films.parquet")
    write_deltalake(tmp_path / "events", ratings(1000))
    write_deltalake(tmp_path / "events", ratings(300), mode="overwrite")
    data = {"interactions": {"uri": "events"}, "items": {"uri": "films.parquet", "key": "movieId"}}
    outcome = etl(spec(tmp_path, data=data))
    assert outcome.facts["rows"]["file"] == 300
    assert outcome.facts["versions"] == {"interactions": "Delta version 1"}
    data["interactions"]["version"] = 0  # type: ignore[assignment]
    first = etl(spec(tmp_path, data=data))
    assert first.facts["rows"]["file"] == 1000
    assert first.facts["versions"] == {"interactions": "Delta version 0"}
    commit = CommitProperties(custom_metadata={"why": "a new version with the same rows"})
    DeltaTable(tmp_path / "events").delete('"userId" = -1', commit_properties=commit)
    add_commit(tmp_path / "events", {"commitInfo": {"operation": "NOTHING"}})
    del data["interactions"]["version"]
    again = etl(spec(tmp_path, data=data))
    assert again.facts["rows"]["file"] == 300
    assert again.facts["versions"] != outcome.facts["versions"]
    assert len({outcome.facts["snapshot"], first.facts["snapshot"], again.facts["snapshot"]}) == 3


def test_deletion_vectors_in_the_log_and_in_a_file_delete_rows(tmp_path: Path, subtests: pytest.Subtests) -> None:
    table, uuid = tmp_path / "table", UUID(int=2**100 + 7)
    bits = (1681511377).to_bytes(4, "little") + BitMap64([0, 2]).serialize()
    bits += bytes(-len(bits) % 4)
    z85 = bytes.maketrans(B85, Z85)
    content = len(bits).to_bytes(4, "big") + bits + zlib.crc32(bits).to_bytes(4, "big")
    vectors = {
        "inline": {"storageType": "i", "pathOrInlineDv": base64.b85encode(bits).translate(z85).decode(), "sizeInBytes": len(bits)},
        "file": {
            "storageType": "u",
            "pathOrInlineDv": "ab" + base64.b85encode(uuid.bytes).translate(z85).decode(),
            "offset": 1,
            "sizeInBytes": len(bits),
        },
    }
    for name, vector in vectors.items():
        shutil.rmtree(table, ignore_errors=True)
        write_deltalake(table, ROWS, partition_by=["place"])
        write_deltalake(table, ROWS.head(4).with_columns(place=pl.lit("x % y")), mode="append")
        add = last_add(table)
        (table / "ab").mkdir()
        (table / "ab" / f"deletion_vector_{uuid}.bin").write_bytes(b"\x01" + content)
        features = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"],
        }
        remove = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}
        add_commit(table, {"protocol": features}, {"remove": remove}, {"add": add | {"deletionVector": vector | {"cardinality": 2}}})
        with subtests.test(name):
            rows = opened(tmp_path).frame.collect()
            assert rows.filter(pl.col("place") == "x % y")["userId"].to_list() == [1, 3]
            assert len(rows) == len(ROWS) + 2
            assert_rows_of_library(tmp_path)
        with subtests.test(name, checkpoint=True):
            digest = opened(tmp_path).digest()
            DeltaTable(table).create_checkpoint()
            assert len(list((table / "_delta_log").glob("*.checkpoint.parquet"))) == 1
            assert_rows_of_library(tmp_path)
            assert opened(tmp_path).digest() == digest


@pytest.mark.parametrize(
    ("feature", "settings", "kind"),
    [
        ("columnMapping", {"delta.columnMapping.mode": "name"}, Unsupported),
        ("typeWidening", {}, Unsupported),
        ("variantType", {}, Unsupported),
        ("featureOfTomorrow", {}, BadData),
    ],
)
def test_features_that_are_not_read_right_are_refused_by_name(
    feature: str, settings: dict[str, str], kind: type[EyasError], tmp_path: Path
) -> None:
    write_deltalake(tmp_path / "table", ROWS)
    newest = max((tmp_path / "table/_delta_log").glob("*.json"))
    metadata = next(json.loads(line)["metaData"] for line in newest.read_text().splitlines() if "metaData" in line)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature], "writerFeatures": [feature]}
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"column{number}"}
    mapped = metadata | {"schemaString": json.dumps(schema)} if settings else metadata
    add_commit(tmp_path / "table", {"protocol": protocol}, {"metaData": mapped | {"configuration": settings}})
    assert feature in refusal(tmp_path, kind)
    assert len(opened(tmp_path, version=0).frame.collect()) == len(ROWS)


@pytest.mark.requirement("G-11")
@pytest.mark.parametrize(
    "form", ["{outside}", "file://{outside}", "../../outside/{name}", "link.parquet", "%2E%2E/../outside/{name}", "s3://lake/{name}"]
)
def test_every_file_of_a_table_is_checked_against_the_data_roots(form: str, tmp_path: Path) -> None:
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    write_deltalake(allowed / "table", ROWS)
    outside.mkdir()
    file = next((allowed / "table").glob("*.parquet"))
    shutil.copy(file, outside)
    (allowed / "table" / "link.parquet").symlink_to(outside / file.name)
    add = last_add(allowed / "table")
    add_commit(allowed / "table", {"add": add | {"path": form.format(outside=outside / file.name, name=file.name)}})
    message = refusal(allowed, Invalid, roots=(str(allowed),))
    assert message.startswith("table: file ")
    assert "not under an allowed data root" in message


def test_a_shallow_clone_under_the_data_roots_has_the_rows_of_its_files(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "origin", ROWS)
    write_deltalake(tmp_path / "table", ROWS.head(1))
    origin = last_add(tmp_path / "origin")
    add_commit(tmp_path / "table", {"add": origin | {"path": f"file://{tmp_path}/origin/{origin['path']}"}})
    assert len(opened(tmp_path).frame.collect()) == len(ROWS) + 1


def test_a_log_that_leads_out_of_the_data_roots_is_refused(tmp_path: Path, subtests: pytest.Subtests) -> None:
    allowed = tmp_path / "allowed"
    write_deltalake(tmp_path / "table", ROWS)
    with subtests.test("a link to a log"):
        (allowed / "table").mkdir(parents=True)
        (allowed / "table" / "_delta_log").symlink_to(tmp_path / "table" / "_delta_log")
        assert "not under an allowed data root" in refusal(allowed, Invalid, roots=(str(allowed),))
    with subtests.test("a link in a log"):
        shutil.rmtree(allowed)
        write_deltalake(allowed / "table", ROWS)
        (allowed / "table/_delta_log" / f"{1:020}.json").symlink_to(tmp_path / "table/_delta_log" / f"{0:020}.json")
        assert "not under an allowed data root" in refusal(allowed, Invalid, roots=(str(allowed),))
    for path in ("/etc/passwd", "../../table/aaaaaaaaaaaaaaaaaaaa", "s3://lake/aaaaaaaaaaaaaaaaaaaa"):
        with subtests.test("a deletion vector", path=path):
            shutil.rmtree(allowed)
            write_deltalake(allowed / "table", ROWS)
            vector = {"storageType": "p" if path.startswith("/") else "u", "pathOrInlineDv": path, "sizeInBytes": 1, "cardinality": 1}
            add_commit(allowed / "table", {"add": last_add(allowed / "table") | {"deletionVector": vector}})
            assert "lies outside its folder" in refusal(allowed, Unsupported, roots=(str(allowed),))
    with subtests.test("a checkpoint with sidecars"):
        shutil.rmtree(allowed)
        write_deltalake(allowed / "table", ROWS)
        DeltaTable(allowed / "table").create_checkpoint()
        checkpoint = next((allowed / "table/_delta_log").glob("*.parquet"))
        rows = pl.read_parquet(checkpoint)
        named = {"path": f"file://{tmp_path}/x.parquet", "sizeInBytes": 1, "modificationTime": 1, "tags": None}
        sidecar = pl.Series("sidecar", [named, *[None] * (len(rows) - 1)], dtype=rows.schema["sidecar"])
        rows.with_columns(sidecar).write_parquet(checkpoint)
        assert "v2Checkpoint" in refusal(allowed, Unsupported, roots=(str(allowed),))


@pytest.mark.parametrize("uri", ["table/*/*.parquet", "**/*.parquet", "table/day=2024-01-01", ".", "alias/*.parquet", "single"])
def test_files_of_a_table_are_not_read_without_its_log(uri: str, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "table", ROWS, partition_by=["day"])
    write_deltalake(tmp_path / "table", ROWS.with_columns(day=pl.lit(None, pl.Date)), mode="overwrite", schema_mode="overwrite")
    (tmp_path / "alias").mkdir()
    file = next((tmp_path / "table").rglob("*.parquet"))
    (tmp_path / "alias" / "a.parquet").symlink_to(file)
    message = refusal(tmp_path, BadData, str(file) if uri == "single" else uri)
    assert message.endswith(f"{tmp_path}/table is a Delta table, and its log says which files have rows; set uri to that folder")
    assert DataFiles([str(tmp_path)]).fingerprint(uri) == {}


def test_only_tables_have_versions_and_need_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ROWS.drop("tags").write_parquet(tmp_path / "rows.parquet")
    message = "rows.parquet: version 3: only folders of Delta and Iceberg tables have versions; remove it"
    assert refusal(tmp_path, Invalid, "rows.parquet", 3) == message
    assert DataFiles([str(tmp_path)]).fault(Place(uri="rows.parquet", version=3)) == message
    write_deltalake(tmp_path / "table", ROWS)
    monkeypatch.setattr(lake, "find_spec", lambda _: None)
    assert refusal(tmp_path, Invalid) == "table: reading Delta tables needs the package deltalake; install eyas[lake]"


def test_an_empty_table_and_a_broken_log_are_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "table", ROWS)
    DeltaTable(tmp_path / "table").delete()
    assert refusal(tmp_path, BadData) == "table: version 1 of the Delta table has no rows"
    (tmp_path / "table/_delta_log" / f"{1:020}.json").write_text("{")
    assert refusal(tmp_path, BadData).startswith("table: the Delta table cannot be read: ")
    for path in (tmp_path / "table/_delta_log").iterdir():
        path.unlink()
    assert refusal(tmp_path, BadData) == "table: the log of the Delta table has no version"
