"""Validation while a model is trained: the metrics of held-out rows, and the best epoch is published."""

from __future__ import annotations

import logging
from pathlib import Path

import polars as pl
import pytest

from pipelines.models.families import FAMILIES
from pipelines.training.trainer import TrainingRequest, material
from tests.support.validated_rows import ROWS, training_task, write_rows


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path)


@pytest.mark.requirement("T-10")
def test_a_spec_that_asks_for_it_sees_a_model_get_better_on_rows_that_it_was_not_trained_on(
    rows: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = training_task(rows, validation=0.1, epochs=8)
    with material(task, TrainingRequest(negatives=4)) as training_material:
        to_train, to_look = training_material.batches, training_material.validation
        assert to_look is not None and not to_look.unknown_users and not to_look.unknown_items
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
    assert (
        f" loss={fitted.facts['losses'][-1]:.4f} validation_loss={seen['losses'][-1]:.4f} auc=" in caplog.text
        and "epoch=8 of=8 " in caplog.text
    )
    without = FAMILIES["mlp"].train(training_task(rows))
    assert "validation" not in without.facts and not any("validation" in name for name in without.metrics)
