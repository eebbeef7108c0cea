"""Validation in the ETL stage: damaged files, the published report, bad rows and profile, and a refusal."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.stages.etl import run
from pipelines.stages.runner import Context, main
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import StageSpec
from shared.contracts.validation_report import ACCEPTED, PAGE, PROFILE, QUARANTINE, REPORT, Check, Report
from shared.domain.errors import BadData
from shared.stage_process import Outcome
from tests.support.validation_batches import in_parts, of_parts, some, validated_spec, world
from tests.unit.pipelines.recommender import films, ratings, write


def check(report: Report, name: str) -> Check:
    (found,) = [one for one in report.checks if name in {f"{one.name} {one.column}", one.name}]
    return found


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


def test_a_damaged_file_among_several_is_named_and_the_rest_is_used(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, damage in enumerate(["truncated", "torn", "other columns", "other types"]):
        with subtests.test(damage=damage):
            folder = tmp_path / str(number)
            folder.mkdir()
            paths = in_parts(folder, world())
            whole = paths[4].read_bytes()
            if damage == "truncated":
                paths[4].write_bytes(whole[: len(whole) // 2])
            elif damage == "torn":
                paths[4].write_bytes(whole[:10] + bytes(len(whole) // 3) + whole[10 + len(whole) // 3 :])
            elif damage == "other columns":
                pl.read_parquet(paths[4]).drop("at").write_parquet(paths[4])
            else:
                pl.read_parquet(paths[4]).with_columns(pl.col("userId").cast(pl.Int32)).write_parquet(paths[4])
            outcome = _etl(folder, of_parts(folder, bad_files={"stop": "20%"}))
            report = Report.model_validate_json((folder / "scratch/out" / REPORT).read_text())
            (faulty,) = report.faulty
            assert faulty.name == "part-04.parquet" and faulty.size == paths[4].stat().st_size and len(faulty.sha256) == 64
            assert report.rows.kept == 4000 - 334 == outcome.facts["rows"]["file"]
            assert check(report, "files").verdict == "warn" and "part-04.parquet" in check(report, "files").says
            with pytest.raises(BadData, match=r"1 file cannot be read: part-04\.parquet; data\.validate allows 1%"):
                _etl(folder, of_parts(folder, bad_files={"stop": "1%"}), "strict")


def test_the_stage_publishes_the_report_the_bad_rows_and_the_profile(tmp_path: Path) -> None:
    write(tmp_path, ratings(2000).with_columns(some("userId", None)))
    context = _context(tmp_path, validated_spec(tmp_path), "scratch")
    outcome = run(context)
    assert {REPORT, PAGE, QUARANTINE} == set(context.diagnostic_files) and PROFILE in outcome.files
    assert outcome.facts["validation"]["quarantined"] == 40 == outcome.facts["rows"]["quarantined"]
    assert outcome.facts["validation"]["compared"] is None
    assert sum(outcome.metrics[f"rows.{side}"] for side in ("train", "holdout")) == 1960


def test_the_next_batch_is_compared_with_the_accepted_profile(tmp_path: Path) -> None:
    films(80).write_parquet(tmp_path / "films.parquet")
    world().write_parquet(tmp_path / "ratings.parquet")
    profile = _etl(tmp_path, validated_spec(tmp_path)).files[PROFILE]
    file = FsspecArtifacts(str(tmp_path / "artifacts")).put(profile)
    world().with_columns(pl.col("rating").shuffle(seed=1)).write_parquet(tmp_path / "ratings.parquet")
    outcome = _etl(tmp_path, validated_spec(tmp_path), "second", **{ACCEPTED: {PROFILE: file}})
    assert outcome.facts["validation"]["compared"] == file.sha256
    assert {"tie rating by userId", "tie rating by movieId"} <= set(outcome.facts["validation"]["warned"])
    with pytest.raises(BadData, match="'userId' explains"):
        _etl(tmp_path, validated_spec(tmp_path, ties={"stop": "90%"}), "third", **{ACCEPTED: {PROFILE: file}})


def test_a_profile_of_another_release_is_told_and_not_compared_with(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path)
    (tmp_path / "profile.json").write_text(json.dumps({"version": 99}))
    file = FsspecArtifacts(str(tmp_path / "artifacts")).put(tmp_path / "profile.json")
    with caplog.at_level(logging.WARNING, "test"):
        outcome = _etl(tmp_path, validated_spec(tmp_path), **{ACCEPTED: {PROFILE: file}})
    assert outcome.facts["validation"]["compared"] is None and "validation: comparison skipped error=" in caplog.text


def test_a_run_that_stops_leaves_its_report_and_its_bad_rows_with_its_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, ratings(2000).with_columns(some("userId", None, every=10)))
    context = _context(tmp_path, validated_spec(tmp_path), "r-etl-1")
    path = context.scratch / "spec.json"
    path.write_text(context.spec.model_dump_json(by_alias=True))
    monkeypatch.setattr(sys, "argv", ["etl", "--spec", str(path)])
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    with pytest.raises(SystemExit) as ended:
        main("etl", run)
    assert ended.value.code == 2
    manifest = context.store.manifest("r-etl-1")
    assert manifest is not None and manifest.failure is not None and manifest.failure.kind == "data"
    assert "column 'userId' has 200 nulls or NaN" in manifest.failure.message
    assert manifest.failure.message.endswith("see validation.html of r-etl-1")
    assert set(manifest.files) == {REPORT, PAGE, QUARANTINE}
    apart = pl.read_parquet(context.store.fetch(manifest.files[QUARANTINE], tmp_path / "fetched.parquet"))
    assert len(apart) == 200 and apart["reason"].unique().to_list() == ["userId: missing"]


@pytest.mark.requirement("G-05")
def test_a_batch_with_every_fault_is_refused_with_each_named_and_no_row_is_lost(tmp_path: Path) -> None:
    """Bad rows of three kinds, a shuffled column and a damaged file, beside an accepted batch."""
    paths = in_parts(tmp_path, world())
    profile = _etl(tmp_path, of_parts(tmp_path, range={"rating": [1, 5]}), "accepted").files[PROFILE]
    inputs = {ACCEPTED: {PROFILE: FsspecArtifacts(str(tmp_path / "artifacts")).put(profile)}}
    nth, size = pl.int_range(pl.len()), len(pl.read_parquet(paths[0]))
    broken = world().with_columns(
        userId=pl.when(nth % 50 == 1).then(-pl.col("userId")).otherwise("userId"),
        movieId=pl.col("movieId").shuffle(seed=1),
        rating=pl.when(nth % 10 == 3).then(None).otherwise("rating"),
        at=pl.when(nth % 100 == 2).then(4e9).otherwise("at"),
    )
    for n, path in enumerate(paths):
        broken[n * size : (n + 1) * size].write_parquet(path)
    paths[7].write_bytes(paths[7].read_bytes()[:2_000])
    rest = pl.concat([broken[: 7 * size], broken[8 * size :]])
    with pytest.raises(BadData, match=r"column 'rating' has [0-9]+ nulls or NaN.*data\.validate allows 5%; [0-9] more"):
        _etl(tmp_path, of_parts(tmp_path, ties={"stop": "90%"}), "refused", **inputs)
    out = tmp_path / "refused/out"
    report, apart = Report.model_validate_json((out / REPORT).read_text()), pl.read_parquet(out / QUARANTINE)
    (faulty,) = report.faulty
    assert (faulty.name, faulty.size) == ("part-07.parquet", 2_000)
    assert report.reasons.keys() == {"userId: below 0", "at: in the future", "rating: missing"}
    assert "tie rating by movieId" in {f"{one.name} {one.column}" for one in report.crossed("stop")}
    assert report.rows.read == len(rest) == report.rows.kept + len(apart)
    assert apart.drop("row", "reason").equals(rest[apart["row"]], null_equal=True)
    outcome = _etl(tmp_path, of_parts(tmp_path, bad_rows={"stop": None}, bad_files={"stop": None}), "used", **inputs)
    assert outcome.facts["rows"]["quarantined"] == len(apart)
    assert outcome.facts["validation"]["verdict"] == "warn"
