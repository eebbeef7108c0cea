"""Etl publishes what it would publish if the data had never had the forgotten users."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.data.forgotten import ForgottenUserFilter
from services.control.snapshots import forgotten_file
from shared.artifacts import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.domain.forgetting import ForgottenUser
from shared.stage_process import Outcome
from tests.support.etl_stage import Etl
from tests.support.forgotten import DIGEST
from tests.unit.pipelines.recommender import films, ratings, spec

pytestmark = pytest.mark.requirement("U-11")

USERS = (3, 7)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HALF = datetime.fromtimestamp(1.6e9 + 1000 * 3600, UTC)
"""Time of the middle row."""
DATA = ("train.parquet", "holdout.parquet", "history.parquet", "features.json", "firsts.parquet")


def forgotten(folder: Path, at: datetime) -> dict[str, Any]:
    users = [ForgottenUser(DIGEST.of(user), at) for user in USERS]
    return {"inputs": {"forgotten": forgotten_file(FsspecArtifacts(str(folder / "artifacts")), DIGEST, users)}}


def contents(outcome: Outcome, names: tuple[str, ...] = DATA) -> dict[str, bytes]:
    return {name: outcome.files[name].read_bytes() for name in names}


def write(folder: Path, rows: pl.DataFrame, kind: str, people: pl.DataFrame) -> RecommenderSpec:
    folder.mkdir()
    films().write_parquet(folder / "films.parquet")
    for name, frame in (("ratings", rows), ("people", people)):
        (frame.write_csv if kind == "csv" else frame.write_parquet)(folder / f"{name}.{kind}")
    data = spec(folder).document()["data"] | {
        "interactions": {"uri": str(folder / f"ratings.{kind}")},
        "users": {"uri": str(folder / f"people.{kind}"), "key": "userId"},
    }
    return spec(folder, data=data, features=[{"categorify": ["userId", "movieId", "country"]}])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("at", [NOW, HALF])
def test_rows_of_forgotten_users_are_left_out_of_files(tmp_path: Path, etl: Etl, kind: str, at: datetime) -> None:
    rows, people = ratings(2000), pl.DataFrame({"userId": range(1, 30), "country": [f"c{n % 5}" for n in range(29)]})
    is_old = pl.col("userId").is_in(USERS) & (pl.col("at") <= at.timestamp())
    spec_of_all = write(tmp_path / "whole", rows, kind, people)
    spec_of_others = write(tmp_path / "others", rows.filter(~is_old), kind, people.filter(~pl.col("userId").is_in(USERS)))
    assert contents(etl(spec_of_all, **forgotten(tmp_path, at))) == contents(etl(spec_of_others))
    assert contents(etl(spec_of_all)) != contents(etl(spec_of_others))


def test_data_without_times_loses_all_rows_of_the_users(tmp_path: Path, etl: Etl) -> None:
    rows, people = ratings(2000).drop("at"), pl.DataFrame({"userId": [1], "country": ["c"]})
    schema = {"user": "userId", "item": "movieId", "label": {"column": "rating", "positive": ">= 4"}}
    timeless = spec(tmp_path, schema=schema, split={"by": "pairs"})
    changes = {"schema_": timeless.schema_, "split": timeless.split}
    outcome = etl(write(tmp_path / "whole", rows, "parquet", people).model_copy(update=changes), **forgotten(tmp_path, HALF))
    assert not set(pl.read_parquet(outcome.files["history.parquet"])["user"]) & set(USERS)


def test_quarantined_rows_have_no_forgotten_user(tmp_path: Path, etl: Etl) -> None:
    rows = ratings(2000).with_columns(pl.when(pl.int_range(pl.len()) % 50 == 0).then(None).otherwise(pl.col("rating")).alias("rating"))
    people = pl.DataFrame({"userId": [1], "country": ["c"]})
    spec_of_all = write(tmp_path / "whole", rows, "parquet", people)
    etl(spec_of_all, **forgotten(tmp_path, NOW))
    quarantine = set(pl.read_parquet(tmp_path / "scratch-0/out/quarantine/interactions.parquet")["userId"])
    assert quarantine and not quarantine & set(USERS)


@pytest.mark.parametrize("forgotten_keys", [(3, 7), (1000,)])
def test_a_source_of_which_a_part_is_unreadable_is_filtered_as_it_is_read(tmp_path: Path, forgotten_keys: tuple[int, ...]) -> None:
    ratings(500).write_parquet(tmp_path / "good.parquet")
    users = ForgottenUserFilter(DIGEST.secret, {DIGEST.of(key): ForgottenUser("", NOW).instant for key in forgotten_keys})
    reads: list[bool] = []

    def once_unreadable(frame: pl.DataFrame) -> pl.DataFrame:
        reads.append(True)
        if len(reads) == 1:
            raise pl.exceptions.ComputeError("a damaged file")
        return frame

    frame = pl.scan_parquet(tmp_path / "good.parquet").map_batches(once_unreadable)
    left = users.without(frame, "userId", pl.col("at")).collect()
    assert left.equals(ratings(500).filter(~pl.col("userId").is_in(forgotten_keys)))
