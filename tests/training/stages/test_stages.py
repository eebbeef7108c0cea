"""The four stages as processes, from files to a served unit; then a warm run on events that starts from it."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime
import polars as pl
import pytest

from shared.contracts.items_table import SEED, Seed, read_part
from shared.contracts.online import ONLINE, Online
from shared.contracts.plans import gate_rule
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, Manifest
from shared.domain.gate import REFIT, Verdict, judge
from shared.serving.signature import Signature
from tests.support.html_pages import Page
from tests.support.stage_runner import GENRES, ITEMS, ROWS, USERS, StageRunner, tastes
from tests.support.torch_available import torch


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> StageRunner:
    return StageRunner(tmp_path_factory.mktemp("runner"))


@pytest.fixture(scope="module")
def full(runner: StageRunner) -> dict[str, Manifest]:
    return runner.run("full", {})


@pytest.mark.requirement("G-17")
def test_the_candidate_beats_the_baseline_that_is_always_trained_beside_it(full: dict[str, Manifest]) -> None:
    metrics = full["evaluate"].metrics
    assert metrics["candidate.hr@10"] > 1.5 * metrics["popularity.hr@10"] > 0
    names = ("hr@10", "ndcg@10", "hr@10/99", "ndcg@10/99", "hr@5/20", "auc")
    assert {f"{who}.{name}" for who in ("candidate", "popularity") for name in names} <= set(metrics)


@pytest.mark.requirement("N-08", "G-10")
def test_evaluate_publishes_a_report_with_slices_and_a_page(runner: StageRunner, full: dict[str, Manifest]) -> None:
    manifest = full["evaluate"]
    report = json.loads(runner.fetch(manifest, "report.json").read_text())
    assert report["model"] == "candidate"
    for who in ("candidate", "popularity"):
        told = report["models"][who]
        assert told["metrics"]["hr@10"]["mean"] == manifest.metrics[f"{who}.hr@10"]
        for name in ("cold_users", "heavy_users", "cold_items", "head_items", "tail_items"):
            assert told["slices"][name]["metrics"]["ndcg@10"]["mean"] == manifest.metrics[f"{who}.ndcg@10{{{name}}}"]
    genres = {name: one["cases"] for name, one in report["models"]["candidate"]["slices"].items() if name.startswith("genres=")}
    assert set(genres) == {f"genres={name}" for name in GENRES}
    assert sum(genres.values()) > report["data"]["ranked"], "most films have two"
    low, high = report["models"]["candidate"]["against_baseline"]["hr@10"]["interval"]
    assert 0 < low < high
    assert report["models"]["candidate"]["metrics"]["log_loss"]["mean"] == manifest.metrics["candidate.log_loss"] > 0
    assert len(report["models"]["candidate"]["calibration"]["bins"]) == 10
    assert report["models"]["popularity"]["calibration"] is None, "counts are no probabilities"
    page = Page(runner.fetch(manifest, "report.html").read_text())
    assert page.balanced
    assert not page.foreign
    assert "script" not in page.tags


@pytest.mark.requirement("N-08", "G-10")
def test_a_model_that_scores_pairs_is_judged_on_the_first_users_and_compared_on_those(
    runner: StageRunner, full: dict[str, Manifest]
) -> None:
    bounds = {
        "evaluate": {"users": 100, "pairs": 40 * ITEMS},
        "gates": [
            {"metric": "hr@10", "better_than": "popularity", "confidence": 0.9},
            {"metric": "hr@10", "slice": "user_history<=12", "min": 0.01},
        ],
    }
    inputs = {stage: full[stage].files for stage in ("etl", "train")}
    process, attempt = runner.stage("evaluate", "bounded", inputs, recommender=runner.recommender | bounds)
    assert process.returncode == 0, process.stdout + process.stderr
    manifest = runner.store.manifest(attempt)
    assert manifest is not None
    told = manifest.facts["cases"]
    assert {name: one["users"] for name, one in told["contenders"].items()} == {"popularity": 100, "candidate": 40}
    assert told["contenders"]["candidate"]["cases"] < told["contenders"]["popularity"]["cases"] == told["ranked"] < told["found"]
    assert manifest.metrics["candidate.hr@10.se_to.popularity"] > 0
    report = json.loads(runner.fetch(manifest, "report.json").read_text())
    assert [report["models"][name]["users"] for name in ("candidate", "popularity")] == [40, 100]
    of_few = manifest.metrics["candidate.hr@10{user_history<=12}"]
    assert 0 < manifest.metrics["candidate.hr@10{user_history<=12}.users"] < 40
    assert report["models"]["candidate"]["slices"]["user_history<=12"]["metrics"]["hr@10"]["mean"] == of_few
    low, high = report["models"]["candidate"]["against_baseline"]["hr@10"]["interval"]
    assert low < report["models"]["candidate"]["against_baseline"]["hr@10"]["difference"] < high


@pytest.mark.requirement("L-02", "T-08")
def test_a_model_of_torch_is_judged_and_exported_as_any_other(runner: StageRunner) -> None:
    torch()
    model = {"framework": "torch", "params": {"layers": [32, 32], "pooling": "sum", "dropout": 0.1, "batch_norm": True}}
    training = {"epochs": 8, "batch_size": 512, "optimizer": "adagrad", "learning_rate": 0.1, "mixed_precision": True}
    done = runner.run("torch", {}, recommender=runner.recommender | {"model": model | {"train": training}})
    assert done["evaluate"].metrics["candidate.hr@10"] > 1.5 * done["evaluate"].metrics["popularity.hr@10"]
    assert done["export"].metrics["export.parity"] < 1e-5
    assert "torch" in done["train"].facts["libraries"] and done["train"].facts["framework"] == "torch"


@pytest.mark.requirement("G-09")
def test_a_refit_is_a_process_that_learns_all_rows_and_what_it_publishes_is_exported(
    runner: StageRunner, full: dict[str, Manifest]
) -> None:
    process, attempt = runner.stage("refit", "full", {stage: full[stage].files for stage in ("etl", "train")})
    assert (process.returncode, process.stderr) == (0, ""), process.stdout
    refit = runner.store.manifest(attempt)
    assert refit is not None and refit.failure is None
    assert judge(REFIT, refit.metrics, serving=False).verdict is Verdict.PASS
    assert refit.metrics["refit.hr@10"] > refit.metrics["refit.candidate.hr@10"] > 0
    assert refit.facts["newest"] > full["etl"].facts["split"]["newest_trained"]
    process, attempt = runner.stage("export", "refitted", {"etl": full["etl"].files | refit.files, "train": refit.files})
    assert (process.returncode, process.stderr) == (0, ""), process.stdout
    export = runner.store.manifest(attempt)
    assert export is not None and export.metrics["export.parity"] < 1e-5
    assert export.files["model.onnx"] != full["export"].files["model.onnx"]


@pytest.mark.requirement("T-12")
def test_the_served_unit_takes_raw_columns_and_answers_as_training_did(runner: StageRunner, full: dict[str, Manifest]) -> None:
    export = full["export"]
    assert export.metrics["export.parity"] < 1e-5
    signature = Signature.model_validate_json(runner.fetch(export, "signature.json").read_text())
    assert [one.name for one in signature.inputs] == ["userId", "movieId", "genres"]
    with np.load(runner.fetch(export, "parity.npz"), allow_pickle=False) as stored:
        rows = {name: stored[name] for name in stored.files}
    expected = rows.pop("score")
    codes = {name: rows.pop(name) for name in list(rows) if name.startswith("features/")}
    assert len(expected) >= 1000
    session = onnxruntime.InferenceSession(str(runner.fetch(export, "model.onnx")), providers=["CPUExecutionProvider"])
    assert {one.name for one in session.get_inputs()} == set(rows)
    assert {one.name for one in session.get_outputs()} == {"score", *codes}
    score, *found = session.run(["score", *codes], rows)
    assert score.shape == expected.shape
    np.testing.assert_allclose(score, expected, atol=1e-5)
    for name, code in zip(codes, found, strict=True):
        np.testing.assert_array_equal(code, codes[name])


def test_everything_the_gateway_needs_lies_beside_the_unit(runner: StageRunner, full: dict[str, Manifest]) -> None:
    export = full["export"]
    with np.load(runner.fetch(export, "catalogue.npz"), allow_pickle=False) as stored:
        assert stored["movieId"].tolist() == list(range(ITEMS))
        assert stored["genres"].shape == (ITEMS, 2) and stored["genres"].dtype.kind == "U"
    popular = np.load(runner.fetch(export, "popular.npy"), allow_pickle=False)
    fresh = np.load(runner.fetch(export, "fresh.npy"), allow_pickle=False)
    firsts = pl.read_parquet(runner.folder / "ratings.parquet").group_by("movieId").agg(pl.col("at").min())
    assert fresh.tolist() == firsts.sort("at", descending=True)["movieId"].to_list()
    users = np.load(runner.fetch(export, "users.npy"), allow_pickle=False)
    assert sorted(popular.tolist()) == list(range(ITEMS)) and popular.dtype == np.int64
    assert users.tolist() == list(range(USERS)) and users.dtype == np.int64
    assert json.loads(runner.fetch(export, "model_card.json").read_text())["recommender"] == "films"


@pytest.mark.requirement("G-24", "G-08", "T-13")
def test_tables_too_large_for_the_graph_are_looked_up_by_key(runner: StageRunner) -> None:
    """Of users in the feature store, of items in the catalogue; the answers are the same."""
    features = [
        {"categorify": ["userId", "movieId"]},
        {"target_encode": {"of": "movieId"}},
        {"count_encode": "userId"},
        {"lag": {"of": "at", "by": "userId"}},
        {"sequence": {"of": "movieId", "by": "userId", "length": 3}},
    ]
    changes = {"features": features, "serve": {"vocabulary_limit": 10}, "gates": [{"parity": 1e-4}]}
    made = runner.run("large", {}, recommender=runner.recommender | changes)
    export = made["export"]
    assert export.metrics["export.parity"] < 1e-5
    signature = Signature.model_validate_json(runner.fetch(export, "signature.json").read_text())
    beside = {one.name: (one.side, one.origin) for one in signature.inputs if one.name.endswith("@stored")}
    assert beside == {
        "userId@stored": ("user", "store"),
        "movieId@stored": ("item", "catalogue"),
        "movieId_te@stored": ("item", "catalogue"),
        "userId_count@stored": ("user", "store"),
        "at_lag@stored": ("user", "store"),
        "movieId_sequence@stored": ("user", "store"),
    }
    (view,) = Online.model_validate_json(runner.fetch(export, ONLINE).read_text()).views
    assert view.fitted and {one.name for one in view.columns} == {name for name, (side, _) in beside.items() if side == "user"}
    with np.load(runner.fetch(export, "catalogue.npz"), allow_pickle=False) as stored:
        assert {name for name in stored.files if name.endswith("@stored")} == {"movieId@stored", "movieId_te@stored"}
    graph = onnx.load(str(runner.fetch(export, "model.onnx"))).graph
    assert not [node for node in graph.node if node.op_type == "LabelEncoder"]


@pytest.mark.requirement("G-24", "G-17")
def test_a_version_with_tables_beside_its_graph_is_compared_as_one_with_them_in_it(runner: StageRunner) -> None:
    """By what it was published with: where the candidate's family reads the keys alone, and of users and items that it never saw."""
    people = pl.DataFrame({"userId": range(USERS), "age": [None if one % 7 == 0 else 10 + one % 60 for one in range(USERS)]})
    people.write_parquet(runner.folder / "people.parquet")
    features = [
        {"categorify": ["userId", "movieId"]},
        {"multi_hot": "genres", "separator": "|"},
        {"normalise": "age"},
        {"target_encode": {"of": "movieId"}},
        {"count_encode": "userId"},
        {"lag": {"of": "at", "by": "userId"}},
        {"log": "at_lag"},
        {"normalise": "at_lag"},
        {"sequence": {"of": "movieId", "by": "userId", "length": 3}},
    ]
    data = runner.recommender["data"] | {"users": {"uri": str(runner.folder / "people.parquet"), "key": "userId"}}
    gates = [{"metric": "hr@10", "not_worse_than": "serving", "by": "5%"}]
    model = {"params": {"layers": [32, 32]}, "train": {"epochs": 12, "batch_size": 512}}
    inside = runner.recommender | {"features": features, "data": data, "gates": gates, "model": model}
    beside = inside | {"serve": {"vocabulary_limit": 10}}
    made = runner.run("beside-graph", {}, recommender=beside)
    files = {name: made[name].files for name in ("etl", "train")}
    process, attempt = runner.stage("export", "inside-graph", files, recommender=inside)
    assert process.returncode == 0, process.stdout
    within = runner.store.manifest(attempt)
    assert within is not None and not [name for name in within.facts["inputs"] if name.endswith("@stored")]

    later = tastes(np.random.default_rng(9), USERS + 30, 2000).with_columns(at=1.6e9 + (ROWS + np.arange(2000)) * 60.0)
    later = later.with_columns(movieId=pl.when(pl.int_range(pl.len()) % 40 == 0).then(ITEMS).otherwise(pl.col("movieId")))
    pl.concat([pl.read_parquet(runner.folder / "ratings.parquet"), later]).write_parquet(runner.folder / "ratings-2.parquet")
    films = pl.read_parquet(runner.folder / "films.parquet")
    pl.concat([films, pl.DataFrame({"movieId": [ITEMS], "genres": ["Kids"]})]).write_parquet(runner.folder / "films-2.parquet")
    data |= {
        "interactions": {"uri": str(runner.folder / "ratings-2.parquet")},
        "items": {"uri": str(runner.folder / "films-2.parquet"), "key": "movieId"},
    }
    counting = beside | {"data": data, "model": {"family": "popularity"}}
    now: dict[str, Files] = {}
    for stage in ("etl", "train"):
        process, attempt = runner.stage(stage, "counting", now, recommender=counting)
        assert process.returncode == 0, process.stdout
        manifest = runner.store.manifest(attempt)
        assert manifest is not None
        now[stage] = manifest.files
    found: list[Manifest] = []
    for name, serving in (("with-beside", made["export"]), ("with-inside", within)):
        process, attempt = runner.stage("evaluate", name, now | {"serving": serving.files}, recommender=counting)
        assert process.returncode == 0, process.stdout
        manifest = runner.store.manifest(attempt)
        assert manifest is not None and "serving_not_comparable" not in manifest.facts, manifest.facts
        found.append(manifest)
    ours, theirs = ({name: value for name, value in one.metrics.items() if name.startswith("serving.")} for one in found)
    assert ours == theirs and ours["serving.hr@10"] > found[0].metrics["popularity.hr@10"]
    published = set(found[0].facts["serving_as_published"])
    assert published >= {"movieId@stored", "movieId_te@stored", "userId@stored", "at_lag@stored", "genres", "age"}
    rule = gate_rule(RecommenderSpec.model_validate(counting).gates[0])
    assert judge(rule, found[0].metrics, serving=True).verdict is Verdict.FAIL  # measured, and popularity is worse


@pytest.mark.requirement("T-13")
def test_a_popularity_model_goes_through_the_same_stages(runner: StageRunner) -> None:
    changes = {"model": {"family": "popularity"}, "gates": [{"parity": 1e-6}]}
    counted = runner.run("counted", {}, recommender=runner.recommender | changes)
    metrics = counted["evaluate"].metrics
    assert metrics["candidate.hr@10"] == metrics["popularity.hr@10"] > 0
    assert counted["export"].metrics["export.parity"] == 0
    assert "embeddings.npz" not in counted["export"].files
    card = json.loads(runner.fetch(counted["export"], "model_card.json").read_text())
    assert (card["model"]["family"], card["lookup_bytes"]) == ("popularity", 4)


@pytest.mark.requirement("G-17")
@pytest.mark.parametrize("family", ["ease", "itemknn"])
def test_sums_over_likes_go_through_the_same_stages(runner: StageRunner, family: str) -> None:
    changes = {"model": {"family": family}, "gates": [{"metric": "hr@10", "better_than": "popularity"}, {"parity": 1e-5}]}
    made = runner.run(family, {}, recommender=runner.recommender | changes)
    metrics = made["evaluate"].metrics
    assert metrics["candidate.hr@10"] > 1.5 * metrics["popularity.hr@10"] > 0
    assert made["export"].metrics["export.parity"] < 1e-5
    card = json.loads(runner.fetch(made["export"], "model_card.json").read_text())
    assert card["model"]["family"] == family
    assert [(one["column"], one["cardinality"]) for one in card["tables"]] == [("movieId", ITEMS + 2)]


@pytest.mark.requirement("G-17")
def test_a_baseline_of_the_specs_choice_is_trained_and_judged_beside_the_candidate(runner: StageRunner) -> None:
    gates = [{"metric": "hr@10", "better_than": "baseline"}, {"metric": "ndcg@10", "not_worse_than": "baseline", "by": "90%"}]
    counting = runner.recommender | {"model": {"family": "popularity", "baseline": "itemknn"}, "gates": gates}
    first = runner.run("based", {}, recommender=counting)
    metrics = first["evaluate"].metrics
    assert metrics["baseline.hr@10"] > 1.5 * metrics["candidate.hr@10"] > 0
    assert first["train"].facts["baseline"]["family"] == "itemknn"
    assert first["train"].metrics["train.baseline_seconds"] > 0
    assert not [name for name in first["export"].files if "baseline" in name]
    rules = [gate_rule(gate) for gate in RecommenderSpec.model_validate(counting).gates]
    better, near = (judge(rule, metrics, serving=False) for rule in rules)
    assert (better.verdict, near.verdict) == (Verdict.FAIL, Verdict.PASS)
    assert better.reason.startswith("hr@10 is ") and ", baseline's is " in better.reason

    events = tastes(np.random.default_rng(3), USERS, 2000).with_columns(at=1.7e9 + np.arange(2000.0))
    path = runner.folder / "later.csv"
    events.rename({"userId": "user", "movieId": "item", "rating": "value", "at": "time"}).write_csv(path)
    inputs = {"events": {"events.csv": runner.store.put(path)}, "parent": {**first["etl"].files, **first["train"].files}}
    for name, family in (("same", "itemknn"), ("other", "mf")):
        spec = counting | {"model": {"family": "popularity", "baseline": family}}
        warm = runner.run(f"based-{name}", inputs, mode="warm", recommender=spec)
        assert warm["train"].facts["baseline"]["family"] == family
        assert warm["evaluate"].metrics["baseline.hr@10"] > 1.5 * warm["evaluate"].metrics["popularity.hr@10"]


@pytest.mark.requirement("G-09")
def test_a_warm_run_starts_from_its_parent_and_is_compared_with_what_serves(runner: StageRunner, full: dict[str, Manifest]) -> None:
    events = tastes(np.random.default_rng(2), USERS + 40, 3000).with_columns(at=1.7e9 + np.arange(3000.0))
    path = runner.folder / "events.csv"
    events.rename({"userId": "user", "movieId": "item", "rating": "value", "at": "time"}).write_csv(path)
    inputs = {
        "events": {"events.csv": runner.store.put(path)},
        "parent": full["etl"].files | full["train"].files,
        "serving": full["export"].files,
    }
    again = runner.recommender | {"retrain": {"warm": {"replay": "20%"}}}
    warm = runner.run("warm", inputs, mode="warm", recommender=again)
    assert warm["etl"].facts["cardinalities"]["userId"] == full["etl"].facts["cardinalities"]["userId"] + 40
    metrics = warm["evaluate"].metrics
    assert metrics["serving.hr@10"] > metrics["popularity.hr@10"]
    assert metrics["candidate.hr@10"] > metrics["popularity.hr@10"]
    # It begins where the parent ended: well below a fresh model's first epoch.
    assert warm["train"].facts["losses"][0] < full["train"].facts["losses"][0]
    assert warm["export"].metrics["export.parity"] < 1e-5
    # Older rows are trained on, with this run's places; what was held out of them and kept never is, and tells what was forgotten.
    kept, held, new = (pl.read_parquet(runner.fetch(warm["etl"], f"{name}.parquet")) for name in ("past", "held", "train"))
    assert kept.schema == new.schema and len(kept) > 0.8 * ROWS
    assert kept["time"].max() < new["time"].min()  # type: ignore[operator]
    assert kept.join(held, on=["user", "item"], how="semi").is_empty() and new.join(held, on=["user", "item"], how="semi").is_empty()
    assert warm["train"].metrics["train.replayed"] == round(len(new) / 4)
    assert abs(metrics["candidate.forgotten"]) < 0.5 and metrics["candidate.forgotten.se"] > 0
    assert metrics["parent.old.hr@10/99"] > 0 and warm["evaluate"].facts["old"]["cases"] == len(held)
    assert "candidate.forgotten" not in full["evaluate"].metrics


@pytest.mark.requirement("T-10", "N-04")
def test_a_stage_looks_at_rows_that_it_does_not_train_on_and_draws_no_negative_that_was_liked(
    runner: StageRunner, full: dict[str, Manifest]
) -> None:
    train = runner.recommender["model"]["train"]
    model = runner.recommender["model"] | {"train": train | {"validation": 0.1}}
    model["params"] = model["params"] | {"verified": True}
    asked = runner.recommender | {"model": model, "resources": {"train": {"memory": "1Gi"}}}
    process, attempt = runner.stage("train", "looking", {"etl": full["etl"].files}, recommender=asked)
    assert process.returncode == 0, process.stdout + process.stderr
    manifest = runner.store.manifest(attempt)
    assert manifest is not None
    said, metrics = manifest.facts["validation"], manifest.metrics
    assert metrics["train.rows"] < full["train"].metrics["train.rows"]
    assert said["losses"][-1] < said["losses"][0] and metrics["train.validation_auc"] > 0.7
    assert f"validation_loss={metrics['train.validation_loss']:.4f} auc={metrics['train.validation_auc']:.4f}" in process.stdout
    assert not list((runner.folder / attempt).rglob("held.parquet"))
    report = json.loads(runner.fetch(manifest, "training.json").read_text())
    assert [one["epoch"] for one in report["epochs"]] == list(range(1, train["epochs"] + 1))
    assert report["published"] == manifest.facts["published"] and report["epochs"][0]["validation"]["rows_per_s"] > 0


def test_a_fault_in_the_data_is_published_as_one_line_and_exit_2(runner: StageRunner) -> None:
    data = runner.recommender["data"] | {"interactions": {"uri": str(runner.folder / "missing.parquet")}}
    process, attempt = runner.stage("etl", "faulty", {}, recommender=runner.recommender | {"data": data})
    manifest = runner.store.manifest(attempt)
    assert process.returncode == 2 and manifest is not None and manifest.failure is not None
    assert manifest.failure.kind == "data" and "missing.parquet: file not found" in manifest.failure.message
    assert process.stderr == "" and not manifest.files


def test_a_source_outside_the_roots_is_a_fault_of_the_spec(runner: StageRunner) -> None:
    data = runner.recommender["data"] | {"interactions": {"uri": "/etc/passwd"}}
    process, attempt = runner.stage("etl", "outside", {}, recommender=runner.recommender | {"data": data})
    manifest = runner.store.manifest(attempt)
    assert process.returncode == 2 and manifest is not None and manifest.failure is not None
    assert manifest.failure.kind == "spec" and "allowed data root" in manifest.failure.message


def test_a_crash_publishes_nothing_and_its_last_line_says_what_happened(runner: StageRunner) -> None:
    process, attempt = runner.stage("train", "crashed", {})
    assert process.returncode == 1 and runner.store.manifest(attempt) is None
    assert "Traceback" in process.stdout
    line = f"train: failed error=NotFound: train: input 'etl' has no file 'features.json' attempt={attempt}"
    assert process.stdout.splitlines()[-1] == line


def test_a_published_attempt_is_not_run_again(runner: StageRunner, full: dict[str, Manifest]) -> None:
    process, attempt = runner.stage("etl", "full", {})
    assert process.returncode == 0 and f"attempt: already published, nothing to do attempt={attempt}" in process.stdout
    assert runner.store.manifest(attempt) == full["etl"]


@pytest.mark.requirement("G-02")
def test_the_columns_of_the_items_table_are_published_for_the_catalogue(runner: StageRunner) -> None:
    films = runner.folder / "priced.parquet"
    pl.read_parquet(runner.folder / "films.parquet").with_columns(price=pl.col("movieId") * 2, available=True).write_parquet(films)
    data = {**runner.recommender["data"], "items": {"uri": str(films), "key": "movieId"}}
    done = runner.run("priced", {}, recommender=runner.recommender | {"data": data, "model": {"family": "mf"}, "gates": []})
    seed = Seed.model_validate_json(runner.fetch(done["export"], SEED).read_text())
    assert (seed.items, seed.names) == (ITEMS, ("genres", "price"))
    assert abs(seed.at.timestamp() - films.stat().st_mtime) < 1
    rows = {item: attributes for item, _, attributes in read_part(runner.fetch(done["export"], seed.parts[0]).read_bytes())}
    assert {item: row["price"] for item, row in rows.items()} == {item: 2 * item for item in range(ITEMS)}
