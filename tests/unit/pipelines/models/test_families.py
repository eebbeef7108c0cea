"""The registry of families, and the smallest of them: popularity as a model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.inputs.tables import FeatureTable
from pipelines.models.families import FAMILIES, check_parent, load_model
from pipelines.models.family import MODEL
from pipelines.models.popularity_baseline import fit_popularity
from pipelines.models.popularity_model import CountModel, PopularityFamily
from shared.contracts.models import Model
from shared.domain.errors import Invalid
from tests.support.exported_units import Small, small


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def model(world: Small) -> CountModel:
    trained = world.train("popularity")
    assert isinstance(trained, CountModel)
    return trained


def test_what_a_spec_may_name_is_what_the_registry_has() -> None:
    assert set(FAMILIES) == set(Model.FAMILIES)


def test_a_warm_run_from_another_family_is_refused(tmp_path: Path) -> None:
    (tmp_path / MODEL).write_text('{"family": "mlp"}')
    check_parent("mlp", lambda name: tmp_path / name)
    with pytest.raises(Invalid, match="the parent is of the family 'mlp', not 'popularity': a warm run cannot change it; start a full run"):
        check_parent("popularity", lambda name: tmp_path / name)


@pytest.mark.requirement("G-17")
def test_a_popularity_model_orders_items_as_the_baseline_does(world: Small, model: CountModel) -> None:
    baseline = fit_popularity(pl.scan_parquet(world.folder / "train.parquet"), world.items["movieId"])
    scores = model.score(world.codes)
    assert scores.dtype == np.float32
    assert (scores.max(), scores.min() >= 0) == (1, True)
    np.testing.assert_allclose(scores, baseline.scores / baseline.scores.max(), rtol=1e-6)


def test_items_that_share_the_code_of_the_unknown_share_the_mean_of_their_counts(world: Small) -> None:
    codes = {**world.codes, "movieId": np.where(world.codes["movieId"] > 5, 1, world.codes["movieId"])}
    hidden = world.codes["movieId"] > 5
    narrowed = replace(world, catalogue=FeatureTable(codes, {})).train("popularity")
    baseline = fit_popularity(pl.scan_parquet(world.folder / "train.parquet"), world.items["movieId"]).scores
    shown = narrowed.score(codes)
    assert len(set(shown[hidden])) == 1
    np.testing.assert_allclose(shown[hidden][0] / shown[~hidden].max(), baseline[hidden].mean() / baseline[~hidden].max(), rtol=1e-6)


def test_a_saved_popularity_model_is_read_back_the_same(world: Small, model: CountModel, tmp_path: Path) -> None:
    files = model.save(tmp_path)
    again = load_model(lambda name: files[name])
    np.testing.assert_array_equal(again.score(world.codes), model.score(world.codes))
    assert json.loads(files[MODEL].read_text())["family"] == PopularityFamily.name


def test_one_order_for_everybody_retrieves_nothing(world: Small, model: CountModel) -> None:
    assert model.embeddings(world.codes) is None  # type: ignore[func-returns-value]
