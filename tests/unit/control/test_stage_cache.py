"""Stages that needn't run again, runs that go on from where another ended, and what is said of both."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.sources import code_version
from shared.contracts.encoding import EARLIER, ENCODED
from shared.contracts.validation_report import ACCEPTED, PROFILE
from shared.datafiles import DataFiles
from shared.domain.feature_values import StoredRow
from shared.domain.run import STAGES, StageDone
from shared.run_factory import new_run
from tests.support.simulated_platform import NAME, World, but_the_card

REUSABLE = STAGES[:-1]


def lived(world: World, id: str, state: str = "registered", **terms: bool) -> dict[str, StageDone]:
    """A run from its start to its end; its stages by name."""
    world.hero = ("", "")
    world.start_run(id, **terms)
    world.until(world.plane(), state, "run")
    world.clock.pass_by(seconds=1)
    return stages(world, id)


def stages(world: World, id: str) -> dict[str, StageDone]:
    return {done.stage: done for done in world.runs.get(id).status.stages}


def reused(found: dict[str, StageDone]) -> list[str]:
    return [stage for stage, done in found.items() if done.reused]


def why(done: StageDone) -> str:
    assert done.basis is not None
    return done.basis.why


@pytest.mark.requirement("C-03")
def test_an_equal_run_starts_no_job_but_that_which_measures_the_machine(world: World) -> None:
    lived(world, "r1")
    found = lived(world, "r2")
    assert reused(found) == list(REUSABLE)
    assert [found[stage].attempt for stage in REUSABLE] == [f"r1-{stage}-1" for stage in REUSABLE]
    assert [attempt for attempt in world.executor.calls if attempt.startswith("r2")] == ["r2-verify-1"]
    assert why(found["etl"]) == "nothing has changed since r1-etl-1"
    assert why(found["verify"]) == "it measures this machine"
    first, second = (but_the_card(world.registry.get(NAME, number).files) for number in (1, 2))
    assert first == second


def test_a_third_run_reuses_what_the_first_has_published(world: World) -> None:
    lived(world, "r1")
    lived(world, "r2")
    assert lived(world, "r3")["train"].attempt == "r1-train-1"


def test_only_what_a_change_touches_runs_and_says_what_changed(world: World) -> None:
    lived(world, "r1")
    world.apply(model={"train": {"epochs": 9}})
    found = lived(world, "r2")
    assert reused(found) == ["etl"]
    assert why(found["train"]) == "spec: model.train.epochs is 9, was 5"
    assert why(found["evaluate"]) == "input: train changed"
    assert why(found["refit"]) == "input: train changed; spec: model.train.epochs is 9, was 5"
    assert why(found["export"]) == "input: etl changed; input: train changed; spec: model.train.epochs is 9, was 5"


def test_to_switch_the_refit_on_or_off_trains_no_candidate_again(world: World) -> None:
    world.apply(split={"refit": False})
    first = lived(world, "r1")
    assert list(first) == [stage for stage in STAGES if stage != "refit"]
    world.apply(split={"refit": True})
    found = lived(world, "r2")
    assert reused(found) == ["etl", "train", "evaluate"]
    assert why(found["export"]) == "input: etl changed; input: train changed"
    world.apply(split={"refit": False})
    assert reused(lived(world, "r3")) == ["etl", "train", "evaluate", "export"]
    assert {one.gate for one in world.runs.get("r3").status.gates} == {one.gate for one in world.runs.get("r1").status.gates}


def test_changed_data_is_named(world: World) -> None:
    lived(world, "r1")
    world.data.marks["b.csv"] = "2 bytes"
    found = lived(world, "r2")
    assert reused(found) == []
    assert why(found["etl"]) == "data: b.csv is 2 bytes, was 1 byte"


def test_data_that_moves_while_it_is_read_is_reused_by_nobody(world: World) -> None:
    world.start_run("r1")
    plane = world.plane()
    world.until(plane, "etl", "run")
    world.data.marks["a.csv"] = "2 bytes"
    world.until(plane, "registered", "run")
    assert why(stages(world, "r1")["etl"]) == "nothing to reuse yet; the data changed while it was read"
    world.data.marks["a.csv"] = "1 byte"
    assert "etl" not in reused(lived(world, "r2"))


def test_data_that_can_not_be_seen_is_read_anew(world: World) -> None:
    lived(world, "r1")
    world.data.marks.clear()
    found = lived(world, "r2")
    assert "etl" not in reused(found)
    assert why(found["etl"]) == "the control plane cannot check the data for changes"


def test_a_fresh_run_runs_everything_and_stands_for_later_ones(world: World) -> None:
    lived(world, "r1")
    found = lived(world, "r2", fresh=True)
    assert reused(found) == []
    assert {why(found[stage]) for stage in REUSABLE} == {"requested with 'fresh': no stage is reused"}
    assert lived(world, "r3")["etl"].attempt == "r2-etl-1"


@pytest.mark.parametrize("what", ["manifests/r1-train-1.json", "blobs"])
def test_what_is_gone_from_the_artifacts_is_made_again(world: World, what: str) -> None:
    lived(world, "r1")
    (file,) = world.artifacts.manifest("r1-train-1").files.values()  # type: ignore[union-attr]
    root = Path(world.artifacts.url)
    path = root / what if what != "blobs" else root / "blobs" / file.sha256[:2] / file.sha256
    path.unlink()
    found = lived(world, "r2")
    assert found["etl"].reused
    assert not found["train"].reused
    assert why(found["train"]) == "artifacts of r1-train-1 are missing or damaged"


def test_a_file_with_a_flipped_bit_is_made_again(world: World) -> None:
    lived(world, "r1")
    (file,) = world.artifacts.manifest("r1-train-1").files.values()  # type: ignore[union-attr]
    path = Path(world.artifacts.url) / "blobs" / file.sha256[:2] / file.sha256
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    found = lived(world, "r2")
    assert found["etl"].reused
    assert (found["train"].reused, why(found["train"])) == (False, "artifacts of r1-train-1 are missing or damaged")
    assert lived(world, "r3")["train"].attempt == "r2-train-1"


def test_a_damaged_manifest_is_as_good_as_none(world: World) -> None:
    lived(world, "r1")
    (Path(world.artifacts.url) / "manifests" / "r1-etl-1.json").write_text("{")
    assert "etl" not in reused(lived(world, "r2"))


def test_a_refusal_is_never_reused(world: World) -> None:
    world.plays["train"] = ["refuse"]
    lived(world, "r1", "failed")
    world.plays.clear()
    found = lived(world, "r2")
    assert reused(found) == ["etl"]


def test_a_gate_that_was_raised_judges_what_is_reused(world: World) -> None:
    lived(world, "r1")
    world.apply(gates=[{"metric": "auc", "min": 0.9}])
    found = lived(world, "r2", "rejected")
    assert reused(found) == ["etl", "train", "evaluate"]
    assert "auc is 0.8 < 0.9" in world.runs.get("r2").status.reason


def test_a_warm_run_takes_the_events_anew_each_time(world: World) -> None:
    lived(world, "r1")
    world.serve(1)
    for id in ("r2", "r3"):
        world.hero = ("", "")
        world.start_run(id, mode="warm", serving=1)
        world.until(world.plane(), "registered", "run")
        assert why(stages(world, id)["etl"]) == "the platform's events are read again by each run"


# Retrying


@pytest.mark.requirement("C-03")
def test_a_retry_takes_over_what_was_published_whatever_has_changed_since(world: World) -> None:
    world.plays["evaluate"] = ["crash"] * 3
    lived(world, "r1", "failed")
    assert world.runs.get("r1").status.dead_letter
    world.data.marks["a.csv"] = "2 bytes"
    world.plays.clear()
    world.retry("r1", "r2")
    world.until(world.plane(), "registered", "run")
    found = stages(world, "r2")
    assert [found[stage].attempt for stage in STAGES[:3]] == ["r1-etl-1", "r1-train-1", "r2-evaluate-1"]
    assert why(found["etl"]) == "published by run r1"
    version = world.registry.of_run("r2")
    assert version is not None
    assert (version.lineage.retry_of, version.lineage.asked_by) == ("r1", "ada")
    assert version.lineage.data.files == {"a.csv": "1 byte", "b.csv": "1 byte"}
    assert version.lineage.snapshot == stages(world, "r1")["etl"].started_at


def test_a_retry_whose_first_stage_is_gone_makes_everything_again(world: World) -> None:
    world.plays["evaluate"] = ["refuse"]
    lived(world, "r1", "failed")
    world.plays.clear()
    world.data.marks["a.csv"] = "2 bytes"
    (Path(world.artifacts.url) / "manifests" / "r1-etl-1.json").unlink()
    world.retry("r1", "r2")
    world.until(world.plane(), "registered", "run")
    assert reused(stages(world, "r2")) == [], "a model goes with its own features"


# Lineage


@pytest.mark.requirement("G-11")
def test_a_version_says_where_everything_in_it_comes_from(world: World) -> None:
    lived(world, "r1")
    world.apply(model={"train": {"epochs": 9, "seed": 3}})
    lived(world, "r2")
    lineage = world.registry.get(NAME, 2).lineage
    assert (lineage.spec_generation, lineage.mode, lineage.cause, lineage.asked_by) == (2, "full", "a test", "ada")
    assert (lineage.code, lineage.seeds, lineage.retry_of) == ("1.0 test", {"train": 3}, None)
    assert lineage.data.files == {"a.csv": "1 byte", "b.csv": "1 byte"}
    assert lineage.attempts["etl"].reused
    assert lineage.attempts["train"].attempt == "r2-train-1"
    assert lineage.spec_digest != world.registry.get(NAME, 1).lineage.spec_digest


# Plans


def foreseen(world: World) -> dict[str, tuple[str, str | None]]:
    run = new_run(world.recommenders.get(NAME), "planned", "full", "a plan", None, world.clock.now())
    return {one.stage: (one.does, one.attempt) for one in world.plane().planner.plan(run).stages}


def test_a_plan_says_how_long_each_stage_took_the_last_time_and_its_memory(world: World) -> None:
    def plan() -> dict[str, tuple[float | None, str | None]]:
        run = new_run(world.recommenders.get(NAME), "planned", "full", "a plan", None, world.clock.now())
        return {one.stage: (one.seconds, one.memory) for one in world.plane().planner.plan(run).stages}

    world.apply(resources={"train": {"memory": "8Gi"}}, split={"refit": False})
    assert plan() == dict.fromkeys(("etl", "evaluate", "export", "verify"), (None, None)) | {"train": (None, "8Gi")}
    lived(world, "r1")
    took = {done.stage: (done.ended_at - done.started_at).total_seconds() for done in world.runs.get("r1").status.stages}
    assert all(seconds > 0 for seconds in took.values())
    world.apply(resources={"train": {"memory": "8Gi"}}, model={"train": {"epochs": 9}})
    found = plan()
    assert found["etl"] == (None, None), "it is reused"
    assert found["train"] == found["refit"] == (took["train"], "8Gi"), "a refit that has never run takes as long as train"
    lived(world, "r2")
    world.apply(resources={"train": {"memory": "8Gi"}}, model={"train": {"epochs": 8}})
    done = {one.stage: one for one in world.runs.get("r2").status.stages}
    assert plan()["refit"][0] == (done["refit"].ended_at - done["refit"].started_at).total_seconds()


def test_a_plan_is_what_the_run_then_does(world: World) -> None:
    world.apply()
    assert {does for does, _ in foreseen(world).values()} == {"run"}
    lived(world, "r1")
    before = len(world.runs.list())
    assert foreseen(world) == {stage: ("reuse", f"r1-{stage}-1") for stage in REUSABLE} | {"verify": ("run", None)}
    world.apply(serve={"filter": []})
    plan = foreseen(world)
    assert plan == {
        "etl": ("reuse", "r1-etl-1"),
        "train": ("reuse", "r1-train-1"),
        "evaluate": ("run", None),
        "refit": ("run", None),
        "export": ("open", None),
        "verify": ("run", None),
    }
    assert len(world.runs.list()) == before
    assert reused(lived(world, "r2")) == ["etl", "train"]
    world.data.marks["a.csv"] = "2 bytes"
    assert {stage: does for stage, (does, _) in foreseen(world).items()} == {
        "etl": "run",
        "train": "open",
        "evaluate": "open",
        "refit": "open",
        "export": "open",
        "verify": "run",
    }


def test_a_database_is_asked_anew_by_every_run(world: World) -> None:
    query = {"query": "SELECT * FROM did", "from": "shop"}
    world.apply(data={"interactions": query, "items": {"uri": "b.csv", "key": "movieId"}})
    lived(world, "r1")
    found = lived(world, "r2")
    assert "etl" not in reused(found)
    assert why(found["etl"]) == "the database is queried again by each run"


@pytest.mark.requirement("G-08")
def test_what_was_written_of_users_is_taken_anew_by_every_run(world: World) -> None:
    tables = {"interactions": {"uri": "a.csv"}, "items": {"uri": "b.csv", "key": "movieId"}, "users": {"uri": "b.csv", "key": "userId"}}
    world.apply(data=tables)
    lived(world, "r1")
    assert world.executor.given["r1-etl-1"].inputs.keys() == {"ids"}
    assert "etl" in reused(lived(world, "r2")), "nothing was written"
    world.history.append(NAME, "users", [StoredRow(7, world.clock.now(), {"age": 34})])
    world.clock.pass_by(seconds=1)
    for id in ("r3", "r4"):
        found = lived(world, id)
        assert why(found["etl"]) == "written user values are read again by each run"
        (file,) = world.executor.given[f"{id}-etl-1"].inputs["features"].items()
        assert file[0] == "users.jsonl"
        assert b'"age":34' in world.artifacts.read(file[1]).replace(b" ", b"")


def test_data_that_was_replaced_with_its_time_and_its_size_kept_is_other_data(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user,item\n1,2\n")
    data, at = DataFiles((str(tmp_path),)), path.stat().st_mtime_ns
    before = data.fingerprint("a.csv")
    path.write_text("user,item\n3,4\n")
    os.utime(path, ns=(at, at))
    assert path.stat().st_mtime_ns == at
    assert data.fingerprint("a.csv") != before


def test_another_image_or_another_package_is_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    here = code_version()
    assert code_version() == here
    assert len({here, code_version("default=eyas:1"), code_version("default=eyas:2")}) == 3
    monkeypatch.setattr("importlib.metadata.distributions", lambda: [])
    assert code_version() != here


@pytest.mark.requirement("G-05")
def test_new_data_is_compared_with_what_the_last_version_has_learned_from(world: World) -> None:
    world.more = {"etl": (PROFILE,)}
    lived(world, "r1")
    world.data.marks["a.csv"] = "2 bytes"
    lived(world, "r2")
    world.data.marks["a.csv"] = "3 bytes"
    lived(world, "r3")
    started = {one.run: one.inputs.get(ACCEPTED) for one in world.executor.started if one.stage == "etl"}
    manifests = {run: world.artifacts.manifest(f"{run}-etl-1") for run in ("r1", "r2")}
    profiles = {run: {PROFILE: found.files[PROFILE]} for run, found in manifests.items() if found}
    assert started == {"r1": None, "r2": profiles["r1"], "r3": profiles["r2"]}


def test_unchanged_data_is_not_judged_again_after_it_was_accepted(world: World) -> None:
    world.more = {"etl": (PROFILE,)}
    lived(world, "r1")
    assert lived(world, "r2")["etl"].reused
    assert lived(world, "r3")["etl"].attempt == "r1-etl-1"


def test_data_that_was_used_before_is_judged_again_if_other_data_was_accepted_since(world: World) -> None:
    world.more = {"etl": (PROFILE,)}
    lived(world, "r1")
    world.data.marks["a.csv"] = "2 bytes"
    lived(world, "r2")
    world.data.marks["a.csv"] = "1 byte"
    found = lived(world, "r3")
    assert not found["etl"].reused
    assert why(found["etl"]) == "other data was accepted after r1-etl-1 was validated"


def test_data_of_a_run_that_came_to_nothing_stands_as_long_as_it_was_compared_with_the_same(world: World) -> None:
    world.more = {"etl": (PROFILE,)}
    world.plays["evaluate"] = ["refuse"]
    lived(world, "r1", "failed")
    world.plays = {}
    assert lived(world, "r2")["etl"].attempt == "r1-etl-1"


ENCODES = [
    {"categorify": ["person", "film"]},
    {"vector": {"of": "film", "width": 2, "encode": {"column": "title", "encoder": "words.onnx", "images": "posters"}}},
]


@pytest.mark.requirement("G-30")
def test_vectors_that_the_newest_etl_has_worked_out_are_there_for_the_next(world: World) -> None:
    world.more = {"etl": (ENCODED,)}
    world.data.marks |= {"words.onnx": "1 byte", "posters": "1 byte"}
    world.apply(features=ENCODES)
    lived(world, "r1")
    assert reused(lived(world, "r2")) == list(REUSABLE), "they are no part of what etl is made of"
    for id, changed in (("r3", "posters"), ("r4", "words.onnx"), ("r5", "a.csv")):
        world.data.marks[changed] = f"of {id}"
        assert "etl" not in reused(lived(world, id))
    lived(world, "r6", fresh=True)
    world.apply()
    lived(world, "r7")
    given = {one.run: one.inputs.get(EARLIER) for one in world.executor.started if one.stage == "etl"}
    published = {run: {ENCODED: found.files[ENCODED]} for run in given if (found := world.artifacts.manifest(f"{run}-etl-1"))}
    assert given == {"r1": None, "r3": published["r1"], "r4": published["r3"], "r5": published["r4"], "r6": None, "r7": None}


@pytest.mark.requirement("G-30")
def test_vectors_of_a_version_count_where_no_newer_etl_has_any(world: World) -> None:
    world.more = {"etl": (ENCODED,)}
    world.data.marks |= {"words.onnx": "1 byte", "posters": "1 byte"}
    world.apply(features=ENCODES)
    lived(world, "r1")
    world.more, world.metrics = {}, {"evaluate": {"candidate.auc": 0.1}}
    world.apply()
    lived(world, "r2", "rejected")
    world.apply(features=ENCODES, split={"test": "30%"})
    lived(world, "r3", "rejected")
    manifest = world.artifacts.manifest("r1-etl-1")
    assert manifest is not None
    assert world.executor.given["r3-etl-1"].inputs[EARLIER] == {ENCODED: manifest.files[ENCODED]}


# Forgotten users


@pytest.mark.requirement("U-11")
def test_no_stage_of_before_a_forgetting_is_reused(world: World) -> None:
    lived(world, "r1")
    world.plane().forgotten.forget(NAME, 1, world.clock.now)
    world.clock.pass_by(seconds=1)
    done_by_stage = lived(world, "r2")
    assert not done_by_stage["etl"].reused and "forgotten users is new" in why(done_by_stage["etl"])
    assert list(world.executor.given["r2-etl-1"].inputs["forgotten"]) == ["forgotten.json"]
    assert lived(world, "r3")["etl"].attempt == "r2-etl-1"


@pytest.mark.requirement("U-11")
def test_a_retry_adopts_no_stage_that_knows_a_forgotten_user(world: World) -> None:
    world.plays["evaluate"] = ["crash"] * 3
    lived(world, "r1", "failed")
    world.plane().forgotten.forget(NAME, 1, world.clock.now)
    world.plays.clear()
    world.clock.pass_by(seconds=1)
    world.retry("r1", "r2")
    world.until(world.plane(), "registered", "run")
    done_by_stage = stages(world, "r2")
    assert [done_by_stage[stage].attempt for stage in STAGES[:2]] == ["r2-etl-1", "r2-train-1"]
    version = world.registry.of_run("r2")
    assert version is not None and version.lineage.snapshot == done_by_stage["etl"].started_at
