"""The whole of ml-100k through the etl stage, then a copy that was damaged in every way: each fault is named, and nothing is lost.

The data may not be redistributed: EYAS_TEST_DATA names a folder with ml-100k/ in it, as RecBole lays it out (`ml-100k.inter`, `.item`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.stages.etl import run
from pipelines.stages.runner import Context
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, StageSpec
from shared.contracts.validation_report import ACCEPTED, PAGE, PROFILE, QUARANTINE, REPORT, Report
from shared.domain.errors import BadData
from shared.stage_process import Outcome

FOLDER = Path(os.environ.get("EYAS_TEST_DATA", "var/data")) / "ml-100k"
ROWS, FILES = 100_000, 20
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="ml-100k isn't here: EYAS_TEST_DATA names the folder that it lies in")
FUTURE = 4_000_000_000


def _table(name: str) -> pl.DataFrame:
    frame = pl.read_csv(FOLDER / f"ml-100k.{name}", separator="\t", quote_char=None, infer_schema_length=None)
    return frame.rename({column: column.split(":")[0] for column in frame.columns})


class World:
    """A folder with the ratings in twenty Parquet files, and what a platform would do with them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, FsspecArtifacts(str(folder / "artifacts"))
        self.ratings = _table("inter")
        _table("item").with_columns(pl.col("release_year").cast(pl.Int64, strict=False)).write_parquet(folder / "items.parquet")

    def write(self, ratings: pl.DataFrame) -> list[Path]:
        paths = []
        (self.folder / "ratings").mkdir(exist_ok=True)
        for n, rows in enumerate(ratings.iter_slices(ROWS // FILES)):
            paths.append(self.folder / "ratings" / f"part-{n:02}.parquet")
            rows.write_parquet(paths[-1])
        return paths

    def spec(self, validation: dict[str, Any], by: str) -> RecommenderSpec:
        interactions = {"uri": "ratings/*.parquet", "duplicates": "last", "min_interactions": 20}
        return RecommenderSpec.model_validate(
            {
                "name": "movielens",
                "data": {"interactions": interactions, "items": {"uri": "items.parquet", "key": "item_id"}, "validate": validation},
                "schema": {
                    "user": "user_id",
                    "item": "item_id",
                    "time": "timestamp",
                    "label": {"column": "rating", "positive": ">= 4"},
                },
                "features": [{"categorify": ["user_id", "item_id", "release_year"]}, {"multi_hot": "class", "separator": " "}],
                "split": {"by": by},
            }
        )

    def etl(self, name: str, validation: dict[str, Any], by: str = "time", **inputs: Files) -> Outcome:
        spec = StageSpec(
            stage="etl",
            run="r",
            attempt="r-etl-1",
            recommender=self.spec(validation, by),
            data_roots=(str(self.folder),),
            artifacts=self.store.url,
            inputs=inputs,
        )
        (self.folder / name).mkdir()
        return run(Context(spec, self.folder / name, self.store, logging.getLogger("test")))

    def report(self, name: str) -> Report:
        assert (self.folder / name / "out" / PAGE).stat().st_size > 1000
        return Report.model_validate_json((self.folder / name / "out" / REPORT).read_text())

    def quarantine(self, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.folder / name / "out" / QUARANTINE)

    def accept(self, outcome: Outcome) -> dict[str, Files]:
        return {ACCEPTED: {PROFILE: self.store.put(outcome.files[PROFILE])}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("movielens"))


@pytest.fixture(scope="module")
def accepted(world: World) -> dict[str, Files]:
    world.write(world.ratings)
    return world.accept(world.etl("accepted", {"range": {"rating": [1, 5]}}))


@pytest.mark.requirement("G-05", "N-02")
@pytest.mark.parametrize("by", ["time", "leave_last_out", "random"])
def test_the_whole_of_it_is_validated_fitted_transformed_and_split(by: str, world: World) -> None:
    world.write(world.ratings)
    outcome = world.etl(f"whole-{by}", {"range": {"rating": [1, 5]}}, by)
    report = world.report(f"whole-{by}")
    assert report.verdict == "pass" and (report.rows.read, report.rows.quarantined) == (ROWS, 0)
    parts = [pl.read_parquet(outcome.files[f"{side}.parquet"]) for side in ("train", "holdout")]
    again = pl.concat([part.select("user", "item", "time") for part in parts]).sort("user", "item")
    given = world.ratings.select(user="user_id", item="item_id", time=pl.col("timestamp").cast(pl.Float64)).sort("user", "item")
    assert again.equals(given), "every user of ml-100k has twenty, and no pair is there twice"
    if by == "leave_last_out":
        assert len(parts[1]) == parts[1]["user"].n_unique() == 943


def _nth(every: int, place: int) -> pl.Expr:
    return pl.int_range(pl.len()) % every == place


Damage = Callable[[pl.DataFrame], pl.DataFrame]
ROW_FAULTS: dict[str, tuple[Damage, str, int]] = {
    "negative ids": (
        lambda rows: rows.with_columns(user_id=pl.when(_nth(50, 1)).then(-pl.col("user_id")).otherwise("user_id")),
        "user_id: below 0",
        2_000,
    ),
    "future timestamps": (
        lambda rows: rows.with_columns(timestamp=pl.when(_nth(100, 2)).then(float(FUTURE)).otherwise("timestamp")),
        "timestamp: in the future",
        1_000,
    ),
    "30% nulls": (
        lambda rows: rows.with_columns(rating=pl.when(_nth(10, 3) | _nth(10, 4) | _nth(10, 5)).then(None).otherwise("rating")),
        "rating: missing",
        30_000,
    ),
}


@pytest.mark.requirement("G-05")
@pytest.mark.parametrize("fault", ROW_FAULTS)
def test_each_kind_of_bad_rows_is_named_and_quarantined(fault: str, world: World, accepted: dict[str, Files]) -> None:
    damage, reason, count = ROW_FAULTS[fault]
    broken = damage(world.ratings)
    world.write(broken)
    outcome = world.etl(f"rows {fault}", {"bad_rows": {"stop": "50%"}}, **accepted)
    report, apart = world.report(f"rows {fault}"), world.quarantine(f"rows {fault}")
    assert report.reasons == {reason: count} and apart["reason"].unique().to_list() == [reason]
    assert (report.rows.read, report.rows.kept, report.rows.quarantined) == (ROWS, ROWS - count, count)
    assert apart.drop("row", "reason").equals(broken[apart["row"]]), "as they came"
    thinned = sum(outcome.facts["rows"].get(rule, 0) for rule in ("duplicates", "too_few"))
    assert outcome.metrics["rows.train"] + outcome.metrics["rows.holdout"] + thinned == ROWS - count


SHUFFLES: dict[str, tuple[Damage, set[str]]] = {
    "user_id": (lambda rows: rows.with_columns(pl.col("user_id").shuffle(seed=1)), {"rating by user_id", "timestamp by user_id"}),
    "item_id": (lambda rows: rows.with_columns(pl.col("item_id").shuffle(seed=1)), {"rating by item_id"}),
    "rating": (lambda rows: rows.with_columns(pl.col("rating").shuffle(seed=1)), {"rating by user_id", "rating by item_id"}),
    "timestamp": (lambda rows: rows.with_columns(pl.col("timestamp").shuffle(seed=1)), {"timestamp by user_id"}),
}


@pytest.mark.requirement("G-05")
@pytest.mark.parametrize("column", SHUFFLES)
def test_a_shuffled_column_is_named(column: str, world: World, accepted: dict[str, Files]) -> None:
    damage, ties = SHUFFLES[column]
    world.write(damage(world.ratings))
    with pytest.raises(BadData, match="was one column shuffled"):
        world.etl(f"shuffled {column}", {"ties": {"stop": "90%"}}, **accepted)
    assert {one.column for one in world.report(f"shuffled {column}").crossed("stop")} == ties


@pytest.mark.requirement("G-05")
def test_exchanged_columns_are_named(world: World, accepted: dict[str, Files]) -> None:
    exchanged = world.ratings.rename({"user_id": "item_id", "item_id": "user_id"}).select(world.ratings.columns)
    world.write(exchanged)
    with pytest.raises(BadData, match="rows of one user have changed"):
        world.etl("exchanged keys", {"drift": {"stop": 1}}, **accepted)
    world.write(world.ratings.with_columns(rating="timestamp", timestamp="rating"))
    with pytest.raises(BadData, match="column 'rating' has 100,000 values above 5"):
        world.etl("exchanged numbers", {"range": {"rating": [1, 5]}}, **accepted)


@pytest.mark.requirement("G-05")
def test_a_copy_with_all_of_it_is_refused_with_every_fault_named_and_nothing_lost(world: World, accepted: dict[str, Files]) -> None:
    broken = world.ratings.with_columns(pl.col("item_id").shuffle(seed=1))
    for damage, _, _ in ROW_FAULTS.values():
        broken = damage(broken)
    paths = world.write(broken)
    paths[7].write_bytes(paths[7].read_bytes()[:20_000])
    rest = pl.concat([broken[: 7 * 5_000], broken[8 * 5_000 :]])
    with pytest.raises(BadData, match=r"column 'rating' has 28,500 nulls or NaN.*\(30\.0% of the rows\); data\.validate allows 5%; 2 more"):
        world.etl("all of it", {"ties": {"stop": "90%"}}, **accepted)
    report, apart = world.report("all of it"), world.quarantine("all of it")
    (faulty,) = report.faulty
    assert (faulty.name, faulty.size) == ("part-07.parquet", 20_000)
    assert report.reasons == {"user_id: below 0": 1_900, "timestamp: in the future": 950, "rating: missing": 28_500}
    assert "tie rating by item_id" in {f"{one.name} {one.column}" for one in report.crossed("stop")}
    assert report.rows.read == 95_000 == report.rows.kept + len(apart)
    assert apart.drop("row", "reason").equals(rest[apart["row"]])
    loose = {"bad_rows": {"stop": None}}
    outcome = world.etl("used all the same", loose, **accepted)
    assert outcome.facts["rows"]["quarantined"] == len(apart)
    assert outcome.facts["validation"]["verdict"] == "warn"
