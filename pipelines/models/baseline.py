"""A baseline that the spec chooses (`model.baseline`): a family with its own defaults, trained beside each candidate on the same rows and
judged on the same cases. Popularity is always there as well."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from pipelines.models.families import FAMILIES
from pipelines.models.family import MODEL, Fetch, Fitted, Task, Trained
from pipelines.models.retriever import fetch_beside
from shared.contracts.models import Model, Training

BASELINE = "baseline."
"""Before the names of its files."""
IS_THERE = BASELINE + MODEL


def train_baseline(task: Task, parent: Fetch | None, there: Callable[[str], bool]) -> Fitted:
    """A warm run's goes on from the parent's, where that has one of the same family; else it learns anew, from every row known so far."""
    name = str(task.model.baseline)
    before = fetch_beside(parent, BASELINE) if parent is not None and there(IS_THERE) else None
    if before is not None and json.loads(before(MODEL).read_text())["family"] != name:
        before = None
    model = Model(family=name, train=Training(seed=task.model.train.seed))
    return FAMILIES[name].train(replace(task, model=model, parent=before, keeping=None))


def load_baseline(fetch: Fetch) -> Trained:
    inner = fetch_beside(fetch, BASELINE)
    return FAMILIES[json.loads(inner(MODEL).read_text())["family"]].load(inner)
