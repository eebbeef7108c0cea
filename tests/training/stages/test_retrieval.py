"""Models that retrieve, through the stages as processes: vectors, indexes, and warm runs."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.export import neighbours
from pipelines.stages import export
from pipelines.stages.runner import Context
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Manifest, StageSpec
from shared.serving.index_file import unpack
from shared.serving.signature import INDEX
from tests.support.stage_runner import ITEMS, USERS, StageRunner, tastes


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> StageRunner:
    return StageRunner(tmp_path_factory.mktemp("runner"))


@pytest.mark.requirement("G-01")
def test_a_version_may_bring_everybodys_recommendations_as_a_table(runner: StageRunner) -> None:
    changes = {"model": {"family": "mf"}, "serve": {"retrieve": {"candidates": 40}, "batch": {"k": 3}}, "gates": [{"parity": 1e-4}]}
    made = runner.run("batch", {}, recommender=runner.recommender | changes)
    table = pl.read_parquet(runner.fetch(made["export"], "recommendations.parquet"))
    assert made["export"].metrics["export.recommended_users"] == table["user"].n_unique() == USERS
    assert table.group_by("user").agg(pl.len())["len"].max() == 3
    assert table.filter(pl.col("item") % 4 == pl.col("user") % 4).height > 0.6 * table.height  # their genre
    liked = pl.read_parquet(runner.fetch(made["etl"], "history.parquet")).filter(pl.col("label") == 1)
    assert table.join(liked, on=["user", "item"], how="inner").height == 0


RETRIEVE = {"serve": {"retrieve": {"candidates": 12}}, "gates": [{"metric": "recall@12", "min": 0.1}, {"parity": 1e-5}]}


def retrieved(runner: StageRunner, run: dict[str, Manifest]) -> float:
    """The share of the best twelve, by the published vectors alone, that are of the user's genre."""
    export = run["export"]
    with np.load(runner.fetch(export, "embeddings.npz"), allow_pickle=False) as stored:
        items, vectors = stored["items"], stored["vectors"]
    with np.load(runner.fetch(export, "queries.npz"), allow_pickle=False) as stored:
        users, queries = stored["users"], stored["vectors"]
    assert vectors.dtype == queries.dtype == np.float32
    assert (np.diff(users) > 0).all()
    np.testing.assert_array_equal(users, np.load(runner.fetch(export, "users.npy"), allow_pickle=False))
    best = np.argsort(-(queries @ vectors.T), axis=1)[:, :12]
    return float((items[best] % 4 == users[:, None] % 4).mean())


@pytest.fixture(scope="module")
def factorised(runner: StageRunner) -> dict[str, Manifest]:
    return runner.run("factorised", {}, recommender=runner.recommender | RETRIEVE | {"model": {"family": "mf"}})


@pytest.mark.requirement("G-01", "G-18")
def test_a_factorisation_goes_through_the_same_stages_and_its_vectors_retrieve(
    runner: StageRunner, factorised: dict[str, Manifest]
) -> None:
    metrics = factorised["evaluate"].metrics
    assert metrics["candidate.hr@10"] > 1.5 * metrics["popularity.hr@10"] > 0
    assert metrics["candidate.recall@12"] > 1.5 * metrics["popularity.recall@12"] > 0
    assert factorised["export"].metrics["export.parity"] < 1e-5
    assert retrieved(runner, factorised) > 0.8
    assert "candidates.index" not in factorised["export"].files
    card = json.loads(runner.fetch(factorised["export"], "model_card.json").read_text())
    assert card["model"]["family"] == "mf"
    assert [(one["column"], one["width"]) for one in card["tables"]] == [("userId", 64), ("movieId", 64)]


@pytest.mark.requirement("G-01")
def test_a_large_catalogue_gets_an_index_that_was_tried_with_its_users(
    runner: StageRunner, factorised: dict[str, Manifest], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(neighbours, "FROM", ITEMS)
    spec = StageSpec(
        stage="export",
        run="indexed",
        attempt="indexed-export-1",
        recommender=RecommenderSpec.model_validate(runner.recommender | RETRIEVE | {"model": {"family": "mf"}}),
        inputs={name: factorised[name].files for name in ("etl", "train")},
        artifacts=runner.store.url,
    )
    outcome = export.run(Context(spec, tmp_path, runner.store, logging.getLogger("test")))
    assert outcome.metrics["export.index_recall"] >= neighbours.RECALL
    content = outcome.files[INDEX].read_bytes()
    assert outcome.metrics["export.index_bytes"] == len(content)
    with np.load(outcome.files["embeddings.npz"], allow_pickle=False) as stored:
        header, _ = unpack(content, ITEMS, 64, stored["vectors"].data, INDEX)
    assert header.candidates == 12


@pytest.mark.requirement("G-01")
def test_beside_a_family_without_vectors_one_is_trained_that_retrieves(runner: StageRunner) -> None:
    counting = runner.recommender | RETRIEVE | {"model": {"family": "popularity"}}
    first = runner.run("beside", {}, recommender=counting)
    assert first["train"].metrics["train.retriever_seconds"] > 0
    assert first["train"].facts["retriever"]["family"] == "mf"
    metrics = first["evaluate"].metrics
    assert metrics["candidate.recall@12"] > 1.5 * metrics["popularity.recall@12"] > 0
    assert metrics["candidate.hr@10"] == metrics["popularity.hr@10"]
    assert metrics["retrieved.hr@10"] > 1.5 * metrics["candidate.hr@10"]  # the most popular of what suits the user
    assert retrieved(runner, first) > 0.8

    events = tastes(np.random.default_rng(3), USERS, 2000).with_columns(at=1.7e9 + np.arange(2000.0))
    path = runner.folder / "more.csv"
    events.rename({"userId": "user", "movieId": "item", "rating": "value", "at": "time"}).write_csv(path)
    inputs = {
        "events": {"events.csv": runner.store.put(path)},
        "parent": first["etl"].files | first["train"].files,
        "serving": first["export"].files,
    }
    warm = runner.run("beside-warm", inputs, mode="warm", recommender=counting)
    assert len(warm["train"].facts["retriever"]["losses"]) < len(first["train"].facts["retriever"]["losses"])
    assert warm["evaluate"].metrics["serving.recall@12"] > warm["evaluate"].metrics["popularity.recall@12"]
    assert retrieved(runner, warm) > 0.8


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
def test_who_has_vectors_goes_through_the_same_stages_retrieves_alone_and_goes_on_in_a_warm_run(runner: StageRunner, family: str) -> None:
    (settings, gentle), name = BY_THEMSELVES[family], family.replace("_", "-")
    model = {"family": family, **settings}
    recommender = runner.recommender | RETRIEVE | {"model": model}
    first = runner.run(name, {}, recommender=recommender)
    metrics = first["evaluate"].metrics
    assert metrics["candidate.hr@10"] > 1.5 * metrics["popularity.hr@10"] > 0
    assert metrics["candidate.recall@12"] > 1.5 * metrics["popularity.recall@12"] > 0
    assert first["export"].metrics["export.parity"] < 1e-5
    assert "train.retriever_seconds" not in first["train"].metrics
    assert retrieved(runner, first) > 0.8

    events = tastes(np.random.default_rng(3), USERS + 40, 2000).with_columns(at=1.7e9 + np.arange(2000.0))
    path = runner.folder / f"{name}.csv"
    events.rename({"userId": "user", "movieId": "item", "rating": "value", "at": "time"}).write_csv(path)
    inputs = {
        "events": {"events.csv": runner.store.put(path)},
        "parent": first["etl"].files | first["train"].files,
        "serving": first["export"].files,
    }
    warm = runner.run(f"{name}-warm", inputs, mode="warm", recommender=recommender | {"model": model | {"train": gentle}})
    assert {"serving.recall@12", "candidate.recall@12"} <= set(warm["evaluate"].metrics)
    assert retrieved(runner, warm) > 0.7


@pytest.mark.requirement("G-20", "G-01", "G-09")
def test_sequences_of_rows_go_through_the_same_stages_and_go_on_in_a_warm_run(runner: StageRunner) -> None:
    model = {"family": "session", "params": {"width": 16, "blocks": 1}, "train": {"epochs": 10, "learning_rate": 0.005, "validation": 0.2}}
    features = [*runner.recommender["features"], {"sequence": {"of": "movieId", "by": "userId", "length": 10, "liked": True}}]
    reading = runner.recommender | RETRIEVE | {"model": model, "features": features}
    first = runner.run("reading", {}, recommender=reading)
    metrics = first["evaluate"].metrics
    assert metrics["candidate.hr@10"] > 1.2 * metrics["popularity.hr@10"] > 0
    assert first["export"].metrics["export.parity"] < 1e-5
    assert "train.retriever_seconds" not in first["train"].metrics
    signature = json.loads(runner.fetch(first["export"], "signature.json").read_text())
    assert signature["session"] == "movieId_session"

    events = tastes(np.random.default_rng(3), USERS + 40, 2000).with_columns(at=1.7e9 + np.arange(2000.0))
    path = runner.folder / "reading.csv"
    events.rename({"userId": "user", "movieId": "item", "rating": "value", "at": "time"}).write_csv(path)
    inputs = {
        "events": {"events.csv": runner.store.put(path)},
        "parent": first["etl"].files | first["train"].files,
        "serving": first["export"].files,
    }
    gentle = reading | {"model": model | {"train": {"epochs": 2, "learning_rate": 0.001}}}
    warm = runner.run("reading-warm", inputs, mode="warm", recommender=gentle)
    assert {"serving.hr@10", "candidate.hr@10"} <= set(warm["evaluate"].metrics)
    assert warm["export"].metrics["export.parity"] < 1e-5
