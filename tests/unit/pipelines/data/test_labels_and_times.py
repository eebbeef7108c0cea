"""Labels by listed values or for every row, times with a format, data without times, and data without an items table."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.data.interactions import from_file, open_interactions
from pipelines.data.sources import ReadableRoots
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.domain.errors import BadData
from tests.support.etl_stage import Etl
from tests.unit.pipelines.recommender import films, ratings, spec, write

pytestmark = pytest.mark.requirement("U-04")
SCHEMA = {"user": "userId", "item": "movieId", "time": "at"}


def without_table(folder: Path, **changes: Any) -> RecommenderSpec:
    changes = {"data": {"interactions": {"uri": str(folder / "ratings.parquet")}}, "features": [], **changes}
    return spec(folder, **changes)


def labels(folder: Path, frame: pl.DataFrame, positive: Any) -> list[int | None]:
    frame.write_parquet(folder / "ratings.parquet")
    recommender = without_table(folder, schema=SCHEMA | {"label": {"column": "kind", "positive": positive}})
    source = open_interactions(recommender, ReadableRoots((str(folder),), folder / "scratch"))
    return from_file(source, recommender).collect()["label"].to_list()


def test_listed_values_are_positives(tmp_path: Path) -> None:
    frame = ratings(6).with_columns(kind=pl.Series(["purchase", "view", " purchase ", None, "cart", "Purchase"]))
    assert labels(tmp_path, frame, ["purchase", "cart"]) == [1, 0, 1, None, 1, 0]
    assert labels(tmp_path, frame, "any") == [1] * 6
    numbers = ratings(5).with_columns(kind=pl.Series([5.0, 4.5, 1.0, None, 4.0]))
    assert labels(tmp_path, numbers, [5, 1]) == [1, 0, 1, None, 0]
    assert labels(tmp_path, numbers, ">= 4.5") == [1, 1, 0, None, 0]
    with pytest.raises(BadData, match=r"column 'kind' is Float64, but .* lists texts"):
        labels(tmp_path, numbers, ["purchase"])
    with pytest.raises(BadData, match=r"column 'kind' is String, but .* lists numbers"):
        labels(tmp_path, frame, [5])


def test_listed_texts_are_the_kinds_of_events_that_are_positives(tmp_path: Path) -> None:
    schema = SCHEMA | {"label": {"column": "kind", "positive": ["purchase", "share"]}}
    feedback = without_table(tmp_path, schema=schema).feedback
    rule = without_table(tmp_path, schema=schema).positive()
    judged = {name: feedback.positive(name, 5.0, rule) for name in feedback.all_kinds()}
    assert judged == {"click": False, "purchase": True, "rating": False, "view": False, "share": True}
    assert feedback.conversions() == {"purchase"}
    chosen = without_table(tmp_path, schema=schema, feedback={"kinds": {"click": {"positive": "always"}}}).feedback
    assert chosen.positive("click", None, rule)


@pytest.mark.parametrize(
    ("form", "written", "seconds"),
    [
        ("%d.%m.%Y", "31.12.2026", datetime(2026, 12, 31, tzinfo=UTC).timestamp()),
        ("%d.%m.%Y %H:%M", "1.2.2026 09:30", datetime(2026, 2, 1, 9, 30, tzinfo=UTC).timestamp()),
        ("%m/%d/%y", "02/01/26", datetime(2026, 2, 1, tzinfo=UTC).timestamp()),
        ("%Y-%m-%dT%H:%M:%S%z", "2026-02-01T10:00:00+0200", datetime(2026, 2, 1, 8, tzinfo=UTC).timestamp()),
        ("ms", 1_700_000_000_123, 1_700_000_000.123),
        ("us", 1_700_000_000_123_456, 1_700_000_000.123456),
        ("%d.%m.%Y", "31.12.26", None),
        ("%d.%m.%Y", "2026-12-31", None),
        ("%d.%m.%Y", "31.02.2026", None),
    ],
)
def test_times_with_a_format(tmp_path: Path, form: str, written: Any, seconds: float | None) -> None:
    ratings(3).with_columns(at=pl.lit(written)).write_parquet(tmp_path / "ratings.parquet")
    recommender = without_table(tmp_path, schema=SCHEMA | {"time": {"column": "at", "format": form}})
    source = open_interactions(recommender, ReadableRoots((str(tmp_path),), tmp_path / "scratch"))
    times = from_file(source, recommender).collect()["time"].to_list()
    assert times == ([None] * 3 if seconds is None else pytest.approx([seconds] * 3))


def test_a_time_of_another_form_is_a_bad_row(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path, ratings().with_columns(at=pl.lit("31.12.26")))
    with pytest.raises(BadData, match=r"has '31.12.26', which is not a time of the form %d.%m.%Y"):
        etl(spec(tmp_path, schema=SCHEMA | {"time": {"column": "at", "format": "%d.%m.%Y"}}))


def test_without_times_pairs_are_held_out_at_random(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path, ratings(2_000).drop("at"))
    schema = {"user": "userId", "item": "movieId", "label": {"column": "rating", "positive": ">= 4"}}
    outcome = etl(spec(tmp_path, schema=schema))
    train, holdout = (pl.read_parquet(outcome.files[f"{side}.parquet"]) for side in ("train", "holdout"))
    assert len(train) + len(holdout) == 2_000 and len(holdout) / 2_000 == pytest.approx(0.2, abs=0.06)
    assert train.join(holdout, on=["user", "item"], how="semi").is_empty()
    assert set(holdout["user"]) <= set(train["user"])
    assert train["time"].n_unique() == 1
    again = etl(spec(tmp_path, schema=schema))
    assert pl.read_parquet(again.files["holdout.parquet"]).equals(holdout)


def test_without_an_items_table_the_items_are_those_of_the_interactions(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path)
    outcome = etl(without_table(tmp_path))
    items = pl.read_parquet(outcome.files["items.parquet"])
    assert items["movieId"].to_list() == sorted(set(ratings()["movieId"])) and items.columns == ["movieId"]
    assert outcome.facts["rows"]["dropped"] == 0


def test_items_of_events_and_of_the_parent_join_them(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path, ratings())
    store = FsspecArtifacts(str(tmp_path / "artifacts"))

    def events(name: str, first: int) -> dict[str, Any]:
        path = tmp_path / name
        lines = [f"{1 + number % 20},{first + number % 3},,{1.7e9 + number},click" for number in range(600)]
        path.write_text("\n".join(["user,item,value,time,kind", *lines]) + "\n")
        return {"events": {"events.csv": store.put(path)}}

    also = {"interactions": {"uri": str(tmp_path / "ratings.parquet"), "also": "events"}}
    parent = etl(without_table(tmp_path, data=also), inputs=events("first.csv", 900))
    rated = set(ratings()["movieId"])
    assert set(pl.read_parquet(parent.files["items.parquet"])["movieId"]) == rated | {900, 901, 902}
    inputs = events("second.csv", 950) | {"parent": {name: store.put(path) for name, path in parent.files.items()}}
    warm = etl(without_table(tmp_path, data=also), mode="warm", inputs=inputs)
    assert set(pl.read_parquet(warm.files["items.parquet"])["movieId"]) == rated | {900, 901, 902, 950, 951, 952}


def test_what_depends_on_order_needs_the_time(tmp_path: Path, subtests: pytest.Subtests) -> None:
    schema = {"user": "userId", "item": "movieId"}
    for changes, message in (
        ({"split": {"by": "time"}}, "split.by: time needs the column of the time"),
        ({"data": {"interactions": {"uri": "a", "duplicates": "last"}}}, "data.interactions.duplicates: last needs"),
        ({"data": {"interactions": {"uri": "a", "since": "7d"}}}, "data.interactions.since needs"),
        ({"model": {"family": "session"}}, "model.family: session needs"),
        (
            {"features": [{"categorify": ["userId", "movieId"]}, {"sequence": {"of": "movieId", "by": "userId"}}]},
            "features: sequence needs",
        ),
    ):
        with subtests.test(message=message), pytest.raises(ValueError, match=message):
            spec(tmp_path, schema=schema, **changes)


def test_films_are_still_needed_where_a_table_is_named(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path, items=films(5))
    outcome = etl(spec(tmp_path, data=spec(tmp_path).document()["data"]))
    assert outcome.facts["rows"]["dropped"] > 0
