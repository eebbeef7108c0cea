"""The refit of families that take steps or grow trees: what is exported has learned the newest rows."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from shared.contracts.models import Model
from shared.contracts.spec import RecommenderSpec
from tests.support.refitted import STEPS, Stages, check_refit

pytestmark = pytest.mark.requirement("G-09")

TREES = {"params": {"trees": 10, "depth": 3}}


@pytest.mark.parametrize("family", [*STEPS, "gbm"])
def test_what_is_exported_has_learned_the_newest_rows(tmp_path: Path, family: str) -> None:
    stages = Stages(tmp_path)
    stages.run(stages.spec(model={"family": family, **STEPS.get(family, TREES)}))
    check_refit(stages)


def test_every_family_of_this_release_is_refitted_by_a_test() -> None:
    assert {*STEPS, "gbm", "popularity", "ease", "itemknn", "transitions", "mf", "blend"} == set(Model.FAMILIES)


@pytest.mark.parametrize("family", ["mlp", "gbm"])
def test_a_warm_run_is_refitted_from_its_parent_and_forgets_no_more_than_it(tmp_path: Path, family: str) -> None:
    stages = Stages(tmp_path)
    model = {"family": family, **STEPS.get(family, TREES)}
    spec = stages.spec(model=model, retrain={"warm": {"replay": "50%"}})
    stages.run(spec)
    stages.run(spec, "r2", {"events": stages.events(2, 1.7e9), "parent": stages.parent}, mode="warm")
    refit = stages.done["refit"]
    assert refit.metrics["refit.replayed"] > 0
    if family == "gbm":
        assert refit.facts["trees"] == 20 and refit.facts["grown"] == 10, "ten of its parent and ten of its own"
    assert refit.facts["newest"] > 1.7e9
    assert stages.done["export"].metrics["export.parity"] < 1e-5


def test_a_refit_trains_the_epochs_that_held_out_rows_chose(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    train = {"epochs": 6, "batch_size": 128, "learning_rate": 0.05, "validation": 0.2, "early_stop": {"patience": 1}}
    stages.run(stages.spec(model={"family": "mlp", "params": {"layers": [8], "width": 4}, "train": train}))
    chosen = json.loads(stages.done["train"].files["training.json"].read_text())["published"]["epoch"]
    report = json.loads(stages.done["refit"].files["training.json"].read_text())
    assert report["published"] == {"epoch": chosen, "of": chosen, "best_by": None}
    assert "validation" not in report["epochs"][0]
    assert report["epochs"][0]["rows"] > json.loads(stages.done["train"].files["training.json"].read_text())["epochs"][0]["rows"]


def test_features_of_a_moment_look_back_at_the_same_rows_as_before(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    features = [{"categorify": ["user", "item"]}, {"lag": {"of": "at", "by": "user"}}]
    stages.run(stages.spec(model={"family": "mlp", **STEPS["mlp"]}, features=features))
    held = stages.rows("refit", "held.parquet")["user"].implode()
    key = ["user", "item", "time"]
    (feature,) = [name for name in stages.rows("etl", "train.parquet").columns if name.startswith("f.")]
    for name in ("train.parquet", "holdout.parquet"):
        before, after = (stages.rows(stage, name).filter(~pl.col("user").is_in(held)) for stage in ("etl", "refit"))
        both = before.join(after, on=key, suffix="@refit")
        assert len(both) == len(before) > 30
        assert both[feature].equals(both[f"{feature}@refit"], null_equal=True)
        assert both[feature].n_unique() > 10


def test_sequences_of_a_refit_show_views_of_pages_too(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    whole = pl.read_parquet(tmp_path / "ratings.parquet").with_columns(page=pl.lit(None, pl.String))
    views = whole.with_columns(
        item=pl.lit(None, whole["item"].dtype), stars=pl.lit(None, pl.Float64), page=pl.lit("help"), at=pl.col("at") - 0.1
    )
    pl.concat([whole, views]).write_parquet(tmp_path / "ratings.parquet")
    spec = stages.spec(model={"family": "mlp", **STEPS["mlp"]}).document()
    spec["schema"]["page"] = "page"
    spec["features"] = [{"categorify": ["user", "item"]}, {"sequence": {"of": "item", "by": "user", "length": 4, "pages": True}}]
    stages.run(RecommenderSpec.model_validate(spec))
    codes = stages.rows("refit", "train.parquet").select(pl.col("^f\\..*$")).to_series().explode(empty_as_null=False).n_unique()
    assert (
        codes == stages.rows("etl", "train.parquet").select(pl.col("^f\\..*$")).to_series().explode(empty_as_null=False).n_unique() > 24
    ), "items, and a page"
