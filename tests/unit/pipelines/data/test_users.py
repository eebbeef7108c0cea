"""The users table: read and checked as the items table is, and never a reason to lose an interaction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.data.catalogue import open_users, read_users
from pipelines.data.sources import ReadableRoots
from shared.contracts.spec import RecommenderSpec
from shared.domain.errors import BadData, Invalid
from tests.support.etl_stage import Etl
from tests.unit.pipelines.recommender import spec, write


def people(count: int = 12) -> pl.DataFrame:
    return pl.DataFrame({"person": range(count, 0, -1), "country": ["de" if n % 2 else None for n in range(count)]})


def with_users(folder: Path, table: pl.DataFrame, **place: Any) -> RecommenderSpec:
    write(folder)
    table.write_parquet(folder / "people.parquet")
    data = spec(folder).document()["data"]
    return spec(folder, data=data | {"users": {"uri": str(folder / "people.parquet"), "key": "person"} | place})


@pytest.mark.requirement("G-29")
def test_the_users_table_is_read_by_its_key_in_the_name_of_the_schemas_column(tmp_path: Path) -> None:
    recommender = with_users(tmp_path, people())
    source = open_users(recommender, ReadableRoots((str(tmp_path),), tmp_path / "scratch"))
    assert source is not None
    found = read_users(source, recommender)
    assert found.columns == ["userId", "country"]
    assert found["userId"].to_list() == list(range(1, 13))
    assert open_users(spec(tmp_path), ReadableRoots((str(tmp_path),), tmp_path / "scratch")) is None


def test_users_whom_the_table_lacks_keep_their_interactions_and_the_table_is_part_of_the_snapshot(tmp_path: Path, etl: Etl) -> None:
    recommender = with_users(tmp_path, people(12))  # of 29 users
    first = etl(recommender)
    assert first.metrics["rows.train"] + first.metrics["rows.holdout"] == 200
    with_users(tmp_path, people(13))
    assert etl(recommender).facts["snapshot"] != first.facts["snapshot"] != etl(spec(tmp_path)).facts["snapshot"]


FAULTS: list[tuple[pl.DataFrame, dict[str, str], str]] = [
    (
        pl.concat([people(), people(2)]),
        {},
        "people.parquet: 2 rows repeat an earlier row's person, such as 2 .14.3% of the rows.; data.users.validate allows 5%",
    ),
    (people().with_columns(person=pl.lit("ann")), {}, "people.parquet: column 'person' is String, but these ids are integers"),
    (people(), {"key": "id"}, "people.parquet: column 'id' is missing; columns: person, country"),
    (people(), {"uri": "/etc/people.parquet"}, "not under an allowed data root"),
]


def test_a_users_table_with_a_fault_is_refused(subtests: pytest.Subtests, tmp_path: Path, etl: Etl) -> None:
    for table, place, message in FAULTS:
        with subtests.test(message=message):
            recommender = with_users(tmp_path, table, **place)
            with pytest.raises(Invalid, match=message) as caught:
                etl(recommender)
            assert isinstance(caught.value, BadData) or "root" in message
