"""`mf` by gradient: makes two tables of vectors, as least squares does, from `pipelines.training.mf_contrastive`.

Unknown users and users without likes get the mean vector of the users with likes; an unknown item gets the level of the least liked item. A
warm run continues from the parent's vectors over all likes known so far; the vectors include the parent's blend.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from pipelines.features.columns import FIRST
from pipelines.models.family import Task
from pipelines.models.new_row_init import grown
from pipelines.training.als import Factors
from pipelines.training.likes import LikePairs
from pipelines.training.mf_contrastive import Contrast, ContrastiveTask, LearnedFactors, begin_parts
from shared.contracts.families import MfParams
from shared.contracts.retraining import NewRows
from shared.domain.errors import Invalid

USUAL = 0.04
"""Default regularisation."""
AGAINST = {"softmax": 100.0, "logistic": 8.0}


@dataclass(frozen=True)
class Contrasted:
    factors: Factors
    mean: float
    """Mean of the items' levels, which the scores leave out."""
    losses: list[float]
    """Loss of each epoch, per like."""


def contrasted(task: Task, params: MfParams, pairs: LikePairs, width: int, parent: Factors | None) -> Contrasted:
    """Trains by gradient; `width` does not count the column of the items' levels."""
    assert params.loss != "als"
    aim = ContrastiveTask(params.loss, params.against or AGAINST[params.loss], params.regularisation or USUAL, params.blend, params.damping)
    epochs = params.epochs if parent is None else max(1, params.epochs // 3)
    return contrast(task, pairs, aim, width, params.learning_rate, epochs, parent)


def contrast(
    task: Task, pairs: LikePairs, aim: ContrastiveTask, width: int, rate: float, epochs: int, parent: Factors | None = None
) -> Contrasted:
    seed = task.model.train.seed
    parts = begin_parts(pairs, width, aim.blend, seed)
    if parent is not None:
        _go_on(parts, parent, task.new_rows)
    training = Contrast(pairs, parts, aim, rate, epochs, seed)
    losses: list[float] = []
    started = time.monotonic()
    for number in range(1, epochs + 1):
        losses.append(training.epoch())
        if not math.isfinite(losses[-1]):
            raise Invalid(f"model.params.learning_rate: the loss is not finite in epoch {number}; {rate:g} is too high: lower it")
        left = (time.monotonic() - started) / number * (epochs - number)
        task.log.info("epoch: finished epoch=%d of=%d loss=%.4f seconds_left=%.0f", number, epochs, losses[-1], left)
    factors = parts.factors(pairs.by_user())
    _fill(factors, pairs)
    return Contrasted(factors, float(parts.level.mean()), losses)


def _go_on(parts: LearnedFactors, parent: Factors, rule: NewRows) -> None:
    """Starts from the parent's vectors; a new item's level comes from its likes, and the blend begins at zero."""
    level = parent.items[:, -1] * parent.users[0, -1]
    for own, theirs in ((parts.own, parent.users[:, :-1]), (parts.items, parent.items[:, :-1])):
        own[FIRST:] = grown(theirs, own, rule)[FIRST:]
    parts.level[FIRST : len(level)] = level[FIRST:]
    parts.liked[:] = 0


def _fill(factors: Factors, pairs: LikePairs) -> None:
    liking, liked = np.unique(pairs.users), np.unique(pairs.items)
    without = np.ones(pairs.user_count, dtype=bool)
    without[liking] = False
    factors.users[without] = factors.users[liking].mean(axis=0)
    factors.items[:FIRST] = 0
    factors.items[:FIRST, -1] = factors.items[liked, -1].min()
