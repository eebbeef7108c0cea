"""The model settings of a refit: a refit holds no rows out, so it takes what the training chose.

The refit uses the best epoch or number of trees on the rows that training held out, lowers the learning rate after the same epochs, draws
as many negatives, and takes the regularisation and the calibration that training found. The batch size stays the same, so more rows mean
more steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pipelines.models.family import MODEL, Fetch
from pipelines.training.calibration import LogitLine, read_line
from pipelines.training.report import DOCUMENT
from shared.contracts.families.base import FamilyParams
from shared.contracts.models import Model

_CHOSEN = ("regularisation", "negatives")
"""Parameters that training chooses if the spec leaves them out; the same names are in model.json or training.json."""


def chosen_calibration(fetch: Fetch) -> LogitLine:
    return read_line(json.loads(fetch(MODEL).read_text()))


def with_chosen_settings(model: Model, fetch: Fetch, has: Callable[[str], bool]) -> Model:
    """Returns the model with the settings that training chose; `fetch` gives training's files. The result has no baseline, because evaluate
    has judged it."""
    train: dict[str, Any] = {"validation": 0.0, "validate_from": 1, "early_stop": None, "target": None}
    report = json.loads(fetch(DOCUMENT).read_text()) if has(DOCUMENT) else {}
    published = report.get("published", {})
    if "epoch" in published:
        train |= {"epochs": published["epoch"], "batch_size": report["batch_size"]}
    if model.train.schedule == "plateau":
        train["schedule"] = tuple(report.get("lowered_after", ()))
    both = report | json.loads(fetch(MODEL).read_text())
    params: Any = model.params
    if isinstance(params, FamilyParams):
        chosen = {name: both[name] for name in _CHOSEN if name in both and getattr(params, name, 0) is None}
        trees = {"trees": published["grown"]} if "grown" in published else {}
        params = params.model_copy(update=chosen | trees)
    return model.model_copy(update={"params": params, "train": model.train.model_copy(update=train), "baseline": None})
