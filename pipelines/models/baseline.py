"""The baseline that the spec chooses (`model.baseline`): a family with its default parameters.

The baseline trains on the same rows as the candidate and is judged on the same cases. The popularity baseline is always there as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from pipelines.models.beside import fetch_beside
from pipelines.models.families import FAMILIES
from pipelines.models.family import MODEL, Fetch, Fitted, Task, Trained
from shared.contracts.models import Model, Training

BASELINE = "baseline."
"""The prefix of the baseline's file names."""
IS_THERE = BASELINE + MODEL


def train_baseline(task: Task, parent: Fetch | None, there: Callable[[str], bool]) -> Fitted:
    """Trains the baseline: from the parent's baseline in a warm run if both have the same family, else from nothing on all known rows."""
    name = str(task.model.baseline)
    before = fetch_beside(parent, BASELINE) if parent is not None and there(IS_THERE) else None
    if before is not None and json.loads(before(MODEL).read_text())["family"] != name:
        before = None
    model = Model(family=name, train=Training(seed=task.model.train.seed))
    return FAMILIES[name].train(replace(task, model=model, parent=before, keeping=None))


def load_baseline(fetch: Fetch) -> Trained:
    inner = fetch_beside(fetch, BASELINE)
    return FAMILIES[json.loads(inner(MODEL).read_text())["family"]].load(inner)
