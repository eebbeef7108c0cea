"""Runs in the loop: from a spec to a registered version, on the real stores, each effect once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from shared.contracts.plans import TAKES
from shared.domain.run import STAGES, Job, RunStatus
from tests.support.simulated_platform import NAME, NOW, REFITTED, World


def run_of(world: World) -> RunStatus:
    return world.runs.get("r1").status


def test_a_run_goes_from_pending_to_registered_stage_by_stage(world: World) -> None:
    world.start_run()
    world.until(world.plane(), "registered", "run")
    assert world.path() == ["pending", *STAGES, "registered"]
    assert [(done.stage, done.attempt) for done in run_of(world).stages] == [(stage, f"r1-{stage}-1") for stage in STAGES]
    assert [result.verdict for result in run_of(world).gates] == ["pass", "pass", "pass"]


def test_every_effect_of_a_run_happens_once(world: World) -> None:
    world.start_run()
    world.until(world.plane(), "registered", "run")
    assert world.executor.calls == {f"r1-{stage}-1": 1 for stage in STAGES}
    assert world.executor.stopped == []
    assert [version.run for version in world.registry.list(NAME)] == ["r1"]
    assert [rollout.id for rollout in world.rollouts.list(NAME)] == ["r1-rollout"]


def test_each_stage_gets_the_files_of_those_that_it_reads_and_no_others(world: World) -> None:
    world.start_run()
    world.until(world.plane(), "registered", "run")
    for one in world.executor.started:
        wanted = {stage: [f"{stage}.bin"] for stage in TAKES[one.stage]}
        if one.stage == "etl":
            wanted = {"ids": ["id.key"]}
        if one.stage == "export":
            wanted = {"etl": ["etl.bin", "refit.bin"], "train": ["refit.bin"]}
        assert {name: sorted(files) for name, files in one.inputs.items()} == wanted
        assert (one.run, one.mode, one.data_roots, one.artifacts) == ("r1", "full", ("/data",), world.artifacts.url)
        assert one.families == ("acme.fading",)


def test_export_reads_what_the_refit_has_published_instead_of_files_of_the_same_names(world: World) -> None:
    world.more = {stage: (name,) for stage, name in (("etl", "features.json"), ("train", "model.json"))}
    world.more["refit"] = ("features.json", "model.json")
    world.start_run()
    world.until(world.plane(), "registered", "run")
    files = {stage: world.artifacts.manifest(f"r1-{stage}-1").files for stage in STAGES}  # type: ignore[union-attr]
    export = world.executor.given["r1-export-1"].inputs
    assert export["train"] == files["refit"]
    assert export["etl"] == files["etl"] | files["refit"]
    assert world.executor.given["r1-refit-1"].inputs == {"etl": files["etl"], "train": files["train"]}


def test_without_a_refit_export_reads_the_candidate(world: World) -> None:
    world.apply(split={"refit": False})
    world.start_run()
    world.until(world.plane(), "registered", "run")
    assert world.path() == ["pending", *(stage for stage in STAGES if stage != "refit"), "registered"]
    assert {name: sorted(files) for name, files in world.executor.given["r1-export-1"].inputs.items()} == {
        "etl": ["etl.bin"],
        "train": ["train.bin"],
    }


def test_a_refit_that_ranks_surely_worse_is_rejected(world: World) -> None:
    world.metrics["refit"] = {**REFITTED, "refit.hr@10": 0.2}
    world.start_run()
    world.until(world.plane(), "rejected", "run")
    assert run_of(world).reason == (
        "hr@10 of the refitted model is 0.2, candidate's is 0.25 (standard error of the difference 0.01, 900 users)"
    )
    assert [done.stage for done in run_of(world).stages] == ["etl", "train", "evaluate", "refit"]
    assert world.registry.list(NAME) == []


def compare_with_serving(world: World) -> None:
    sure = {"candidate.auc.se": 0.01, "serving.auc.se": 0.01, "candidate.auc.se_to.serving": 0.01}
    world.metrics["evaluate"] = {"candidate.auc": 0.9, "serving.auc": 0.8, **sure}
    world.apply(gates=[{"metric": "auc", "not_worse_than": "serving"}])


def test_a_full_run_is_given_a_model_of_the_serving_line_that_has_not_learned_its_holdout(world: World) -> None:
    """Of the last full run, before its refit: a warm version goes on from a refit, so it has learned all rows up to then."""
    compare_with_serving(world)
    world.more = {"refit": ("refit.json",)}
    plane = world.plane()
    for id, mode, serving, wanted in (
        ("r1", "full", None, {}),
        ("r2", "full", 1, {"etl.bin": "r1-etl", "train.bin": "r1-train", "refit.json": "r1-refit"}),
        ("r3", "warm", 1, {}),
        ("r4", "warm", 3, {}),
        ("r5", "full", 4, {"etl.bin": "r1-etl", "train.bin": "r1-train", "refit.json": "r4-refit"}),
    ):
        world.hero = ("", "")
        world.start_run(id, mode=mode, serving=serving, fresh=True)
        world.until(plane, "registered", "run")
        attempt = next(one.attempt for one in world.runs.get(id).status.stages if one.stage == "evaluate")
        given = world.executor.given[attempt].inputs.get("serving_before_refit", {})
        origins = {name: world.artifacts.manifest(f"{origin}-1") for name, origin in wanted.items()}
        assert given == {name: manifest.files[name] for name, manifest in origins.items() if manifest is not None}, id
        world.serve(1)


def test_without_the_model_before_the_refit_a_full_run_is_told_what_the_version_has_learned(world: World) -> None:
    compare_with_serving(world)
    world.more = {"refit": ("refit.json",), "etl": ("train.parquet",)}
    plane = world.plane()
    for id, mode, serving in (("r1", "full", None), ("r2", "warm", 1), ("r3", "full", 2)):
        world.hero = ("", "")
        if id == "r3":
            (world.folder / "artifacts" / "manifests" / "r1-train-1.json").unlink()
        world.start_run(id, mode=mode, serving=serving, fresh=True)
        world.until(plane, "registered", "run")
        world.serve(1)
    attempt = next(one.attempt for one in world.runs.get("r3").status.stages if one.stage == "evaluate")
    assert sorted(world.executor.given[attempt].inputs["serving_before_refit"]) == ["refit.json", "train.parquet"]


@pytest.mark.requirement("G-11")
def test_recommendations_of_a_version_are_shown_under_its_name(world: World) -> None:
    world.more = {"export": ("recommendations.parquet",)}
    world.start_run()
    world.until(world.plane(), "registered", "run")
    shown = world.folder / "artifacts" / "recommendations" / NAME / "1.parquet"
    assert shown.read_bytes() == world.artifacts.read(world.registry.get(NAME, 1).files["recommendations.parquet"])


def test_a_registered_version_carries_its_files_metrics_and_lineage_into_its_rollout(world: World) -> None:
    world.start_run()
    world.until(world.plane(), "registered", "run")
    version = world.registry.get(NAME, 1)
    assert sorted(version.files) == ["export.bin", "model_card.json"]
    assert version.metrics == {"candidate.auc": 0.8, "parity": 1e-7, **REFITTED}
    assert (version.parent, version.lineage.mode, version.lineage.cause, version.lineage.spec_generation) == (
        None,
        "full",
        "a test",
        1,
    )
    assert version.lineage.snapshot == NOW
    rollout = world.rollouts.get("r1-rollout")
    assert (rollout.spec.version, rollout.status.state) == (1, "pending")


def test_the_history_says_when_each_transition_happened_and_who_asked(world: World) -> None:
    world.start_run()
    plane = world.plane()
    world.until(plane, "train", "run")
    world.ask("cancel", actor="bob")
    world.until(plane, "cancelled", "run")
    lines = [(entry.source, entry.target, entry.reason, entry.actor) for entry in world.runs.history("r1")]
    assert lines == [
        ("", "pending", "created", "ada"),
        ("pending", "etl", "", "eyas"),
        ("etl", "train", "", "eyas"),
        ("train", "cancelled", "cancel by bob", "bob"),
    ]
    assert [entry.at - NOW for entry in world.runs.history("r1")[1:3]] == [timedelta(0), timedelta(seconds=1)]


def test_a_commit_leaves_no_intent_and_no_request(world: World) -> None:
    world.start_run()
    plane = world.plane()
    world.until(plane, "train", "run")
    assert world.row().intent is None
    world.ask("cancel")
    plane.tick("run")
    assert (world.row().intent, world.row().request) == (None, None)
    assert world.executor.stopped == ["r1-train-1"]


# Runs that end otherwise


@pytest.mark.parametrize(("stage", "metric"), [("evaluate", "candidate.auc"), ("verify", "parity")])
def test_a_run_whose_gate_fails_is_rejected_with_the_reason_and_registers_nothing(world: World, stage: str, metric: str) -> None:
    world.metrics[stage] = {metric: 0.5}
    world.start_run()
    world.until(world.plane(), "rejected", "run")
    assert metric.rpartition(".")[2] in run_of(world).reason
    assert world.registry.list(NAME) == []
    assert world.rollouts.list(NAME) == []


def test_a_stage_that_refuses_its_data_ends_the_run_at_once(world: World) -> None:
    world.plays["etl"] = ["refuse"]
    world.start_run()
    world.until(world.plane(), "failed", "run")
    assert run_of(world).reason == "etl: no column 'at'"
    assert list(world.executor.calls) == ["r1-etl-1"]


def test_a_stage_that_crashed_is_tried_again_under_the_next_name(world: World) -> None:
    world.plays["train"] = ["crash", "publish"]
    world.start_run()
    world.until(world.plane(), "registered", "run")
    assert [done.attempt for done in run_of(world).stages if done.stage == "train"] == ["r1-train-2"]
    assert world.path() == ["pending", "etl", "train", "train", *STAGES[2:], "registered"]


def test_a_stage_that_runs_too_long_is_stopped_before_it_is_tried_again(world: World) -> None:
    world.apply(resources={"train": {"timeout": "5s"}})
    world.plays["train"] = ["hang", "publish"]
    world.start_run()
    world.until(world.plane(), "registered", "run")
    assert world.executor.stopped == ["r1-train-1"]
    assert run_of(world).stages[1].attempt == "r1-train-2"


def test_what_was_published_counts_even_if_the_process_died_afterwards(world: World) -> None:
    plane = world.plane()
    world.start_run()
    plane.tick("run")
    world.publish("etl", "r1-etl-1")
    world.executor.end("r1-etl-1", Job("failed", "killed by signal 9"))
    plane.tick("run")
    assert run_of(world).state == "train"
    assert "r1-etl-2" not in world.executor.calls


@pytest.mark.requirement("C-03")
def test_a_second_run_of_a_recommender_waits_for_the_first(world: World) -> None:
    plane = world.plane()
    world.start_run("r1")
    world.clock.pass_by(seconds=1)
    world.start_run("r2")
    world.until(plane, "export", "run")
    assert world.runs.get("r2").status == RunStatus(reason="waits for run r1 of this recommender")
    world.until(plane, "registered", "run")
    world.hero = ("run", "r2")
    world.until(plane, "registered", "run")
    assert [version.run for version in world.registry.list(NAME)] == ["r1", "r2"]


def test_single_flight_holds_for_any_number_of_waiting_runs(world: World) -> None:
    plane = world.plane()
    for number in range(102):
        world.start_run(f"r{number:03}")
        world.clock.pass_by(milliseconds=1)
    plane.tick("run")
    plane.tick("run")
    assert list(world.executor.calls) == ["r000-etl-1"]


# A warm run


@pytest.mark.requirement("G-09")
def test_a_warm_run_gets_the_parents_files_and_the_events_since_its_snapshot(world: World) -> None:
    plane = world.plane()
    world.start_run("r1")
    world.until(plane, "registered", "run")
    world.serve(1)
    route = world.routes.get(NAME)
    assert route is not None
    world.visit(route, "stable", 1)
    world.clock.pass_by(seconds=1)
    world.hero = ("", "")
    world.start_run("r2", mode="warm", serving=1)
    world.until(plane, "registered", "run")
    etl, train, evaluate, refit = world.executor.started[6:10]
    assert sorted(etl.inputs) == ["events", "parent"]
    assert sorted(etl.inputs["parent"]) == ["etl.bin", "refit.bin"]
    assert world.artifacts.read(etl.inputs["events"]["events.csv"]).decode().count("\n") == 41
    assert sorted(train.inputs) == ["etl", "parent"]
    assert sorted(evaluate.inputs) == ["etl", "parent", "train"]
    assert evaluate.inputs["parent"] == train.inputs["parent"] == refit.inputs["parent"]
    assert sorted(refit.inputs) == ["etl", "parent", "train"]
    assert world.registry.get(NAME, 2).parent == 1


# The queue


@pytest.mark.requirement("C-03")
def test_no_more_than_so_many_runs_work_at_once_and_the_higher_priority_goes_first(world: World) -> None:
    world.max_runs = 2
    plane = world.plane()
    made = world.start_run("r0")
    for number in range(1, 5):
        world.runs.create(replace(made, id=f"r{number}", recommender=world.another(f"rec{number}"), priority=number), "ada")
    plane.tick("run")
    assert set(world.executor.calls) == {"r4-etl-1", "r3-etl-1"}
    assert world.runs.get("r0").status.reason == "2 of 2 runs are active"
    assert plane.planner.turns()["r0"].summary == "third in the queue: 2 of 2 runs are active"
    for _ in range(60):
        world.round(plane, "run")
        assert sum(row.active for row in world.runs.queued()) <= 2
    assert {run.status.state for run in world.runs.list()} == {"registered"}


def test_hundreds_of_waiting_runs_are_one_look_at_the_queue_and_written_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    plane = world.plane()
    queued = plane.runs.queued
    monkeypatch.setattr(plane.runs, "queued", lambda: (looks.append(1), queued())[1])
    made = world.start_run("first")
    for number in range(250):
        world.runs.create(replace(made, id=f"r{number:04}", recommender=world.another(f"rec{number:04}")), "ada")
    world.clock.pass_by(seconds=1)
    plane.tick("run")
    assert len(looks) == 1
    assert len(world.executor.calls) == 4
    world.clock.pass_by(seconds=1)
    revisions = {run.id: run.revision for run in world.runs.list(active=True, limit=2000) if run.status.state == "pending"}
    world.round(plane, "run")
    world.round(plane, "run")
    assert {run.id: run.revision for run in world.runs.list(active=True, limit=2000) if run.status.state == "pending"} == revisions


@pytest.mark.requirement("C-03")
def test_several_control_planes_let_in_no_more_than_one_would(world: World) -> None:
    """Each looks before the other has started what it let in."""
    world.several, world.max_runs = True, 2
    planes = [world.plane(), world.plane()]
    made = world.start_run("r0")
    for number in range(1, 6):
        world.runs.create(replace(made, id=f"r{number}", recommender=world.another(f"rec{number % 3}")), "ada")
    for round in range(120):
        plane = planes[round % 2]
        record = next((run for run in world.runs.list(active=True) if run.status.state == "pending" and run.intent is None), None)
        if record is not None:
            other = planes[1 - round % 2]
            before = [row for row in world.runs.queued() if row.active]
            mine, theirs = plane.turns.wait(record) is None, other.turns.wait(record) is None
            assert not (mine and theirs), "both let it in"
            assert len(before) + mine + theirs <= 2
        world.round(plane, "run")
        active = [row for row in world.runs.queued() if row.active]
        assert len(active) <= 2
        assert len({row.recommender for row in active}) == len(active)
    assert {run.status.state for run in world.runs.list()} == {"registered"}


def test_a_control_plane_that_died_in_the_turnstile_holds_the_others_up_for_its_term_only(world: World) -> None:
    world.several = True
    dead, alive = world.plane(), world.plane()
    world.start_run()
    assert dead.turns.wait(world.runs.get("r1")) is None
    alive.tick("run")
    assert (run_of(world).state, run_of(world).reason) == ("pending", "in the queue")
    world.clock.pass_by(seconds=6)
    alive.tick("run")
    assert run_of(world).state == "etl"


@pytest.mark.requirement("C-02")
def test_a_run_shows_what_its_job_waits_for_and_goes_on_when_it_has_its_place(world: World) -> None:
    world.plays["train"] = ["starve"]
    world.start_run()
    plane = world.plane()
    world.until(plane, "train", "run")
    world.round(plane, "run")
    assert run_of(world).reason == "train waits: no node has a GPU free"
    world.round(plane, "run")
    assert run_of(world).reason == ""
    world.until(plane, "registered", "run")
    assert [done.attempt for done in run_of(world).stages if done.stage == "train"] == ["r1-train-1"]


@pytest.mark.requirement("G-11")
@pytest.mark.parametrize("state", ["pending", "etl", "train"])
def test_a_warm_run_whose_parent_was_collected_fails_at_once_and_says_so(world: World, state: str) -> None:
    plane = world.plane()
    world.start_run("r1")
    world.until(plane, "registered", "run")
    world.hero = ("", "")
    world.start_run("r2", mode="warm", serving=1)
    world.until(plane, state, "run")
    assert world.registry.collect(NAME, 1, world.clock.now())
    if state == "train":
        for stage in ("etl", "train"):
            (world.folder / "artifacts" / "manifests" / f"r1-{stage}-1.json").unlink()
    world.until(plane, "failed", "run")
    assert "starts from version 1 of 'films', which was collected on 2026-01-01" in world.row().status.reason
    assert not world.row().status.dead_letter
    assert world.registry.list(NAME)[-1].number == 1
