"""Families of trees, `gbm` and one of somebody's own: trained, judged, exported, and served with numbers that may be missing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.models import families
from pipelines.stages import etl, evaluate, export, train
from pipelines.stages.runner import Context
from services.triton.verify import examine
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.families import PopularityParams
from shared.contracts.models import Model
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, StageSpec
from shared.serving.signature import Signature
from shared.stage_process import Outcome
from tests.support import stump_family
from tests.unit.pipelines.recommender import films, spec, write

STAGES: dict[str, Callable[[Context], Outcome]] = {"etl": etl.run, "train": train.run, "evaluate": evaluate.run, "export": export.run}
FEATURES: list[dict[str, Any]] = [
    {"categorify": ["userId", "movieId", "year"]},
    {"multi_hot": "genres", "separator": "|", "max_length": 3},
    {"fill": "price", "flag": True},
    {"log": "price"},
    {"normalise": "price"},
    {"normalise": "age"},
    {"count_encode": "movieId"},
    {"one_hot": "year"},
]


class Platform:
    """Runs the stages in this process, where the family is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, FsspecArtifacts(str(folder / "artifacts"))

    def context(self, stage: str, recommender: RecommenderSpec, inputs: dict[str, Files]) -> Context:
        made = StageSpec(
            stage=stage,  # type: ignore[arg-type]
            run=recommender.model.family,
            attempt=f"{recommender.model.family}-{stage}-1",
            recommender=recommender,
            inputs=inputs,
            data_roots=(str(self.folder),),
            artifacts=self.store.url,
        )
        scratch = self.folder / made.attempt
        scratch.mkdir()
        return Context(made, scratch, self.store, logging.getLogger("test"))

    def run(self, recommender: RecommenderSpec) -> tuple[dict[str, Outcome], dict[str, Files]]:
        outcomes: dict[str, Outcome] = {}
        files: dict[str, Files] = {}
        for stage, work in STAGES.items():
            outcome = outcomes[stage] = work(self.context(stage, recommender, dict(files)))
            files[stage] = {name: self.store.put(path) for name, path in outcome.files.items()}
        return outcomes, files


@pytest.mark.requirement("G-06", "G-18")
@pytest.mark.parametrize(
    "model",
    [
        {"family": "stumps"},
        {"family": "gbm", "params": {"trees": 20, "width": 8, "negatives": 0}},
        {"family": "gbm", "params": {"library": "lightgbm", "trees": 20, "width": 8, "negatives": 0}},
        {"family": "gbm", "params": {"library": "forest", "trees": 20, "depth": 6, "width": 8, "negatives": 0}},
    ],
    ids=["stumps", "xgboost", "lightgbm", "forest"],
)
def test_a_family_of_trees_is_trained_judged_exported_and_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: dict[str, Any]
) -> None:
    monkeypatch.setitem(families.FAMILIES, "stumps", stump_family.Family())  # type: ignore[arg-type]
    monkeypatch.setitem(Model.FAMILIES, "stumps", PopularityParams)  # type: ignore[attr-defined]  # nothing can be chosen
    random = np.random.default_rng(5)
    user, item = random.integers(1, 40, 6000), random.integers(1, 21, 6000)
    # What is liked: expensive films, and those whose price nobody knows.
    liked = random.random(6000) < np.where((item % 4 == 0) | (item > 14), 0.9, 0.1)
    rows = pl.DataFrame({"userId": user, "movieId": item, "rating": np.where(liked, 5.0, 2.0), "at": 1.6e9 + np.arange(6000) * 60.0})
    table = films().with_columns(price=pl.when(pl.col("movieId") % 4 > 0).then(pl.col("movieId") / 2))
    write(tmp_path, rows, table)
    pl.DataFrame({"userId": range(1, 36), "age": [None if one % 5 == 0 else one for one in range(1, 36)]}).write_parquet(
        tmp_path / "users.parquet"
    )
    gates = [{"metric": "auc", "min": 0.5}, {"parity": 1e-5}]
    said = spec(tmp_path, features=FEATURES, model=model, gates=gates)
    data = said.document()["data"] | {"users": {"uri": str(tmp_path / "users.parquet"), "key": "userId"}}
    platform = Platform(tmp_path)
    outcomes, files = platform.run(RecommenderSpec.model_validate(said.document() | {"data": data}))

    assert outcomes["evaluate"].metrics["candidate.auc"] > 0.8
    assert "price" in outcomes["train"].facts["features" if model["family"] == "stumps" else "columns"]
    assert outcomes["export"].metrics["export.parity"] < 1e-6
    signature = Signature.model_validate_json(outcomes["export"].files["signature.json"].read_text())
    features = {one.column: one.missing for one in signature.features}
    assert features == {
        "userId": False,
        "movieId": False,
        "year": False,
        "genres": False,
        "price": True,
        "age": True,
        "movieId_count": True,
    }
    with np.load(outcomes["export"].files["parity.npz"], allow_pickle=False) as stored:
        assert np.isnan(stored["features/price"]).any() and np.isfinite(stored["features/price"]).any()

    verify = platform.context("verify", RecommenderSpec.model_validate(said.document()), {"export": files["export"]})
    metrics, facts = examine(verify.spec, platform.store, verify.scratch)
    assert metrics["parity"] < 1e-6 and facts["parity_rows"] > 4000
