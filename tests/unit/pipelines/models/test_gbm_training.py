"""Training of trees: early stopping, warm runs, checkpoints after a kill, and settings that are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from pipelines.models.gbm import Gbm
from pipelines.models.trees.model import TreeModel
from pipelines.training.checkpoints import CheckpointStore, rests_on
from shared.artifacts import FsspecLive
from shared.contracts.families import GbmParams
from shared.contracts.models import Model
from shared.domain.errors import Invalid
from tests.support.taste_data import LOG, pairs, task

LIBRARIES = ("xgboost", "lightgbm", "forest")
Parents = Callable[[str], tuple[TreeModel, dict[str, Path]]]
SMALL: dict[str, Any] = {"trees": 12, "depth": 4, "width": 8, "folds": 3}


def params(library: str, **more: Any) -> GbmParams:
    return GbmParams.model_validate({"library": library, **SMALL, **more})


def trained(folder: Path, **more: Any) -> TreeModel:
    return fitted(folder, **more).model  # type: ignore[no-any-return]


def fitted(folder: Path, train: dict[str, Any] | None = None, **more: Any) -> Any:
    given = task(folder, pairs(), "popularity")
    model = Model.model_validate({"family": "gbm", "params": SMALL | more, "train": train or {}})
    return Gbm().train(replace(given, model=model))


@pytest.mark.requirement("G-09", "G-18")
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_warm_run_grows_further_trees_on_its_parent_s(tmp_path: Path, parents: Parents, library: str) -> None:
    parent, warm = going_on(tmp_path, parents, library)
    before, after = parent.trees, warm.trees
    assert len(after.roots) == 2 * len(before.roots) == 24
    count = int(after.roots[12])
    np.testing.assert_array_equal(after.feature[:count], before.feature)
    np.testing.assert_array_equal(after.threshold[:count], before.threshold)
    rows = np.random.default_rng(1).normal(size=(200, len(warm.layout.columns))).astype(np.float32)
    np.testing.assert_allclose(after.score(rows), warm.margin(rows), atol=2e-6)


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> Parents:
    """By library: a model of the first likes, and its files."""

    def trained(library: str) -> tuple[TreeModel, dict[str, Path]]:
        folder = tmp_path_factory.mktemp(library)
        model = Gbm().train(task(folder / "parent", pairs().take(slice(0, 300)), "gbm", library=library, **SMALL)).model
        assert isinstance(model, TreeModel)
        return model, model.save(folder)

    return cache(trained)


def going_on(folder: Path, parents: Parents, library: str, changed: dict[str, Any] | None = None) -> tuple[TreeModel, TreeModel]:
    everything = pairs()
    old, new = everything.take(slice(0, 300)), everything.take(slice(300, None))
    parent, files = parents(library)
    pl.DataFrame({"user": old.users, "item": old.items, "label": 1, "before": 1}).write_parquet(folder / "history.parquet")
    given = task(folder / "warm", new, "gbm", lambda name: files[name], **{"library": library, **SMALL, **(changed or {})})
    warm = Gbm().train(replace(given, history=folder / "history.parquet")).model
    assert isinstance(warm, TreeModel)
    return parent, warm


@pytest.mark.parametrize(
    ("library", "changed", "said"),
    [
        ("forest", {}, "a forest cannot continue from a parent's trees in a warm run; start a full run"),
        ("xgboost", {"library": "lightgbm"}, "'lightgbm' is not the parent's 'xgboost': a warm run cannot change it"),
        ("xgboost", {"objective": "rank"}, "'rank' is not the parent's 'logistic'"),
        ("xgboost", {"width": 0}, "features: the columns differ from those of the parent's trees"),
    ],
)
def test_what_a_warm_run_can_t_go_on_from_is_refused(
    tmp_path: Path, parents: Parents, library: str, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        going_on(tmp_path, parents, library, changed)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_best_number_of_trees_is_published_and_growing_ends_when_it_no_longer_helps(tmp_path: Path, library: str) -> None:
    train = {"validation": 0.2, "early_stop": {"patience": 2}}
    found = fitted(tmp_path, train, library=library, trees=60)
    rounds, published = found.report["rounds"], found.report["published"]
    best = max(rounds, key=lambda one: one["validation"]["auc"])
    assert published["trees"] == best["trees"] == len(found.model.trees.roots)
    assert published["best_by"] == {"metric": "auc", "value": best["validation"]["auc"]}
    assert found.metrics["train.validation_auc"] > 0.7
    assert (len(rounds) < 20) == (found.report["ended"] == "auc did not improve in 2 validations")


def test_trees_are_compared_by_how_held_out_likes_rank(tmp_path: Path) -> None:
    found = fitted(tmp_path, {"validation": 0.2, "early_stop": {"metric": "ndcg@10/99", "patience": 50}}, objective="rank")
    assert found.report["published"]["best_by"]["metric"] == "ndcg@10/99"
    with pytest.raises(Invalid, match=r"ranking trees have no 'loss': choose auc"):
        fitted(tmp_path / "loss", {"validation": 0.2, "early_stop": {"metric": "loss"}}, objective="rank")


@pytest.mark.requirement("N-05")
def test_a_killed_training_goes_on_and_ends_where_an_undisturbed_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trained(tmp_path / "whole", subsample=0.5, columns=0.6)
    train = {"checkpoint": {"every": "1h", "steps": 3}}
    model = Model.model_validate({"family": "gbm", "params": SMALL | {"subsample": 0.5, "columns": 0.6}, "train": train})
    given = replace(task(tmp_path / "killed", pairs(), "popularity"), model=model)

    def keeping(attempt: str) -> CheckpointStore:
        scratch = tmp_path / attempt
        scratch.mkdir()
        return CheckpointStore(FsspecLive(str(tmp_path / "live"), attempt), rests_on(model, "full", {}), scratch, LOG)

    grow = killed_after(7, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        Gbm().train(replace(given, keeping=keeping("run-train-1")))
    grow()
    found = Gbm().train(replace(given, keeping=keeping("run-train-2")))
    assert found.report is not None and found.report["resumed"] == [{"attempt": "run-train-1"}]
    assert found.report["rounds"][5]["trees"] == 6
    assert isinstance(found.model, TreeModel)
    for name, array in whole.trees.arrays.items():
        np.testing.assert_array_equal(array, found.model.trees.arrays[name])


def killed_after(trees: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    from pipelines.models.trees.by_xgboost import XGBoost

    grow = XGBoost.grow

    def dying(self: XGBoost, more: int) -> None:
        if self.count >= trees:
            raise KeyboardInterrupt
        grow(self, more)

    monkeypatch.setattr(XGBoost, "grow", dying)
    return cache(lambda: monkeypatch.setattr(XGBoost, "grow", grow))


def test_what_doesn_t_fit_is_refused_before_anything_is_grown(tmp_path: Path) -> None:
    given = task(tmp_path, pairs(), "gbm", library="lightgbm", **SMALL)
    with pytest.raises(
        Invalid, match=r"rows of 7 columns take .* resources.train.memory gives .*: choose library: xgboost, .*or draw fewer"
    ):
        Gbm().train(replace(given, memory=100_000))
    large = replace(given, model=Model.model_validate({"family": "gbm", "params": {"library": "forest", "trees": 10_000, "depth": 16}}))
    with pytest.raises(Invalid, match=r"an exported graph holds 2\.1 GB: choose fewer trees, or a smaller depth"):
        Gbm().train(large)


def test_a_gpu_takes_a_build_that_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import xgboost

    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": False})
    with pytest.raises(Invalid, match="built without CUDA: leave device out, or use an image with 'xgboost'"):
        trained(tmp_path, device="cuda")
    monkeypatch.setattr("pipelines.models.trees.by_xgboost.gpu_sizes", list)
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": True})
    with pytest.raises(Invalid, match="cuda needs a GPU, and nvidia-smi finds none here: leave device out"):
        trained(tmp_path, device="cuda")


WITHOUT_EFFECT: list[tuple[dict[str, Any], str]] = [
    ({"params": {"library": "forest", "learning_rate": 0.2}}, "'learning_rate' has no effect in a forest"),
    ({"params": {"library": "forest", "objective": "rank"}}, "'objective' has no effect in a forest"),
    ({"params": {"splits": "random"}}, "'splits' has no effect with xgboost"),
    ({"params": {"library": "lightgbm", "device": "cuda"}}, "'device' has no effect with lightgbm"),
    ({"params": {"negatives": 0, "among": "popular"}}, "'among' has no effect without negatives"),
    ({"params": {"candidates": 50}}, "'candidates' has no effect with 'among: all'"),
    ({"params": {"among": "retrieved", "verified": False}}, "'verified' has no effect with 'among: retrieved'"),
    ({"params": {"among": "mixed", "width": 0}}, "needs a factorisation; set width above 0"),
    ({"train": {"epochs": 9}}, "'epochs' has no effect: gbm grows trees"),
    ({"train": {"learning_rate": 0.5}}, "'learning_rate' has no effect: gbm grows trees"),
    ({"params": {"library": "lightgbm"}, "train": {"checkpoint": {"every": "1m"}}}, "'checkpoint' has no effect"),
    ({"tune": {"train.epochs": {"from": 1, "to": 5}}}, "'train.epochs' has no effect: gbm grows trees"),
]


@pytest.mark.requirement("G-18")
def test_what_has_no_effect_is_refused(subtests: pytest.Subtests) -> None:
    for said, why in WITHOUT_EFFECT:
        with subtests.test(msg=why), pytest.raises(ValidationError, match=why):
            Model.model_validate({"family": "gbm", **said})
