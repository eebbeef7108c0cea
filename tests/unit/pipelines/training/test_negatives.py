"""Whether negatives are sampled if the spec does not say: by the share of negatives among the rows."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.models.chosen_settings import with_chosen_settings
from pipelines.models.family import MODEL, Task
from pipelines.training.negatives import LabelCounts, sampled_negatives
from pipelines.training.report import DOCUMENT
from shared.contracts.families import MlpParams
from shared.contracts.models import Model

USUAL = 4


@pytest.mark.parametrize(
    ("rows", "positives", "negatives"),
    [(100, 100, USUAL), (100, 99, USUAL), (100, 55, USUAL), (100, 50, 0), (100, 33, 0), (0, 0, USUAL)],
    ids=["logged positives", "one dislike", "ratings from 4 on", "half", "clicks", "no rows"],
)
def test_negatives_are_sampled_unless_half_of_the_rows_are_negatives_and_the_model_need_not_rank(
    rows: int, positives: int, negatives: int
) -> None:
    if rows:
        assert LabelCounts(rows, positives).negatives(None, USUAL, ranked=False) == negatives
        assert LabelCounts(rows, positives).negatives(None, USUAL, ranked=True) == USUAL


def test_the_number_of_the_spec_counts_whatever_the_rows_hold() -> None:
    assert LabelCounts(100, 10).negatives(7, USUAL, ranked=False) == 7
    assert LabelCounts(100, 100).negatives(0, USUAL, ranked=True) == 0


def test_a_warm_run_does_as_its_parent_did(tmp_path: Path) -> None:
    """Its rows are few days of feedback, and its history has each pair once: neither has the parent's share of negatives."""
    pl.DataFrame({"label": [1, 0, 0]}).write_parquet(tmp_path / "rows.parquet")
    nothing: Any = None
    task = Task(Model(), nothing, tmp_path / "rows.parquet", nothing, None, nothing, logging.getLogger("test"), ranked=False)
    assert sampled_negatives(task, None, USUAL) == 0
    warm = replace(task, parent=lambda name: tmp_path / name)
    for negatives in (0, 7):
        assert sampled_negatives(replace(warm, negatives=negatives), None, USUAL) == negatives
        assert sampled_negatives(replace(warm, negatives=negatives), 2, USUAL) == 2
    assert sampled_negatives(warm, None, USUAL) == USUAL, "a parent of an earlier release"


def test_a_refit_draws_as_many_negatives_and_lowers_the_rate_after_the_same_epochs(tmp_path: Path) -> None:
    (tmp_path / MODEL).write_text("{}")
    (tmp_path / DOCUMENT).write_text('{"published": {"epoch": 6}, "batch_size": 64, "negatives": 0, "lowered_after": [4, 5]}')
    train = {"schedule": "plateau", "early_stop": {}}
    refit = with_chosen_settings(Model.model_validate({"train": train}), lambda name: tmp_path / name, lambda name: True)
    assert isinstance(refit.params, MlpParams) and refit.params.negatives == 0
    assert refit.train.schedule == (4, 5) and refit.train.epochs == 6
