"""Rows of the training data that are looked at after each epoch: which they are, that nothing trains on them, and what is said of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.inputs.batches import Batches
from pipelines.inputs.tables import Codes
from pipelines.training.trainer import LOADER, TrainingRequest, material
from pipelines.training.validation import Validation, describe_metrics, hold_out
from shared.domain.errors import Invalid
from tests.support.validated_rows import training_task, write_rows


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path)


@pytest.mark.requirement("T-10")
def test_a_share_of_the_rows_is_held_out_the_same_whatever_their_order(rows: Path, tmp_path: Path) -> None:
    rest, held = (pl.read_parquet(path) for path in hold_out(rows, 0.1, 1, tmp_path))
    whole = pl.read_parquet(rows)
    assert pl.concat([rest, held]).sort("time").equals(whole) and 450 < len(held) < 750
    whole.sample(fraction=1, shuffle=True, seed=3).write_parquet(tmp_path / "other.parquet")
    _, again = hold_out(tmp_path / "other.parquet", 0.1, 1, tmp_path)
    assert pl.read_parquet(again).sort("time").equals(held)
    _, other = hold_out(rows, 0.1, 2, tmp_path)
    assert len(pl.read_parquet(other).join(held, on="time")) < 0.3 * len(held)


def test_a_share_that_leaves_no_row_is_refused(rows: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"model\.train\.validation: 1e-06 leaves no rows to train on, or none to validate on"):
        hold_out(rows, 1e-6, 1, tmp_path)


@pytest.mark.requirement("T-10")
def test_what_is_said_is_the_loss_and_the_auc_of_those_rows_with_the_same_negatives_each_time(rows: Path) -> None:
    seen: list[Codes] = []
    task = training_task(rows)

    def score(columns: Codes) -> np.ndarray:
        seen.append(columns)
        return np.where(columns["user"] % 4 == columns["item"] % 4, 0.9, 0.2).astype(np.float32)

    batches = Batches(rows, task.graph, task.items, None, 1000, 2, 1, shuffle=False, unknown_users=0, unknown_items=0)
    looked = Validation(batches, score)
    values = looked()
    first, labels = len(seen), np.concatenate([batch.labels for batch in batches.epoch(0)])
    scores = np.concatenate([score(columns) for columns in seen[:first]])
    right = np.where(labels > 0, scores, 1 - scores).astype(np.float64)
    assert values["loss"] == pytest.approx(-np.log(right).mean(), rel=1e-6)
    positives, others = scores[labels > 0], scores[labels == 0]
    pairs = (positives[:, None] > others[None, :]).mean() + (positives[:, None] == others[None, :]).mean() / 2
    assert values["auc"] == pytest.approx(pairs)
    assert describe_metrics(0.5, values) == f"loss=0.5000 validation_loss={values['loss']:.4f} auc={values['auc']:.4f}"
    assert looked() == values and looked.rows == batches.rows_per_epoch() == len(labels)


def test_rows_of_one_label_have_no_auc(rows: Path) -> None:
    pl.read_parquet(rows).filter(pl.col("label") == 1).write_parquet(rows)
    task = training_task(rows)
    looked = Validation(Batches(rows, task.graph, task.items, None, 1000, 0, 1), lambda codes: np.full(len(codes["user"]), 0.5, np.float32))
    assert looked() == {"loss": pytest.approx(math.log(2))}


def test_scores_that_are_no_probabilities_have_no_loss(rows: Path) -> None:
    task = training_task(rows)
    batches = Batches(rows, task.graph, task.items, None, 1000, 0, 1, unknown_users=0, unknown_items=0)
    looked = Validation(batches, lambda codes: 3 * (codes["user"] % 4 == codes["item"] % 4).astype(np.float32))
    assert looked() == {"auc": 1.0}


def test_the_loader_takes_a_quarter_of_the_memory_that_the_spec_gives(rows: Path) -> None:
    for memory, wanted in ((None, LOADER), (2**40, LOADER), (2**30, 2**28)):
        with material(replace(training_task(rows), memory=memory), TrainingRequest(negatives=4)) as training_material:
            assert (training_material.batches.memory, training_material.validation) == (
                wanted,
                None,
            ) and wanted / 2 <= training_material.batches.loader.memory < wanted
