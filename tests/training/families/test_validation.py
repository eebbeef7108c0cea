"""Validation while a model is trained: the metrics of held-out rows, and the best epoch is published."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.inputs.tables import Catalogue
from pipelines.models.families import FAMILIES
from pipelines.models.family import Task
from pipelines.models.popularity import fit_popularity
from pipelines.training.course import Wants, material
from shared.contracts.models import Model
from tests.support.feature_graphs import of_keys

ROWS, USERS, ITEMS = 6_000, 50, 40


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Whether a user likes an item follows from both; each row is told from others by its time."""
    random = np.random.default_rng(2)
    user, item = random.integers(0, USERS, ROWS), random.integers(0, ITEMS, ROWS)
    frame = pl.DataFrame(
        {
            "user": user,
            "item": item,
            "time": np.arange(ROWS, dtype=np.float64),
            "label": (user % 4 == item % 4).astype(np.int8),
            "user_code": (user + 2).astype(np.int32),
            "item_row": item.astype(np.int32),
        }
    )
    frame.write_parquet(tmp_path / "train.parquet", row_group_size=1000)
    return tmp_path / "train.parquet"


def _task(rows: Path, **train: object) -> Task:
    model = Model.model_validate(
        {"params": {"layers": [16], "width": 8}, "train": {"batch_size": 256, "epochs": 3, "learning_rate": 0.02} | train}
    )
    popularity = fit_popularity(pl.scan_parquet(rows), pl.Series(range(ITEMS)))
    items = Catalogue({"item": np.arange(ITEMS, dtype=np.int32) + 2}, {})
    return Task(model, of_keys(USERS, ITEMS), rows, items, None, popularity, logging.getLogger("test"))


@pytest.mark.requirement("T-10")
def test_a_spec_that_asks_for_it_sees_a_model_get_better_on_rows_that_it_was_not_trained_on(
    rows: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = _task(rows, validation=0.1, epochs=8)
    with material(task, Wants(negatives=4)) as given:
        to_train, to_look = given.batches, given.held
        assert to_look is not None and not to_look.unknown_share
        times = [set(pl.read_parquet(one.path)["time"]) for one in (to_train, to_look)]
        assert not times[0] & times[1] and len(times[0] | times[1]) == ROWS
        folder = to_look.path.parent
    assert not folder.exists()
    with caplog.at_level(logging.INFO):
        fitted = FAMILIES["mlp"].train(task)
    seen, published = fitted.facts["validation"], fitted.facts["published"]["epoch"] - 1
    assert len(seen["losses"]) == len(seen["aucs"]) == 8 and seen["losses"][-1] < seen["losses"][0]
    assert fitted.metrics["train.validation_auc"] == pytest.approx(seen["aucs"][published], abs=1e-6) and max(seen["aucs"]) > 0.85
    assert seen["aucs"][published] == max(seen["aucs"]), "the best epoch is what is published"
    assert fitted.metrics["train.validation_loss"] == pytest.approx(seen["losses"][published], abs=1e-6)
    assert f"epoch 8 of 8, loss {fitted.facts['losses'][-1]:.4f}, validation loss {seen['losses'][-1]:.4f}, AUC" in caplog.text
    without = FAMILIES["mlp"].train(_task(rows))
    assert "validation" not in without.facts and not any("validation" in name for name in without.metrics)
