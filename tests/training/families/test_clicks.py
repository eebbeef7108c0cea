"""Clicks with given labels: no negatives are sampled, and scores are rates."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.models.family import MODEL
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.optimizers import Decayed, Sgd
from tests.support.refitted import Stages

ROWS, RATE = 6_000, 0.3
FAMILIES: dict[str, dict[str, Any]] = {
    **{name: {"params": {"layers": [16], "width": 8}} for name in ("mlp", "wide_deep", "dlrm", "deepfm", "dcn")},
    "gbm": {"params": {"trees": 30, "depth": 3, "width": 0}},
}
TRAIN = {"epochs": 4, "batch_size": 256, "learning_rate": 0.01}
ROWS_ONLY = [{"metric": "auc", "min": 0.5}]


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
    stages.run(stages.spec(model={"family": family, **FAMILIES[family], **train}, gates=ROWS_ONLY))
    assert json.loads(stages.done["train"].files["training.json"].read_text())["negatives"] == 0
    metrics = stages.done["evaluate"].metrics
    apart = abs(metrics["candidate.calibration"] - 1)
    assert apart < 4 * metrics["candidate.calibration.se"] and metrics["candidate.calibration.se"] < 0.1
    assert json.loads(stages.done["refit"].files["training.json"].read_text())["negatives"] == 0


OVERTRAINED: dict[str, dict[str, Any]] = {
    "mlp": {
        "params": {"layers": [32], "width": 16},
        "train": {"epochs": 20, "validate_from": 20, "batch_size": 128, "learning_rate": 0.02, "validation": 0.2},
    },
    "gbm": {"params": {"trees": 1, "depth": 12, "learning_rate": 1.0, "width": 0, "keys": False}, "train": {"validation": 0.2}},
}


@pytest.mark.parametrize("family", OVERTRAINED)
def test_an_overtrained_model_publishes_calibrated_probabilities(tmp_path: Path, family: str, caplog: pytest.LogCaptureFixture) -> None:
    """The best log loss of this world is 0.54. A refit takes the candidate's calibration; a warm run finds its own."""
    stages = Stages(tmp_path)
    clicks(stages, RATE)
    spec = stages.spec(model={"family": family, **OVERTRAINED[family]}, gates=ROWS_ONLY)
    with caplog.at_level("INFO"):
        stages.run(spec)
    before, after = (float(re.findall(rf"loss_{when}=(\S+)", caplog.text)[0]) for when in ("before", "after"))
    fitted, metrics = stages.done["train"].facts["calibration"], stages.done["evaluate"].metrics
    assert fitted["slope"] < 0.8 and after < before - 0.01 and metrics["candidate.log_loss"] < 0.63
    error = math.hypot(metrics["candidate.calibration.se"], 1 / math.sqrt(RATE * fitted["rows"]))
    assert abs(metrics["candidate.calibration"] - 1) < 4 * error
    assert json.loads(stages.done["refit"].files[MODEL].read_text())["calibration"] == fitted
    assert stages.done["export"].metrics["export.parity"] < 1e-5
    stages.run(spec, "r2", {"events": stages.events(2, 1.7e9), "parent": stages.parent}, mode="warm")
    assert stages.done["train"].facts["calibration"]["slope"] != fitted["slope"]
    assert stages.done["export"].metrics["export.parity"] < 1e-5


def test_logged_positives_with_some_dislikes_still_sample_negatives(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    clicks(stages, 0.7)
    stages.run(stages.spec(model={"family": "mlp", **FAMILIES["mlp"], "train": TRAIN}, gates=ROWS_ONLY))
    assert json.loads(stages.done["train"].files["training.json"].read_text())["negatives"] == 4
    assert stages.done["evaluate"].metrics["candidate.calibration"] < 0.8


def test_a_model_that_must_rank_a_catalogue_samples_negatives_beside_given_ones(tmp_path: Path) -> None:
    """Users are shown items of their own genre and choose two of five: labels alone do not tell what they would do with other genres."""
    random = np.random.default_rng(3)
    user = random.integers(0, 60, ROWS)
    item = 4 * random.integers(0, 100, ROWS) + user % 4
    clicked = random.random(ROWS) < 0.4
    table = {"user": user, "item": item, "stars": np.where(clicked, 5.0, 1.0), "at": 1.6e9 + np.arange(ROWS) * 60.0}
    rates = {}
    for name, params in (("usual", {}), ("labels", {"negatives": 0})):
        (tmp_path / name).mkdir()
        stages = Stages(tmp_path / name)
        pl.DataFrame(table).write_parquet(stages.folder / "ratings.parquet")
        genres = [["Drama", "Comedy", "Horror", "Kids"][number % 4] for number in range(400)]
        pl.DataFrame({"item": range(400), "genre": genres}).write_parquet(stages.folder / "items.parquet")
        model = {"family": "mlp", "params": {**FAMILIES["mlp"]["params"], **params}, "train": {**TRAIN, "epochs": 8}}
        stages.run(stages.spec(model=model, gates=[{"metric": "hr@33", "better_than": "popularity"}]))
        rates[name] = stages.done["evaluate"].metrics["candidate.hr@33"]
    assert rates["usual"] > 1.5 * rates["labels"], rates


def test_the_l2_of_a_row_that_was_not_read_for_long_never_moves_it_beyond_zero() -> None:
    load_framework("tensorflow")
    import keras

    steps, rows = keras.Variable(50_000, dtype="int32"), np.array([[2.0], [-3.0]], np.float32)
    optimizer = Decayed(Sgd(0.5), 0.1, steps, 0.5)
    slots = {"read": np.array([[0.0], [49_999.0]], np.float32)}
    moved, after = optimizer.step(rows, np.zeros_like(rows), slots)
    np.testing.assert_allclose(moved, [[0.0], [-3.0 * (1 - 0.5 * 0.1)]], atol=1e-6)
    np.testing.assert_array_equal(after["read"], [[50_000.0], [50_000.0]])
