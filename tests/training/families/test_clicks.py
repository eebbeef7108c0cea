"""Clicks with given labels: no negatives are sampled, and scores are rates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.optimizers import Decayed, Sgd
from pipelines.models.neural.train import l2_of
from shared.contracts.families import MlpParams
from shared.contracts.models import Training
from tests.support.refitted import Stages

ROWS, RATE = 6_000, 0.3
FAMILIES: dict[str, dict[str, Any]] = {
    **{name: {"params": {"layers": [16], "width": 8}} for name in ("mlp", "wide_deep", "dlrm", "deepfm", "dcn")},
    "gbm": {"params": {"trees": 30, "depth": 3, "width": 0}},
}
TRAIN = {"epochs": 4, "batch_size": 256, "learning_rate": 0.01}


def clicks(stages: Stages, rate: float) -> None:
    """Replaces the ratings by clicks: some items are chosen three times as often as others."""
    random = np.random.default_rng(7)
    user, item = random.integers(0, 60, ROWS), random.integers(0, 24, ROWS)
    clicked = random.random(ROWS) < rate * np.where(item % 4 == 0, 2.0, 2 / 3)
    table = {"user": user, "item": item, "stars": np.where(clicked, 5.0, 1.0), "at": 1.6e9 + np.arange(ROWS) * 60.0}
    pl.DataFrame(table).write_parquet(stages.folder / "ratings.parquet")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_given_labels_predicts_the_rate_of_clicks(tmp_path: Path, family: str) -> None:
    stages = Stages(tmp_path)
    clicks(stages, RATE)
    train = {} if family == "gbm" else {"train": TRAIN}
    stages.run(stages.spec(model={"family": family, **FAMILIES[family], **train}))
    assert json.loads(stages.done["train"].files["training.json"].read_text())["negatives"] == 0
    metrics = stages.done["evaluate"].metrics
    apart = abs(metrics["candidate.calibration"] - 1)
    assert apart < 4 * metrics["candidate.calibration.se"] and metrics["candidate.calibration.se"] < 0.1
    assert json.loads(stages.done["refit"].files["training.json"].read_text())["negatives"] == 0


def test_logged_positives_with_some_dislikes_still_sample_negatives(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    clicks(stages, 0.7)
    stages.run(stages.spec(model={"family": "mlp", **FAMILIES["mlp"], "train": TRAIN}))
    assert json.loads(stages.done["train"].files["training.json"].read_text())["negatives"] == 4
    assert stages.done["evaluate"].metrics["candidate.calibration"] < 0.8


def test_sharded_tables_have_no_l2_unless_the_spec_sets_it() -> None:
    whole, sharded = Training(), Training(processes=2, shard="row", optimizer="sgd")
    assert l2_of(MlpParams(), whole, 80_000, sampled=False) == 0.05
    assert l2_of(MlpParams(), whole, 80_000, sampled=True) == 0
    assert l2_of(MlpParams(), sharded, 80_000, sampled=False) == 0
    assert l2_of(MlpParams(regularisation=0.01), sharded, 80_000, sampled=False) == 0.01


def test_the_l2_of_a_row_that_was_not_read_for_long_never_moves_it_beyond_zero() -> None:
    load_framework("tensorflow")
    import keras

    steps, rows = keras.Variable(50_000, dtype="int32"), np.array([[2.0], [-3.0]], np.float32)
    optimizer = Decayed(Sgd(0.5), 0.1, steps, 0.5)
    slots = {"read": np.array([[0.0], [49_999.0]], np.float32)}
    moved, after = optimizer.step(rows, np.zeros_like(rows), slots)
    np.testing.assert_allclose(moved, [[0.0], [-3.0 * (1 - 0.5 * 0.1)]], atol=1e-6)
    np.testing.assert_array_equal(after["read"], [[50_000.0], [50_000.0]])
