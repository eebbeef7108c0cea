"""The refit of families that learn from likes alone, in full and warm runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.models.chosen_settings import with_chosen_settings
from pipelines.stages.replay import withhold
from shared.contracts.families import GbmParams, MfParams
from shared.contracts.models import Model
from shared.contracts.plans import run_plan
from shared.contracts.refit import Refit
from shared.contracts.stage import BROKEN, MISSING, Files
from shared.domain.gate import Silence, Verdict, judge
from tests.support.refitted import Stages, check_refit

pytestmark = pytest.mark.requirement("G-09")

PAIR = ["user", "item"]
MODELS: list[dict[str, Any]] = [
    {"family": "popularity"},
    {"family": "ease"},
    {"family": "itemknn"},
    {"family": "transitions"},
    {"family": "blend"},
    {"family": "mf"},
    {"family": "mf", "params": {"loss": "softmax", "epochs": 4}},
]


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    return Stages(tmp_path)


@pytest.mark.parametrize("model", MODELS, ids=lambda one: one["family"] + one.get("params", {}).get("loss", ""))
def test_what_is_exported_has_learned_the_newest_rows(stages: Stages, model: dict[str, Any]) -> None:
    stages.run(stages.spec(model=model))
    check_refit(stages)


def test_a_line_of_warm_runs_never_trains_on_what_it_has_held_out(stages: Stages) -> None:
    spec = stages.spec(model={"family": "mf"})
    stages.run(spec)
    held, trained, before = (
        stages.rows("refit", "held.parquet"),
        [stages.rows("refit", "train.parquet")],
        len(stages.rows("refit", "train.parquet")),
    )
    for number in (2, 3):
        inputs = {"events": stages.events(number, 1.6e9 + number * 1e6), "parent": stages.parent}
        stages.run(spec, f"r{number}", inputs, mode="warm")
        past, now = stages.rows("etl", "past.parquet"), stages.rows("refit", "train.parquet")
        candidate = stages.rows("etl", "held.parquet")
        met = pl.concat([stages.rows("etl", "train.parquet").select(PAIR)])
        assert candidate.join(held, on=PAIR, how="anti").is_empty(), "its candidate holds out what its parent did"
        assert candidate.select(PAIR).sort(PAIR).equals(held.join(met, on=PAIR, how="anti").select(PAIR).sort(PAIR))
        assert len(past) == before, "each row of the parent's once"
        held = stages.rows("refit", "held.parquet")
        assert candidate.join(held, on=PAIR, how="anti").is_empty()
        assert len(held) > len(candidate), "and likes of its own holdout"
        for rows in (now, past, stages.rows("refit", "past.parquet"), stages.rows("refit", "holdout.parquet")):
            assert rows.join(held if rows is not past else candidate, on=PAIR, how="semi").is_empty()
        trained.append(now)
        before = len(stages.rows("refit", "past.parquet").join(held, on=PAIR, how="anti")) + len(now)
        newest = stages.rows("etl", "holdout.parquet").join(held, on=PAIR, how="anti")["time"].max()
        assert now["time"].max() == newest == stages.done["refit"].facts["newest"]


def test_a_refit_encodes_its_rows_alike_each_time(stages: Stages) -> None:
    """So that a try after one that was killed, and each of several ranks, meets the same batches."""
    spec = stages.spec(model={"family": "mf"})
    stages.run(spec)
    files = {stage: {name: stages.store.put(path) for name, path in stages.done[stage].files.items()} for stage in ("etl", "train")}
    again = stages.stage("refit", spec, files, "r2")
    assert [name for name, path in again.files.items() if path.read_bytes() != stages.done["refit"].files[name].read_bytes()] == []


def test_a_parent_without_a_refit_gives_half_of_its_holdout_and_all_of_its_rows(stages: Stages) -> None:
    spec = stages.spec(model={"family": "mf"})
    stages.run(spec)
    parent = {stage: {name: stages.store.put(path) for name, path in stages.done[stage].files.items()} for stage in ("etl", "train")}
    rows = len(stages.rows("etl", "train.parquet")) + len(stages.rows("etl", "holdout.parquet"))
    inputs = {"events": stages.events(2, 1.7e9), "parent": parent["etl"] | parent["train"]}
    found = stages.stage("etl", spec, inputs, "r2", mode="warm")
    held, past = (pl.read_parquet(found.files[name]) for name in ("held.parquet", "past.parquet"))
    assert len(held) > 10
    assert 0 <= rows - len(past) < 3 * len(held)


def test_a_version_that_has_learned_the_holdout_is_compared_as_it_was_before_its_refit(stages: Stages) -> None:
    gates = [{"metric": "hr@10", "not_worse_than": "serving"}]
    spec = stages.spec(model={"family": "mf"}, gates=gates, serve={"retrieve": {"candidates": 6}})
    stages.run(spec)
    files = {stage: {name: stages.store.put(path) for name, path in done.files.items()} for stage, done in stages.done.items()}
    inputs = {"etl": files["etl"], "train": files["train"], "serving": files["export"]}
    before = {**files["etl"], **files["train"], "refit.json": files["refit"]["refit.json"]}
    fair = stages.stage("evaluate", spec, inputs | {"serving_before_refit": before}, "r2")
    assert fair.facts["serving_before_its_refit"]
    for name in ("hr@10", "ndcg@10", "recall@6"):  # the same data, settings and seed make the same candidate
        assert fair.metrics[f"serving.{name}"] == pytest.approx(fair.metrics[f"candidate.{name}"])
    unfair = stages.stage("evaluate", spec, inputs, "r3")
    assert unfair.metrics["serving.hr@10"] > fair.metrics["serving.hr@10"] + 0.1
    path = stages.folder / "damaged.json"
    path.write_text("{")
    damaged = stages.stage("evaluate", spec, inputs | {"serving_before_refit": before | {"model.json": stages.store.put(path)}}, "r5")
    assert "JSONDecodeError" in damaged.facts[BROKEN]["serving"] and "serving.hr@10" not in damaged.metrics
    path = stages.folder / "refit.json"
    path.write_text(Refit(rows=9, newest=1.0, held=0).model_dump_json())
    older = before | {"refit.json": stages.store.put(path)}
    found = stages.stage("evaluate", spec, inputs | {"serving_before_refit": older}, "r4")
    assert "serving_before_its_refit" not in found.facts
    assert found.metrics["serving.hr@10"] == unfair.metrics["serving.hr@10"]


def test_the_model_before_its_refit_reads_no_value_of_the_refitted_version(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its unit holds all tables, however large they are: the stored values belong to the refit."""
    monkeypatch.setattr("pipelines.features.stored.LIMIT", 3)
    spec = stages.spec(model={"family": "mf"}, gates=[{"metric": "hr@10", "not_worse_than": "serving"}])
    stages.run(spec)
    files = files_of(stages)
    before = {**files["etl"], **files["train"], "refit.json": files["refit"]["refit.json"]}
    inputs = {"etl": files["etl"], "train": files["train"], "serving": files["export"], "serving_before_refit": before}
    evaluated = stages.stage("evaluate", spec, inputs, "r2")
    assert evaluated.facts["serving_before_its_refit"]
    assert evaluated.metrics["serving.hr@10"] == pytest.approx(evaluated.metrics["candidate.hr@10"])


def files_of(stages: Stages) -> dict[str, Files]:
    return {stage: {name: stages.store.put(path) for name, path in done.files.items()} for stage, done in stages.done.items()}


def test_a_full_run_after_a_warm_one_is_compared_with_the_last_full_run_before_its_refit(stages: Stages) -> None:
    """The warm version goes on from a refit, so even its model before its own refit has learned the new holdout."""
    spec = stages.spec(model={"family": "mf"}, gates=[{"metric": "hr@10", "not_worse_than": "serving"}])
    stages.run(spec)
    full = files_of(stages)
    stages.run(spec, "r2", {"events": stages.events(2, 1.7e9), "parent": stages.parent}, mode="warm")
    warm = files_of(stages)
    inputs = {"etl": full["etl"], "train": full["train"], "serving": warm["export"]}  # a full run on the same data
    before = {**full["etl"], **full["train"], "refit.json": warm["refit"]["refit.json"]}
    fair = stages.stage("evaluate", spec, inputs | {"serving_before_refit": before}, "r3")
    assert fair.facts["serving_before_its_refit"]
    assert fair.metrics["serving.hr@10"] == pytest.approx(fair.metrics["candidate.hr@10"])
    its_own = {**warm["etl"], **warm["train"], "refit.json": warm["refit"]["refit.json"]}
    unfair = stages.stage("evaluate", spec, inputs | {"serving_before_refit": its_own}, "r4")
    assert unfair.metrics["serving.hr@10"] > fair.metrics["serving.hr@10"] + 0.1


def test_a_model_that_was_trained_on_the_holdout_is_not_compared(stages: Stages) -> None:
    gates = [{"metric": "hr@10", "not_worse_than": "serving"}]
    spec = stages.spec(model={"family": "mf"}, gates=gates)
    stages.run(spec)
    done = files_of(stages)
    other = stages.spec(model={"family": "mf"}, gates=gates, split={"by": "random"})
    etl = stages.stage("etl", other, {}, "r2")
    files = {name: stages.store.put(path) for name, path in etl.files.items()}
    train = stages.stage("train", other, {"etl": files}, "r2")
    own = {"etl": files, "train": {name: stages.store.put(path) for name, path in train.files.items()}, "serving": done["export"]}
    rows = pl.read_parquet(etl.files["holdout.parquet"])
    learned = rows.join(stages.rows("etl", "train.parquet"), on=["user", "item", "time"], how="semi")
    remedy = "To accept the run without the comparison, retry it with --accept"
    trained = f"it was trained on {len(learned)} of the {len(rows)} rows of this holdout: the split or the data have changed. {remedy}"
    about = {"refit.json": done["refit"]["refit.json"]}
    lost = f"it has learned rows of this holdout, and its model before the refit is deleted. {remedy}"
    for number, (before, why) in enumerate(
        (
            ({**done["etl"], **done["train"], **about}, trained),
            ({"train.parquet": done["etl"]["train.parquet"]}, trained),
            (about, lost),
            (about | {"train.parquet": done["etl"]["train.parquet"]}, lost),
        )
    ):
        found = stages.stage("evaluate", other, own | {"serving_before_refit": before}, f"r{number + 3}")
        assert found.facts["serving_not_comparable"] == why
        assert "serving.hr@10" not in found.metrics and "candidate.hr@10" in found.metrics
        gate = next(gate for gate in run_plan(other).gates if gate.stage == "evaluate")
        assert found.facts[MISSING]["serving"] == why
        result = judge(gate, found.metrics, serving=True, silence=Silence(found.facts[MISSING]))
        assert (result.verdict, result.accepted) == (Verdict.INCONCLUSIVE, "")
        assert why in result.reason


def test_a_version_without_a_refit_is_compared_as_it_serves(stages: Stages) -> None:
    spec = stages.spec(model={"family": "mf"}, gates=[{"metric": "hr@10", "not_worse_than": "serving"}])
    stages.run(spec)
    done = files_of(stages)
    export = stages.stage("export", spec, {"etl": done["etl"], "train": done["train"]}, "r2")
    serving = {name: stages.store.put(path) for name, path in export.files.items()}
    inputs = {"etl": done["etl"], "train": done["train"], "serving": serving}
    before = {"train.parquet": done["etl"]["train.parquet"]}
    found = stages.stage("evaluate", spec, inputs | {"serving_before_refit": before}, "r3")
    assert "serving_before_its_refit" not in found.facts
    assert found.metrics["serving.hr@10"] == pytest.approx(found.metrics["candidate.hr@10"])


def frame(rows: list[tuple[int, int, int]]) -> pl.LazyFrame:
    return pl.LazyFrame(rows, schema={"user": pl.Int64, "item": pl.Int64, "label": pl.Int8}, orient="row").with_columns(time=pl.lit(1.0))


def test_only_likes_are_withheld_that_leave_rows_of_their_user_and_their_item() -> None:
    train = frame([(1, 1, 1), (2, 1, 0), (3, 2, 1)])
    holdout = frame([(1, 2, 1), (2, 9, 1), (4, 1, 1), (3, 2, 1), (3, 1, 0), *((user, 1, 1) for user in range(50, 66))])
    history = (
        pl.concat([train.with_columns(before="label"), holdout.with_columns(before=pl.lit(0, pl.Int8))])
        .group_by(PAIR)
        .agg(pl.col("label", "before").max())
    )
    found = withhold(train, holdout, history, None)
    assert found.select(PAIR).rows() == [(1, 2)], "not an item of the holdout alone, a user's only row, an old like, or a dislike"
    line = withhold(train, holdout, history, frame([(7, 1, 1)]))
    assert sorted(line.select(PAIR).rows()) == [(1, 2), (7, 1)]


def settle(tmp_path: Path, model: Model, said: dict[str, Any], report: dict[str, Any] | None) -> Model:
    (tmp_path / "model.json").write_text(json.dumps(said))
    if report is not None:
        (tmp_path / "training.json").write_text(json.dumps(report))
    return with_chosen_settings(model, lambda name: tmp_path / name, lambda name: (tmp_path / name).exists())


def test_a_refit_trains_the_epochs_that_validation_chose_and_holds_nothing_out(tmp_path: Path) -> None:
    train = {"epochs": 20, "validation": 0.1, "validate_from": 2, "early_stop": {"patience": 2}}
    model = Model.model_validate({"family": "mlp", "train": train}).model_copy(update={"baseline": "ease"})
    found = settle(tmp_path, model, {"family": "mlp"}, {"published": {"epoch": 6, "of": 8}, "batch_size": 2048})
    assert (found.train.epochs, found.train.batch_size, found.train.validation, found.train.early_stop) == (6, 2048, 0, None)
    assert found.baseline is None
    assert Model.model_validate(found.model_dump(mode="json")) == found


def test_a_refit_grows_the_trees_that_validation_chose_and_keeps_what_was_searched(tmp_path: Path) -> None:
    trees = settle(
        tmp_path,
        Model.model_validate({"family": "gbm", "params": {"trees": 300}}),
        {"family": "gbm"},
        {"published": {"trees": 140, "grown": 40, "of": 300}},
    )
    assert isinstance(trees.params, GbmParams) and trees.params.trees == 40
    (tmp_path / "training.json").unlink()
    searched = settle(tmp_path, Model(family="mf"), {"family": "mf", "regularisation": 0.07}, None)
    assert isinstance(searched.params, MfParams) and searched.params.regularisation == 0.07
    fixed = settle(
        tmp_path, Model.model_validate({"family": "mf", "params": {"regularisation": 0.2}}), {"family": "mf", "regularisation": 0.2}, None
    )
    assert isinstance(fixed.params, MfParams) and fixed.params.regularisation == 0.2


def test_the_signature_says_until_when_the_served_model_has_learned(stages: Stages) -> None:
    """Without a refit that is the end of the training rows, not of the holdout."""
    spec = stages.spec(model={"family": "mf"})
    stages.run(spec)
    refitted = json.loads(stages.done["export"].files["signature.json"].read_text())["learned_until"]
    candidate = stages.stage("export", spec, stages.inputs("etl", "train"), "r2")
    learned = json.loads(candidate.files["signature.json"].read_text())["learned_until"]
    assert refitted == stages.done["refit"].facts["newest"]
    assert learned == stages.rows("etl", "train.parquet")["time"].max() < refitted
