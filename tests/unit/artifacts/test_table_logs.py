"""Which files of a Delta log or of Iceberg metadata define a version, by their names; and the field `version` of a place."""

from __future__ import annotations

import pytest

from shared.contracts.sources import ImagesFolder, Place
from shared.contracts.strict import read
from shared.datafiles.table_logs import delta_log, iceberg_metadata, table_above
from shared.domain.errors import BadData, Invalid


def commit(number: int) -> str:
    return f"{number:020}.json"


def checkpoint(number: int, part: int = 0, count: int = 0) -> str:
    parts = f".{part:010}.{count:010}" if count else ""
    return f"{number:020}.checkpoint{parts}.parquet"


OTHERS = ["_last_checkpoint", "00000000000000000004.crc", "00000000000000000001.00000000000000000003.compacted.json", ".tmp"]
V2 = f"{4:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet"


@pytest.mark.parametrize(
    ("names", "version", "expected"),
    [
        ([commit(0), commit(1)], None, (1, [commit(0), commit(1)])),
        ([commit(0), commit(1)], 0, (0, [commit(0)])),
        ([commit(3), commit(4), checkpoint(3)], None, (4, [checkpoint(3), commit(3), commit(4)])),
        ([checkpoint(3)], None, (3, [checkpoint(3)])),
        ([commit(4), checkpoint(3, 1, 2), checkpoint(3, 2, 2)], None, (4, [checkpoint(3, 1, 2), checkpoint(3, 2, 2), commit(4)])),
        ([*map(commit, range(4)), checkpoint(2, 1, 2)], None, (3, [*map(commit, range(4))])),
        ([*map(commit, range(5)), V2], None, (4, [*map(commit, range(5))])),
    ],
)
def test_a_version_is_a_checkpoint_and_the_commits_after_it(names: list[str], version: int | None, expected: tuple[int, list[str]]) -> None:
    log = delta_log([*names, *OTHERS], version, "t")
    assert (log.version, list(log.names)) == expected


@pytest.mark.parametrize(
    ("names", "version", "says"),
    [
        ([], None, "the log of the Delta table has no version"),
        ([commit(0), commit(2)], None, "version 2 cannot be read: the Delta log lacks version 1 "),
        ([commit(4), V2], None, "version 4 cannot be read: the Delta log lacks version 0 "),
        ([commit(0)], 2**63 - 1, "version 9223372036854775807 is missing; the newest version of the Delta table is 0"),
    ],
)
def test_a_version_that_the_log_cannot_give_is_refused(names: list[str], version: int | None, says: str) -> None:
    with pytest.raises(BadData) as caught:
        delta_log([*names, *OTHERS], version, "t")
    assert str(caught.value).startswith(f"t: {says}")


@pytest.mark.parametrize(
    ("names", "hint", "expected"),
    [
        (["00009-a.metadata.json", "00010-b.metadata.json", "snap-1.avro"], None, "00010-b.metadata.json"),
        (["v9.metadata.json", "v10.gz.metadata.json"], None, "v10.gz.metadata.json"),
        (["v1.metadata.json", "v2.gz.metadata.json", "v4.metadata.json"], "1", "v2.gz.metadata.json"),
        (["00001-a.metadata.json", "00002-b.metadata.json"], "00001-a", "00001-a.metadata.json"),
    ],
)
def test_the_newest_metadata(names: list[str], hint: str | None, expected: str) -> None:
    assert iceberg_metadata(names, hint, "t") == expected


def test_files_of_a_log_say_where_the_table_is() -> None:
    assert table_above("a/b/_delta_log/1.json") == ("a/b", "Delta")
    assert table_above("_delta_log/_sidecars/x.parquet") == ("", "Delta")
    assert table_above("a/metadata/v1.metadata.json") == ("a", "Iceberg")
    assert table_above("a/metadata/rows.parquet") is None
    assert table_above("a/v1.metadata.json") is None


def test_only_rows_of_files_have_versions() -> None:
    assert "version" not in Place(uri="t").model_dump()
    assert Place(uri="t", version=3).model_dump()["version"] == 3
    for kind, place in (
        (Place, {"query": "SELECT 1", "from": "shop", "version": 1}),
        (ImagesFolder, {"uri": "t", "version": 1}),
    ):
        with pytest.raises(Invalid, match="version: only Delta and Iceberg tables have versions; remove it"):
            read(kind, place, "place")
    with pytest.raises(Invalid, match="version"):
        read(Place, {"uri": "t", "version": -1}, "place")
