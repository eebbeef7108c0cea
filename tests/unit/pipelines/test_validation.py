"""A batch is judged before anything is learned from it: each fault is named, bad rows are kept apart, and nothing is lost."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.data.sources import Source
from pipelines.data.validation.judging import Judged, judge, refusal
from pipelines.data.validation.page import page
from pipelines.data.validation.profile import Profile
from pipelines.stages.etl import run
from pipelines.stages.runner import Context, Outcome
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import StageSpec
from shared.contracts.validation_report import ACCEPTED, PAGE, PROFILE, QUARANTINE, REPORT, Check, Report
from shared.domain.errors import BadData, Invalid
from tests.unit.pipelines.recommender import films, ratings, spec, write

NOW = 1.7e9
ANYTHING = {"bad_rows": {"stop": None}, "bad_files": {"stop": None}}


def world(rows: int = 4000, seed: int = 1, **more: Any) -> pl.DataFrame:
    """Users who differ in how much they like, films that differ in how they are liked, and sessions in time."""
    random = np.random.default_rng(seed)
    user, item = random.integers(1, 120, rows) ** 2 // 120 + 1, random.integers(1, 81, rows)
    rating = np.clip(np.round(3 + (item % 5 - 2) * 0.8 + (user % 3 - 1) * 0.5 + random.normal(0, 0.6, rows)), 1, 5)
    at = 1.6e9 + user * 86_400.0 + random.integers(0, 3600, rows)
    device = random.choice(["phone", "tablet", "desk"], rows, p=[0.6, 0.3, 0.1])
    return pl.DataFrame({"userId": user, "movieId": item, "rating": rating, "at": at, "device": device}).with_columns(**more)


def wishing(folder: Path, **wish: Any) -> RecommenderSpec:
    data = spec(folder).document()["data"]
    return spec(folder, data=data | {"validate": wish})


def judged(frame: pl.DataFrame, folder: Path, accepted: Profile | None = None, **wish: Any) -> Judged:
    source = Source("ratings.parquet", (), frame.lazy())
    return judge(source, wishing(folder, **wish), accepted, NOW, folder / "quarantine.parquet", folder / "scratch")


def crossed(report: Report, verdict: str = "warn") -> set[str]:
    return {f"{one.name} {one.column}" if one.column else one.name for one in report.checks if one.verdict == verdict}


def check(report: Report, name: str) -> Check:
    (found,) = [one for one in report.checks if name in {f"{one.name} {one.column}", one.name}]
    return found


def some(column: str, value: Any, every: int = 50) -> pl.Expr:
    return pl.when(pl.int_range(pl.len()) % every == 7).then(pl.lit(value)).otherwise(column).alias(column)


@pytest.mark.requirement("G-05")
def test_a_sound_batch_passes_and_is_used_as_it_is(tmp_path: Path) -> None:
    found = judged(world(), tmp_path)
    assert found.report.verdict == "pass" and refusal(found.report) is None
    assert found.source.frame.collect().equals(world())
    assert not (tmp_path / "quarantine.parquet").exists()


ROWS: list[tuple[str, Any, str]] = [
    ("userId", None, "userId: missing"),
    ("movieId", -3, "movieId: below 0"),
    ("rating", float("nan"), "rating: missing"),
    ("rating", float("-inf"), "rating: not finite; rating: below 0.5"),
    ("rating", 17.0, "rating: above 5"),
    ("at", None, "at: missing"),
    ("at", NOW + 90_000, "at: in the future"),
    ("at", 1.6e12, "at: not in seconds"),
    ("at", float("inf"), "at: not finite"),
]


@pytest.mark.parametrize(("column", "value", "reason"), ROWS)
def test_bad_rows_are_quarantined_with_their_reasons(column: str, value: Any, reason: str, tmp_path: Path) -> None:
    frame = world().with_columns(some(column, value))
    found = judged(frame, tmp_path, range={"rating": [0.5, 5]})
    apart = pl.read_parquet(tmp_path / "quarantine.parquet")
    assert apart["row"].to_list() == list(range(7, 4000, 50))
    assert apart["reason"].unique().to_list() == [reason]
    assert apart.drop("row", "reason").equals(frame[apart["row"]], null_equal=True)
    rows = found.report.rows
    assert (rows.read, rows.kept, rows.quarantined) == (4000, 3920, 80)
    assert found.source.frame.collect().equals(frame.filter(pl.int_range(pl.len()) % 50 != 7))
    assert found.report.reasons == dict.fromkeys(reason.split("; "), 80)
    assert found.report.verdict == "warn", "2% are more than 0.1% and less than 5%"


def test_rows_that_must_be_unique_are_so_and_the_first_stays(tmp_path: Path) -> None:
    frame = pl.concat([world(), world()[:100]]).with_columns(some("userId", None))
    found = judged(frame, tmp_path, unique=["userId", "movieId", "at"])
    kept = found.source.frame.collect()
    good = frame.filter(pl.col("userId").is_not_null())
    assert kept.equals(good.unique(["userId", "movieId", "at"], keep="first", maintain_order=True))
    apart = pl.read_parquet(tmp_path / "quarantine.parquet")
    assert len(kept) + len(apart) == len(frame) and apart["row"].is_sorted()
    assert set(apart["reason"]) == {"userId: missing", "repeats an earlier row"}


VALUES = st.one_of(st.none(), st.sampled_from([float("nan"), float("inf"), -1.0, 0.0, 3.0, 9.0, NOW, NOW * 1000, NOW + 1e6]))


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(st.one_of(st.none(), st.integers(-2, 3)), st.integers(0, 2), VALUES, VALUES), min_size=1, max_size=30),
    unique=st.booleans(),
)
def test_what_is_read_is_kept_or_quarantined_and_never_both(
    rows: list[Any], unique: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    schema = {"userId": pl.Int64, "movieId": pl.Int64, "rating": pl.Float64, "at": pl.Float64}
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_row_index("number")
    wish = {"range": {"rating": [0, 5]}, "unique": ["userId", "movieId"] if unique else []}
    found = judged(frame, folder, **wish)
    kept, path = found.source.frame.collect(), folder / "quarantine.parquet"
    apart = pl.read_parquet(path) if path.exists() else pl.DataFrame({"number": [], "reason": []})
    assert sorted([*kept["number"], *apart["number"]]) == list(range(len(rows)))
    assert (found.report.rows.kept, found.report.rows.quarantined) == (len(kept), len(apart))
    assert all(apart["reason"]) and kept.filter(pl.any_horizontal(pl.all().is_null())).is_empty()


def test_thresholds_decide_between_pass_warn_and_stop(tmp_path: Path) -> None:
    frame = world().with_columns(some("userId", None))
    verdicts = {
        stop: judged(frame, tmp_path, bad_rows={"warn": warn, "stop": stop}).report.verdict
        for warn, stop in ((0.03, 0.04), (0.01, 0.03), (0.01, 0.019))
    }
    assert verdicts == {0.04: "pass", 0.03: "warn", 0.019: "stop"}
    strict = judged(frame, tmp_path, nulls={"userId": 0})
    assert crossed(strict.report, "stop") == {"nulls userId"}
    assert "column 'userId' has 80 nulls, 2.00% of the rows; data.validate allows 0%" in str(refusal(strict.report))


def test_a_column_that_the_wishes_name_must_be_there_and_ranges_are_of_numbers(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"data\.validate: column 'stars' is not in ratings\.parquet"):
        judged(world(), tmp_path, nulls={"stars": 0})
    with pytest.raises(Invalid, match=r"data\.validate\.range: column 'device' of ratings\.parquet is String"):
        judged(world(), tmp_path, range={"device": [0, 1]})


def accepted(tmp_path: Path, **wish: Any) -> Profile:
    found = judged(world(), tmp_path, **wish)
    assert found.profile is not None
    return Profile.model_validate_json(found.profile.model_dump_json())


def test_another_batch_of_the_same_world_passes_beside_the_accepted_one(tmp_path: Path) -> None:
    found = judged(world(seed=2), tmp_path, accepted(tmp_path))
    assert crossed(found.report) <= {"newest at"}, found.report.checks
    assert found.report.compared


def test_a_batch_that_moved_is_found_and_stops_where_the_spec_says_so(tmp_path: Path) -> None:
    moved = world(device=pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.lit("watch")).otherwise("device"), rating=6 - pl.col("rating"))
    found = judged(moved, tmp_path, accepted(tmp_path))
    assert {"drift device"} <= crossed(found.report) and refusal(found.report) is None
    stopped = judged(moved, tmp_path, accepted(tmp_path), drift={"warn": 0.1, "stop": 0.3})
    assert "drift device" in crossed(stopped.report, "stop")
    assert "values of 'device' have moved" in str(refusal(stopped.report))


TIES = {
    "userId": {"tie rating by userId", "tie at by userId"},
    "movieId": {"tie rating by movieId"},
    "rating": {"tie rating by userId", "tie rating by movieId"},
    "at": {"tie at by userId"},
}


@pytest.mark.parametrize("column", TIES)
def test_a_shuffled_column_is_found_though_it_holds_the_same_values(column: str, tmp_path: Path) -> None:
    found = judged(world().with_columns(pl.col(column).shuffle(seed=3)), tmp_path, accepted(tmp_path))
    assert crossed(found.report) == TIES[column]
    assert "has one of them been shuffled?" in check(found.report, sorted(TIES[column])[0]).says
    assert (
        judged(world().with_columns(pl.col(column).shuffle(seed=3)), tmp_path, accepted(tmp_path), ties={"stop": 0.8}).report.verdict
        == "stop"
    )


def test_exchanged_keys_are_found(tmp_path: Path) -> None:
    exchanged = world().rename({"userId": "movieId", "movieId": "userId"}).select(world().columns)
    found = judged(exchanged, tmp_path, accepted(tmp_path))
    assert {"activity userId", "activity movieId"} <= crossed(found.report)


def test_users_nobody_has_seen_are_found(tmp_path: Path) -> None:
    found = judged(world(userId=pl.col("userId") + 1000), tmp_path, accepted(tmp_path))
    assert check(found.report, "unseen userId").verdict == "warn"
    assert check(found.report, "unseen userId").figure == 1.0
    assert check(found.report, "unseen movieId").figure == 0.0


def test_a_profile_stays_small_and_its_sample_tells_the_unseen_share_of_many_users(tmp_path: Path) -> None:
    count = 60_000
    frame = pl.DataFrame({"userId": range(count), "movieId": 1, "rating": 5.0, "at": 1.6e9, "word": [f"w{n}" for n in range(count)]})
    profile = judged(frame, tmp_path).profile
    assert profile is not None and len(profile.model_dump_json()) < 60_000
    later = frame.with_columns(pl.col("userId") + count // 4)
    found = judged(later, tmp_path, profile)
    assert abs(check(found.report, "unseen userId").figure - 0.25) < 0.05


def test_an_older_copy_of_the_data_is_noticed(tmp_path: Path) -> None:
    found = judged(world().filter(pl.col("at") < 1.6e9 + 40 * 86_400), tmp_path, accepted(tmp_path))
    assert "is this an older copy?" in check(found.report, "newest at").says


def test_the_page_stands_alone_and_what_the_data_says_is_escaped(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>"
    frame = world(device=pl.lit(bad)).rename({"device": "<b>dev</b>"})
    text = page(judged(frame, tmp_path).report)
    assert bad not in text and "<b>" not in text and "&lt;script&gt;" in text
    assert "http" not in text and "src=" not in text and "<link" not in text and "prefers-color-scheme: dark" in text


# The stage


def _context(folder: Path, recommender: RecommenderSpec, name: str, **inputs: Any) -> Context:
    store = FsspecArtifacts(str(folder / "artifacts"))
    stage = StageSpec(
        stage="etl", run="r", attempt="r-etl-1", recommender=recommender, data_roots=(str(folder),), artifacts=store.url, inputs=inputs
    )
    scratch = folder / name
    scratch.mkdir()
    return Context(stage, scratch, store, logging.getLogger("test"))


def _etl(folder: Path, recommender: RecommenderSpec, name: str = "scratch", **inputs: Any) -> Outcome:
    return run(_context(folder, recommender, name, **inputs))


def _parts(folder: Path, frame: pl.DataFrame, count: int = 12) -> list[Path]:
    """The same rows in several files."""
    (folder / "parts").mkdir()
    size = -(-len(frame) // count)
    paths = []
    for n in range(count):
        paths.append(folder / "parts" / f"part-{n:02}.parquet")
        frame[n * size : (n + 1) * size].write_parquet(paths[-1])
    return paths


def _of_parts(folder: Path, **wish: Any) -> RecommenderSpec:
    films(80).write_parquet(folder / "films.parquet")
    items = {"uri": str(folder / "films.parquet"), "key": "movieId"}
    return spec(folder, data={"interactions": {"uri": str(folder / "parts/*.parquet")}, "items": items, "validate": wish})


@pytest.mark.parametrize("damage", ["truncated", "torn", "other columns", "other types"])
def test_a_damaged_file_among_several_is_named_and_the_rest_is_used(damage: str, tmp_path: Path) -> None:
    paths = _parts(tmp_path, world())
    whole = paths[4].read_bytes()
    if damage == "truncated":
        paths[4].write_bytes(whole[: len(whole) // 2])
    elif damage == "torn":
        paths[4].write_bytes(whole[:10] + bytes(len(whole) // 3) + whole[10 + len(whole) // 3 :])
    elif damage == "other columns":
        pl.read_parquet(paths[4]).drop("at").write_parquet(paths[4])
    else:
        pl.read_parquet(paths[4]).with_columns(pl.col("userId").cast(pl.Int32)).write_parquet(paths[4])
    outcome = _etl(tmp_path, _of_parts(tmp_path, bad_files={"stop": "20%"}))
    report = Report.model_validate_json((tmp_path / "scratch/out" / REPORT).read_text())
    (faulty,) = report.faulty
    assert faulty.name == "part-04.parquet" and faulty.size == paths[4].stat().st_size and len(faulty.sha256) == 64
    assert report.rows.kept == 4000 - 334 == outcome.facts["rows"]["file"]
    assert check(report, "files").verdict == "warn" and "part-04.parquet" in check(report, "files").says
    with pytest.raises(BadData, match=r"1 file can't be read: part-04\.parquet; data\.validate allows 1%"):
        _etl(tmp_path, _of_parts(tmp_path, bad_files={"stop": "1%"}), "strict")


def test_the_stage_publishes_the_report_the_bad_rows_and_the_profile(tmp_path: Path) -> None:
    write(tmp_path, ratings(2000).with_columns(some("userId", None)))
    context = _context(tmp_path, wishing(tmp_path), "scratch")
    outcome = run(context)
    assert {REPORT, PAGE, QUARANTINE} == set(context.kept) and PROFILE in outcome.files
    assert outcome.facts["validation"]["quarantined"] == 40 == outcome.facts["rows"]["quarantined"]
    assert outcome.facts["validation"]["compared"] is None
    assert sum(outcome.metrics[f"rows.{side}"] for side in ("train", "holdout")) == 1960


def test_the_next_batch_is_compared_with_the_accepted_profile(tmp_path: Path) -> None:
    films(80).write_parquet(tmp_path / "films.parquet")
    world().write_parquet(tmp_path / "ratings.parquet")
    profile = _etl(tmp_path, wishing(tmp_path)).files[PROFILE]
    file = FsspecArtifacts(str(tmp_path / "artifacts")).put(profile)
    world().with_columns(pl.col("rating").shuffle(seed=1)).write_parquet(tmp_path / "ratings.parquet")
    outcome = _etl(tmp_path, wishing(tmp_path), "second", **{ACCEPTED: {PROFILE: file}})
    assert outcome.facts["validation"]["compared"] == file.sha256
    assert {"tie rating by userId", "tie rating by movieId"} <= set(outcome.facts["validation"]["warned"])
    with pytest.raises(BadData, match="'userId' explains"):
        _etl(tmp_path, wishing(tmp_path, ties={"stop": "90%"}), "third", **{ACCEPTED: {PROFILE: file}})


def test_a_profile_of_another_release_is_told_and_not_compared_with(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path)
    (tmp_path / "profile.json").write_text(json.dumps({"version": 99}))
    file = FsspecArtifacts(str(tmp_path / "artifacts")).put(tmp_path / "profile.json")
    with caplog.at_level(logging.WARNING, "test"):
        outcome = _etl(tmp_path, wishing(tmp_path), **{ACCEPTED: {PROFILE: file}})
    assert outcome.facts["validation"]["compared"] is None and "nothing to compare with" in caplog.text


def test_a_run_that_stops_leaves_its_report_and_its_bad_rows_with_its_refusal(tmp_path: Path) -> None:
    write(tmp_path, ratings(2000).with_columns(some("userId", None, every=10)))
    context = _context(tmp_path, wishing(tmp_path), "r-etl-1")
    path = context.scratch / "spec.json"
    path.write_text(context.spec.model_dump_json(by_alias=True))
    done = subprocess.run([sys.executable, "-m", "pipelines.stages.etl", "--spec", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    manifest = context.store.manifest("r-etl-1")
    assert manifest is not None and manifest.failure is not None and manifest.failure.kind == "data"
    assert "column 'userId' has 200 nulls or NaN" in manifest.failure.message
    assert manifest.failure.message.endswith("see validation.html of r-etl-1")
    assert set(manifest.files) == {REPORT, PAGE, QUARANTINE}
    apart = pl.read_parquet(context.store.fetch(manifest.files[QUARANTINE], tmp_path / "fetched.parquet"))
    assert len(apart) == 200 and apart["reason"].unique().to_list() == ["userId: missing"]
