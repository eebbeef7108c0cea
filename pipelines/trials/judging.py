"""Evaluates a trained model on test cases."""

from __future__ import annotations

import logging
import sys

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.evaluation.judge import ModelEvaluation, judge
from pipelines.evaluation.scorers import Every, Ints, Scores, take_columns
from pipelines.loaders.progress import Pace
from pipelines.models.family import ScoresAll, Task, Trained
from pipelines.trials.task import ITEM, USER
from pipelines.trials.trial import Trial
from shared.domain.errors import BadData

Codes = NDArray[np.int32]


def codes_of(task: Task, trial: Trial) -> tuple[Codes, Codes]:
    """Returns the codes of the training pairs' users and items, in index order."""
    key = task.graph.key(USER).state
    return key.coded(pl.Series(np.arange(len(trial.training_pairs.users)))), task.items.columns[ITEM]


def judged(model: Trained, codes: tuple[Codes, Codes], trial: Trial, title: str, log: logging.Logger) -> ModelEvaluation:
    """Evaluates a model by indexes, which are the keys and the catalogue rows; `codes` are of users and of items."""
    cases, pace = trial.held_out.cases, Pace()

    def scorer(users: Ints, rows: Ints) -> Scores:
        return model.score({USER: codes[0][users], ITEM: codes[1][rows]})

    def tell(ranked: int) -> None:
        pace.rows, pace.steps = pace.rows + ranked, pace.steps + ranked
        if pace.due():
            left = pace.left(len(cases.users))
            log.info("evaluation: ranked users=%d of=%d seconds_left=%.0f title=%s", pace.rows, len(cases.users), left, title)

    try:
        return judge(scorer, cases, trial.negatives, likes=trial.training_pairs.of_items, every=_every(model, *codes), tell=tell)
    except BadData as error:
        raise BadData(f"{title}: {error}") from None


def forget() -> None:
    """Clears Keras's state of the previous model."""
    if keras := sys.modules.get("keras"):
        keras.backend.clear_session()


def _every(model: Trained, users: Codes, items: Codes) -> Every | None:
    if not isinstance(model, ScoresAll):
        return None
    every, columns = model.every, items.astype(np.int64)
    return lambda of: take_columns(every(users[of]), columns)
