"""The four stages as processes, from files to a served unit; then a warm run on events that starts from it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import polars as pl
import pytest

from pipelines.export import neighbours
from pipelines.stages import export
from pipelines.stages.runner import Context
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.online import ONLINE, Online
from shared.contracts.plans import gate_rule
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, Manifest, StageSpec
from shared.domain.gate import Verdict, judge
from shared.serving.index_file import unpack
from shared.serving.signature import INDEX, Signature
from tests.support.html_pages import Page
from tests.support.torch_available import torch

USERS, ITEMS, ROWS = 300, 80, 12_000
GENRES = np.array(["Drama", "Comedy", "Horror", "Kids"])


def _taste(random: np.random.Generator, users: int, rows: int) -> pl.DataFrame:
    """Each user likes one genre in four; an item's genre is its key modulo four."""
    user, item = random.integers(0, users, rows), random.integers(0, ITEMS, rows)
    liked = random.random(rows) < np.where(user % 4 == item % 4, 0.85, 0.05)
    return pl.DataFrame({"userId": user, "movieId": item, "rating": np.where(liked, 5.0, 1.0)})


class Platform:
    """A folder with data and artifacts, and what the control plane would do with them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, FsspecArtifacts(str(folder / "artifacts"))
        random = np.random.default_rng(1)
        frame = _taste(random, USERS, ROWS).with_columns(at=1.6e9 + np.arange(ROWS) * 60.0)
        frame.write_parquet(folder / "ratings.parquet")
        genres = ["|".join(GENRES[[n % 4, (n // 4) % 4]]) if n else None for n in range(ITEMS)]
        pl.DataFrame({"movieId": range(ITEMS), "genres": genres}).write_parquet(folder / "films.parquet")
        self.recommender: dict[str, Any] = {
            "name": "films",
            "data": {
                "interactions": {"uri": str(folder / "ratings.parquet")},
                "items": {"uri": str(folder / "films.parquet"), "key": "movieId"},
            },
            "schema": {"user": "userId", "item": "movieId", "time": "at", "label": {"column": "rating", "positive": ">= 4"}},
            "features": [{"categorify": ["userId", "movieId"]}, {"multi_hot": "genres", "separator": "|"}],
            "model": {"params": {"layers": [32, 32]}, "train": {"epochs": 8, "batch_size": 512}},
            "gates": [{"metric": "hr@5/20", "min": 0.1}, {"parity": 1e-5}],
        }

    def stage(self, name: str, run: str, inputs: dict[str, Files], **more: Any) -> tuple[subprocess.CompletedProcess[str], str]:
        attempt = f"{run}-{name}-1"
        spec = StageSpec(
            stage=name,  # type: ignore[arg-type]
            run=run,
            attempt=attempt,
            recommender=more.pop("recommender", self.recommender),
            inputs=inputs,
            data_roots=(str(self.folder),),
            artifacts=self.store.url,
            **more,
        )
        path = self.folder / attempt / "spec.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(spec.model_dump_json(by_alias=True))
        command = [sys.executable, "-m", f"pipelines.stages.{name}", "--spec", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=False), attempt

    def run(self, run: str, inputs: dict[str, Files], mode: str = "full", **more: Any) -> dict[str, Manifest]:
        done: dict[str, Manifest] = {}
        for name in ("etl", "train", "evaluate", "export"):
            files = {stage: manifest.files for stage, manifest in done.items()}
            process, attempt = self.stage(name, run, inputs | files, mode=mode, **more)
            assert process.returncode == 0, process.stdout + process.stderr
            assert process.stderr == ""
            manifest = self.store.manifest(attempt)
            assert manifest is not None and manifest.failure is None
            done[name] = manifest
        return done

    def fetch(self, manifest: Manifest, name: str) -> Path:
        return self.store.fetch(manifest.files[name], self.folder / "fetched" / manifest.run / name)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    return Platform(tmp_path_factory.mktemp("platform"))


@pytest.fixture(scope="module")
def full(platform: Platform) -> dict[str, Manifest]:
    return platform.run("full", {})


@pytest.mark.requirement("G-17")
def test_the_candidate_beats_the_baseline_that_is_always_trained_beside_it(full: dict[str, Manifest]) -> None:
    metrics = full["evaluate"].metrics
    assert metrics["candidate.hr@10"] > 1.5 * metrics["popularity.hr@10"] > 0
    names = ("hr@10", "ndcg@10", "hr@10/99", "ndcg@10/99", "hr@5/20", "auc")
    assert {f"{who}.{name}" for who in ("candidate", "popularity") for name in names} <= set(metrics)


@pytest.mark.requirement("N-08", "G-10")
def test_evaluate_publishes_a_report_with_slices_and_a_page(platform: Platform, full: dict[str, Manifest]) -> None:
    manifest = full["evaluate"]
    report = json.loads(platform.fetch(manifest, "report.json").read_text())
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
    page = Page(platform.fetch(manifest, "report.html").read_text())
    assert page.balanced
    assert not page.foreign
    assert "script" not in page.tags


@pytest.mark.requirement("L-02", "T-08")
def test_a_model_of_torch_is_judged_and_exported_as_any_other(platform: Platform) -> None:
    torch()
    model = {"framework": "torch", "params": {"layers": [32, 32], "pooling": "sum", "dropout": 0.1, "batch_norm": True}}
    training = {"epochs": 8, "batch_size": 512, "optimizer": "adagrad", "learning_rate": 0.1, "mixed_precision": True}
    done = platform.run("torch", {}, recommender=platform.recommender | {"model": model | {"train": training}})
    assert done["evaluate"].metrics["candidate.hr@10"] > 1.5 * done["evaluate"].metrics["popularity.hr@10"]
    assert done["export"].metrics["export.parity"] < 1e-5
    assert "torch" in done["train"].facts["libraries"] and done["train"].facts["framework"] == "torch"


@pytest.mark.requirement("T-12")
def test_the_served_unit_takes_raw_columns_and_answers_as_training_did(platform: Platform, full: dict[str, Manifest]) -> None:
    export = full["export"]
    assert export.metrics["export.parity"] < 1e-5
    signature = Signature.model_validate_json(platform.fetch(export, "signature.json").read_text())
    assert [one.name for one in signature.inputs] == ["userId", "movieId", "genres"]
    with np.load(platform.fetch(export, "parity.npz"), allow_pickle=False) as stored:
        rows = {name: stored[name] for name in stored.files}
    expected = rows.pop("score")
    codes = {name: rows.pop(name) for name in list(rows) if name.startswith("features/")}
    assert len(expected) >= 1000
    session = onnxruntime.InferenceSession(str(platform.fetch(export, "model.onnx")), providers=["CPUExecutionProvider"])
    assert {one.name for one in session.get_inputs()} == set(rows)
    assert {one.name for one in session.get_outputs()} == {"score", *codes}
    score, *found = session.run(["score", *codes], rows)
    assert score.shape == expected.shape
    np.testing.assert_allclose(score, expected, atol=1e-5)
    for name, code in zip(codes, found, strict=True):
        np.testing.assert_array_equal(code, codes[name])


def test_everything_the_gateway_needs_lies_beside_the_unit(platform: Platform, full: dict[str, Manifest]) -> None:
    export = full["export"]
    with np.load(platform.fetch(export, "catalogue.npz"), allow_pickle=False) as stored:
        assert stored["movieId"].tolist() == list(range(ITEMS))
        assert stored["genres"].shape == (ITEMS, 2) and stored["genres"].dtype.kind == "U"
    popular = np.load(platform.fetch(export, "popular.npy"), allow_pickle=False)
    fresh = np.load(platform.fetch(export, "fresh.npy"), allow_pickle=False)
    firsts = pl.read_parquet(platform.folder / "ratings.parquet").group_by("movieId").agg(pl.col("at").min())
    assert fresh.tolist() == firsts.sort("at", descending=True)["movieId"].to_list()
    users = np.load(platform.fetch(export, "users.npy"), allow_pickle=False)
    assert sorted(popular.tolist()) == list(range(ITEMS)) and popular.dtype == np.int64
    assert users.tolist() == list(range(USERS)) and users.dtype == np.int64
    assert json.loads(platform.fetch(export, "model_card.json").read_text())["recommender"] == "films"


@pytest.mark.requirement("G-24", "G-08", "T-13")
def test_tables_too_large_for_the_graph_are_looked_up_by_key(platform: Platform) -> None:
    """Of users in the feature store, of items in the catalogue; the answers are the same."""
    features = [
        {"categorify": ["userId", "movieId"]},
        {"target_encode": {"of": "movieId"}},
        {"count_encode": "userId"},
        {"lag": {"of": "at", "by": "userId"}},
        {"sequence": {"of": "movieId", "by": "userId", "length": 3}},
    ]
    changes = {"features": features, "serve": {"vocabulary_limit": 10}, "gates": [{"parity": 1e-4}]}
    made = platform.run("large", {}, recommender=platform.recommender | changes)
    export = made["export"]
    assert export.metrics["export.parity"] < 1e-5
    signature = Signature.model_validate_json(platform.fetch(export, "signature.json").read_text())
    beside = {one.name: (one.side, one.origin) for one in signature.inputs if one.name.endswith("@stored")}
    assert beside == {
        "userId@stored": ("user", "store"),
        "movieId@stored": ("item", "catalogue"),
        "movieId_te@stored": ("item", "catalogue"),
        "userId_count@stored": ("user", "store"),
        "at_lag@stored": ("user", "store"),
        "movieId_sequence@stored": ("user", "store"),
    }
    (view,) = Online.model_validate_json(platform.fetch(export, ONLINE).read_text()).views
    assert view.fitted and {one.name for one in view.columns} == {name for name, (side, _) in beside.items() if side == "user"}
    with np.load(platform.fetch(export, "catalogue.npz"), allow_pickle=False) as stored:
        assert {name for name in stored.files if name.endswith("@stored")} == {"movieId@stored", "movieId_te@stored"}
    graph = onnx.load(str(platform.fetch(export, "model.onnx"))).graph
    assert not [node for node in graph.node if node.op_type == "LabelEncoder"]


@pytest.mark.requirement("G-24", "G-17")
def test_a_version_with_tables_beside_its_graph_is_compared_as_one_with_them_in_it(platform: Platform) -> None:
    """By what it was published with: where the candidate's family reads the keys alone, and of users and items that it never saw."""
    people = pl.DataFrame({"userId": range(USERS), "age": [None if one % 7 == 0 else 10 + one % 60 for one in range(USERS)]})
    people.write_parquet(platform.folder / "people.parquet")
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
    data = platform.recommender["data"] | {"users": {"uri": str(platform.folder / "people.parquet"), "key": "userId"}}
    gates = [{"metric": "hr@10", "not_worse_than": "serving", "by": "5%"}]
    model = {"params": {"layers": [32, 32]}, "train": {"epochs": 12, "batch_size": 512}}
    inside = platform.recommender | {"features": features, "data": data, "gates": gates, "model": model}
    beside = inside | {"serve": {"vocabulary_limit": 10}}
    made = platform.run("beside-graph", {}, recommender=beside)
    files = {name: made[name].files for name in ("etl", "train")}
    process, attempt = platform.stage("export", "inside-graph", files, recommender=inside)
    assert process.returncode == 0, process.stdout
    within = platform.store.manifest(attempt)
    assert within is not None and not [name for name in within.facts["inputs"] if name.endswith("@stored")]

    later = _taste(np.random.default_rng(9), USERS + 30, 2000).with_columns(at=1.6e9 + (ROWS + np.arange(2000)) * 60.0)
    later = later.with_columns(movieId=pl.when(pl.int_range(pl.len()) % 40 == 0).then(ITEMS).otherwise(pl.col("movieId")))
    pl.concat([pl.read_parquet(platform.folder / "ratings.parquet"), later]).write_parquet(platform.folder / "ratings-2.parquet")
    films = pl.read_parquet(platform.folder / "films.parquet")
    pl.concat([films, pl.DataFrame({"movieId": [ITEMS], "genres": ["Kids"]})]).write_parquet(platform.folder / "films-2.parquet")
    data |= {
        "interactions": {"uri": str(platform.folder / "ratings-2.parquet")},
        "items": {"uri": str(platform.folder / "films-2.parquet"), "key": "movieId"},
    }
    counting = beside | {"data": data, "model": {"family": "popularity"}}
    now: dict[str, Files] = {}
    for stage in ("etl", "train"):
        process, attempt = platform.stage(stage, "counting", now, recommender=counting)
        assert process.returncode == 0, process.stdout
        manifest = platform.store.manifest(attempt)
        assert manifest is not None
        now[stage] = manifest.files
    found: list[Manifest] = []
    for name, serving in (("with-beside", made["export"]), ("with-inside", within)):
        process, attempt = platform.stage("evaluate", name, now | {"serving": serving.files}, recommender=counting)
        assert process.returncode == 0, process.stdout
        manifest = platform.store.manifest(attempt)
        assert manifest is not None and "serving_not_comparable" not in manifest.facts, manifest.facts
        found.append(manifest)
    ours, theirs = ({name: value for name, value in one.metrics.items() if name.startswith("serving.")} for one in found)
    assert ours == theirs and ours["serving.hr@10"] > found[0].metrics["popularity.hr@10"]
    published = set(found[0].facts["serving_as_published"])
    assert published >= {"movieId@stored", "movieId_te@stored", "userId@stored", "at_lag@stored", "genres", "age"}
    rule = gate_rule(RecommenderSpec.model_validate(counting).gates[0])
    assert judge(rule, found[0].metrics, serving=True).verdict is Verdict.FAIL  # measured, and popularity is worse


@pytest.mark.requirement("G-01")
def test_a_version_may_bring_everybodys_recommendations_as_a_table(platform: Platform) -> None:
    changes = {"model": {"family": "mf"}, "serve": {"retrieve": {"candidates": 40}, "batch": {"k": 3}}, "gates": [{"parity": 1e-4}]}
    made = platform.run("batch", {}, recommender=platform.recommender | changes)
    table = pl.read_parquet(platform.fetch(made["export"], "recommendations.parquet"))
    assert made["export"].metrics["export.recommended_users"] == table["user"].n_unique() == USERS
    assert table.group_by("user").agg(pl.len())["len"].max() == 3
    assert table.filter(pl.col("item") % 4 == pl.col("user") % 4).height > 0.6 * table.height  # their genre
    liked = pl.read_parquet(platform.fetch(made["etl"], "history.parquet")).filter(pl.col("label") == 1)
    assert table.join(liked, on=["user", "item"], how="inner").height == 0


@pytest.mark.requirement("T-13")
def test_a_popularity_model_goes_through_the_same_stages(platform: Platform) -> None:
    changes = {"model": {"family": "popularity"}, "gates": [{"parity": 1e-6}]}
    counted = platform.run("counted", {}, recommender=platform.recommender | changes)
    metrics = counted["evaluate"].metrics
    assert metrics["candidate.hr@10"] == metrics["popularity.hr@10"] > 0
    assert counted["export"].metrics["export.parity"] == 0
    assert "embeddings.npz" not in counted["export"].files
    card = json.loads(platform.fetch(counted["export"], "model_card.json").read_text())
    assert (card["model"]["family"], card["lookup_bytes"]) == ("popularity", 4)


@pytest.mark.requirement("G-17")
@pytest.mark.parametrize("family", ["ease", "itemknn"])
def test_sums_over_likes_go_through_the_same_stages(platform: Platform, family: str) -> None:
    changes = {"model": {"family": family}, "gates": [{"metric": "hr@10", "better_than": "popularity"}, {"parity": 1e-5}]}
    made = platform.run(family, {}, recommender=platform.recommender | changes)
    metrics = made["evaluate"].metrics
    assert metrics["candidate.hr@10"] > 1.5 * metrics["popularity.hr@10"] > 0
    assert made["export"].metrics["export.parity"] < 1e-5
    card = json.loads(platform.fetch(made["export"], "model_card.json").read_text())
    assert card["model"]["family"] == family
    assert [(one["column"], one["cardinality"]) for one in card["tables"]] == [("movieId", ITEMS + 2)]


@pytest.mark.requirement("G-17")
def test_a_baseline_of_the_specs_choice_is_trained_and_judged_beside_the_candidate(platform: Platform) -> None:
    gates = [{"metric": "hr@10", "better_than": "baseline"}, {"metric": "ndcg@10", "not_worse_than": "baseline", "by": "90%"}]
    counting = platform.recommender | {"model": {"family": "popularity", "baseline": "itemknn"}, "gates": gates}
    first = platform.run("based", {}, recommender=counting)
    metrics = first["evaluate"].metrics
    assert metrics["baseline.hr@10"] > 1.5 * metrics["candidate.hr@10"] > 0
    assert first["train"].facts["baseline"]["family"] == "itemknn"
    assert first["train"].metrics["train.baseline_seconds"] > 0
    assert not [name for name in first["export"].files if "baseline" in name]
    rules = [gate_rule(gate) for gate in RecommenderSpec.model_validate(counting).gates]
    better, near = (judge(rule, metrics, serving=False) for rule in rules)
    assert (better.verdict, near.verdict) == (Verdict.FAIL, Verdict.PASS)
    assert better.reason.startswith("hr@10 is ") and ", baseline's is " in better.reason

    events = _taste(np.random.default_rng(3), USERS, 2000).with_columns(at=1.7e9 + np.arange(2000.0))
    path = platform.folder / "later.csv"
    events.rename({"userId": "user", "movieId": "item", "rating": "value", "at": "time"}).write_csv(path)
    inputs = {"events": {"events.csv": platform.store.put(path)}, "parent": {**first["etl"].files, **first["train"].files}}
    for name, family in (("same", "itemknn"), ("other", "mf")):
        spec = counting | {"model": {"family": "popularity", "baseline": family}}
        warm = platform.run(f"based-{name}", inputs, mode="warm", recommender=spec)
        assert warm["train"].facts["baseline"]["family"] == family
        assert warm["evaluate"].metrics["baseline.hr@10"] > 1.5 * warm["evaluate"].metrics["popularity.hr@10"]


RETRIEVE = {"serve": {"retrieve": {"candidates": 12}}, "gates": [{"metric": "recall@12", "min": 0.1}, {"parity": 1e-5}]}


def retrieved(platform: Platform, run: dict[str, Manifest]) -> float:
    """The share of the best twelve, by the published vectors alone, that are of the user's genre."""
    export = run["export"]
    with np.load(platform.fetch(export, "embeddings.npz"), allow_pickle=False) as stored:
        items, vectors = stored["items"], stored["vectors"]
    with np.load(platform.fetch(export, "queries.npz"), allow_pickle=False) as stored:
        users, queries = stored["users"], stored["vectors"]
    assert vectors.dtype == queries.dtype == np.float32
    assert (np.diff(users) > 0).all()
    np.testing.assert_array_equal(users, np.load(platform.fetch(export, "users.npy"), allow_pickle=False))
    best = np.argsort(-(queries @ vectors.T), axis=1)[:, :12]
    return float((items[best] % 4 == users[:, None] % 4).mean())


@pytest.fixture(scope="module")
def factorised(platform: Platform) -> dict[str, Manifest]:
    return platform.run("factorised", {}, recommender=platform.recommender | RETRIEVE | {"model": {"family": "mf"}})


@pytest.mark.requirement("G-01", "G-18")
def test_a_factorisation_goes_through_the_same_stages_and_its_vectors_retrieve(platform: Platform, factorised: dict[str, Manifest]) -> None:
    metrics = factorised["evaluate"].metrics
    assert metrics["candidate.hr@10"] > 1.5 * metrics["popularity.hr@10"] > 0
    assert metrics["candidate.recall@12"] > 1.5 * metrics["popularity.recall@12"] > 0
    assert factorised["export"].metrics["export.parity"] < 1e-5
    assert retrieved(platform, factorised) > 0.8
    assert "candidates.index" not in factorised["export"].files
    card = json.loads(platform.fetch(factorised["export"], "model_card.json").read_text())
    assert card["model"]["family"] == "mf"
    assert [(one["column"], one["width"]) for one in card["tables"]] == [("userId", 64), ("movieId", 64)]


@pytest.mark.requirement("G-01")
def test_a_large_catalogue_gets_an_index_that_was_tried_with_its_users(
    platform: Platform, factorised: dict[str, Manifest], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(neighbours, "FROM", ITEMS)
    spec = StageSpec(
        stage="export",
        run="indexed",
        attempt="indexed-export-1",
        recommender=RecommenderSpec.model_validate(platform.recommender | RETRIEVE | {"model": {"family": "mf"}}),
        inputs={name: factorised[name].files for name in ("etl", "train")},
        artifacts=platform.store.url,
    )
    outcome = export.run(Context(spec, tmp_path, platform.store, logging.getLogger("test")))
    assert outcome.metrics["export.index_recall"] >= neighbours.RECALL
    content = outcome.files[INDEX].read_bytes()
    assert outcome.metrics["export.index_bytes"] == len(content)
    with np.load(outcome.files["embeddings.npz"], allow_pickle=False) as stored:
        header, _ = unpack(content, ITEMS, 64, stored["vectors"].data, INDEX)
    assert header.candidates == 12


@pytest.mark.requirement("G-01")
def test_beside_a_family_without_vectors_one_is_trained_that_retrieves(platform: Platform) -> None:
    counting = platform.recommender | RETRIEVE | {"model": {"family": "popularity"}}
    first = platform.run("beside", {}, recommender=counting)
    assert first["train"].metrics["train.retriever_seconds"] > 0
    assert first["train"].facts["retriever"]["family"] == "mf"
    metrics = first["evaluate"].metrics
    assert metrics["candidate.recall@12"] > 1.5 * metrics["popularity.recall@12"] > 0
    assert metrics["candidate.hr@10"] == metrics["popularity.hr@10"]
    assert metrics["retrieved.hr@10"] > 1.5 * metrics["candidate.hr@10"]  # the most popular of what suits the user
    assert retrieved(platform, first) > 0.8

    events = _taste(np.random.default_rng(3), USERS, 2000).with_columns(at=1.7e9 + np.arange(2000.0))
    path = platform.folder / "more.csv"
    events.rename({"userId": "user", "movieId": "item", "rating": "value", "at": "time"}).write_csv(path)
    inputs = {
        "events": {"events.csv": platform.store.put(path)},
        "parent": first["etl"].files | first["train"].files,
        "serving": first["export"].files,
    }
    warm = platform.run("beside-warm", inputs, mode="warm", recommender=counting)
    assert len(warm["train"].facts["retriever"]["losses"]) < len(first["train"].facts["retriever"]["losses"])
    assert warm["evaluate"].metrics["serving.recall@12"] > warm["evaluate"].metrics["popularity.recall@12"]
    assert retrieved(platform, warm) > 0.8


BY_THEMSELVES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "two_tower": ({"train": {"epochs": 20, "batch_size": 256, "learning_rate": 0.01}}, {"epochs": 3, "learning_rate": 0.002}),
    "session": (
        {"params": {"width": 16, "blocks": 1, "length": 20}, "train": {"epochs": 15, "learning_rate": 0.005}},
        {"epochs": 2, "learning_rate": 0.001},
    ),
}
"""Families whose own vectors retrieve: how they are trained, and how a warm run trains."""


@pytest.mark.requirement("G-01", "G-09", "G-20")
@pytest.mark.parametrize("family", BY_THEMSELVES)
def test_who_has_vectors_goes_through_the_same_stages_retrieves_alone_and_goes_on_in_a_warm_run(platform: Platform, family: str) -> None:
    (settings, gentle), name = BY_THEMSELVES[family], family.replace("_", "-")
    model = {"family": family, **settings}
    recommender = platform.recommender | RETRIEVE | {"model": model}
    first = platform.run(name, {}, recommender=recommender)
    metrics = first["evaluate"].metrics
    assert metrics["candidate.hr@10"] > 1.5 * metrics["popularity.hr@10"] > 0
    assert metrics["candidate.recall@12"] > 1.5 * metrics["popularity.recall@12"] > 0
    assert first["export"].metrics["export.parity"] < 1e-5
    assert "train.retriever_seconds" not in first["train"].metrics
    assert retrieved(platform, first) > 0.8

    events = _taste(np.random.default_rng(3), USERS + 40, 2000).with_columns(at=1.7e9 + np.arange(2000.0))
    path = platform.folder / f"{name}.csv"
    events.rename({"userId": "user", "movieId": "item", "rating": "value", "at": "time"}).write_csv(path)
    inputs = {
        "events": {"events.csv": platform.store.put(path)},
        "parent": first["etl"].files | first["train"].files,
        "serving": first["export"].files,
    }
    warm = platform.run(f"{name}-warm", inputs, mode="warm", recommender=recommender | {"model": model | {"train": gentle}})
    assert {"serving.recall@12", "candidate.recall@12"} <= set(warm["evaluate"].metrics)
    assert retrieved(platform, warm) > 0.7


@pytest.mark.requirement("G-20", "G-01", "G-09")
def test_sequences_of_rows_go_through_the_same_stages_and_go_on_in_a_warm_run(platform: Platform) -> None:
    model = {"family": "session", "params": {"width": 16, "blocks": 1}, "train": {"epochs": 10, "learning_rate": 0.005, "validation": 0.2}}
    features = [*platform.recommender["features"], {"sequence": {"of": "movieId", "by": "userId", "length": 10, "liked": True}}]
    reading = platform.recommender | RETRIEVE | {"model": model, "features": features}
    first = platform.run("reading", {}, recommender=reading)
    metrics = first["evaluate"].metrics
    assert metrics["candidate.hr@10"] > 1.2 * metrics["popularity.hr@10"] > 0
    assert first["export"].metrics["export.parity"] < 1e-5
    assert "train.retriever_seconds" not in first["train"].metrics
    signature = json.loads(platform.fetch(first["export"], "signature.json").read_text())
    assert signature["session"] == "movieId_session"

    events = _taste(np.random.default_rng(3), USERS + 40, 2000).with_columns(at=1.7e9 + np.arange(2000.0))
    path = platform.folder / "reading.csv"
    events.rename({"userId": "user", "movieId": "item", "rating": "value", "at": "time"}).write_csv(path)
    inputs = {
        "events": {"events.csv": platform.store.put(path)},
        "parent": first["etl"].files | first["train"].files,
        "serving": first["export"].files,
    }
    gentle = reading | {"model": model | {"train": {"epochs": 2, "learning_rate": 0.001}}}
    warm = platform.run("reading-warm", inputs, mode="warm", recommender=gentle)
    assert {"serving.hr@10", "candidate.hr@10"} <= set(warm["evaluate"].metrics)
    assert warm["export"].metrics["export.parity"] < 1e-5


@pytest.mark.requirement("G-09")
def test_a_warm_run_starts_from_its_parent_and_is_compared_with_what_serves(platform: Platform, full: dict[str, Manifest]) -> None:
    events = _taste(np.random.default_rng(2), USERS + 40, 3000).with_columns(at=1.7e9 + np.arange(3000.0))
    path = platform.folder / "events.csv"
    events.rename({"userId": "user", "movieId": "item", "rating": "value", "at": "time"}).write_csv(path)
    inputs = {
        "events": {"events.csv": platform.store.put(path)},
        "parent": full["etl"].files | full["train"].files,
        "serving": full["export"].files,
    }
    again = platform.recommender | {"retrain": {"warm": {"replay": "20%"}}}
    warm = platform.run("warm", inputs, mode="warm", recommender=again)
    assert warm["etl"].facts["cardinalities"]["userId"] == full["etl"].facts["cardinalities"]["userId"] + 40
    metrics = warm["evaluate"].metrics
    assert metrics["serving.hr@10"] > metrics["popularity.hr@10"]
    assert metrics["candidate.hr@10"] > metrics["popularity.hr@10"]
    # It begins where the parent ended: well below a fresh model's first epoch.
    assert warm["train"].facts["losses"][0] < full["train"].facts["losses"][0]
    assert warm["export"].metrics["export.parity"] < 1e-5
    # Older rows are trained on, with this run's places; what was held out of them and kept never is, and tells what was forgotten.
    kept, held, new = (pl.read_parquet(platform.fetch(warm["etl"], f"{name}.parquet")) for name in ("past", "held", "train"))
    assert kept.schema == new.schema and len(kept) > 0.8 * ROWS
    assert kept["time"].max() < new["time"].min()  # type: ignore[operator]
    assert kept.join(held, on=["user", "item"], how="semi").is_empty() and new.join(held, on=["user", "item"], how="semi").is_empty()
    assert warm["train"].metrics["train.replayed"] == round(len(new) / 4)
    assert abs(metrics["candidate.forgotten"]) < 0.5 and metrics["candidate.forgotten.se"] > 0
    assert metrics["parent.old.hr@10/99"] > 0 and warm["evaluate"].facts["old"]["cases"] == len(held)
    assert "candidate.forgotten" not in full["evaluate"].metrics


@pytest.mark.requirement("T-10", "N-04")
def test_a_stage_looks_at_rows_that_it_does_not_train_on_and_draws_no_negative_that_was_liked(
    platform: Platform, full: dict[str, Manifest]
) -> None:
    train = platform.recommender["model"]["train"]
    model = platform.recommender["model"] | {"train": train | {"validation": 0.1}}
    model["params"] = model["params"] | {"verified": True}
    asked = platform.recommender | {"model": model, "resources": {"train": {"memory": "1Gi"}}}
    process, attempt = platform.stage("train", "looking", {"etl": full["etl"].files}, recommender=asked)
    assert process.returncode == 0, process.stdout + process.stderr
    manifest = platform.store.manifest(attempt)
    assert manifest is not None
    said, metrics = manifest.facts["validation"], manifest.metrics
    assert metrics["train.rows"] < full["train"].metrics["train.rows"]
    assert said["losses"][-1] < said["losses"][0] and metrics["train.validation_auc"] > 0.7
    assert f"validation loss {metrics['train.validation_loss']:.4f}, AUC {metrics['train.validation_auc']:.4f}" in process.stdout
    assert not list((platform.folder / attempt).rglob("held.parquet"))
    report = json.loads(platform.fetch(manifest, "training.json").read_text())
    assert [one["epoch"] for one in report["epochs"]] == list(range(1, train["epochs"] + 1))
    assert report["published"] == manifest.facts["published"] and report["epochs"][0]["validation"]["rows_per_s"] > 0


def test_a_fault_in_the_data_is_published_as_one_line_and_exit_2(platform: Platform) -> None:
    data = platform.recommender["data"] | {"interactions": {"uri": str(platform.folder / "missing.parquet")}}
    process, attempt = platform.stage("etl", "faulty", {}, recommender=platform.recommender | {"data": data})
    manifest = platform.store.manifest(attempt)
    assert process.returncode == 2 and manifest is not None and manifest.failure is not None
    assert manifest.failure.kind == "data" and "missing.parquet: there is no such file" in manifest.failure.message
    assert process.stderr == "" and not manifest.files


def test_a_source_outside_the_roots_is_a_fault_of_the_spec(platform: Platform) -> None:
    data = platform.recommender["data"] | {"interactions": {"uri": "/etc/passwd"}}
    process, attempt = platform.stage("etl", "outside", {}, recommender=platform.recommender | {"data": data})
    manifest = platform.store.manifest(attempt)
    assert process.returncode == 2 and manifest is not None and manifest.failure is not None
    assert manifest.failure.kind == "spec" and "allowed data root" in manifest.failure.message


def test_a_crash_publishes_nothing_and_its_last_line_says_what_happened(platform: Platform) -> None:
    process, attempt = platform.stage("train", "crashed", {})
    assert process.returncode == 1 and platform.store.manifest(attempt) is None
    assert "Traceback" in process.stderr
    assert process.stderr.splitlines()[-1] == "train: failed: NotFound: train: its input 'etl' has no file 'features.json'"


def test_a_published_attempt_is_not_run_again(platform: Platform, full: dict[str, Manifest]) -> None:
    process, attempt = platform.stage("etl", "full", {})
    assert process.returncode == 0 and f"attempt {attempt} is published already" in process.stdout
    assert platform.store.manifest(attempt) == full["etl"]
