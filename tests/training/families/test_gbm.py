"""Trees that are grown to rank find the tastes of users in likes that they never saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.models.gbm import Gbm
from tests.support.taste_data import ITEMS, USERS, pairs, recall, task

SMALL: dict[str, Any] = {"trees": 12, "depth": 4, "width": 8, "folds": 3}


@pytest.mark.requirement("G-18")
@pytest.mark.parametrize("more", [{"objective": "rank"}, {"library": "lightgbm", "objective": "rank"}])
def test_it_finds_the_tastes_of_users_in_likes_that_it_never_saw(tmp_path: Path, more: dict[str, Any]) -> None:
    liked = pairs()
    cut = len(liked) * 4 // 5
    shown, held = liked.take(slice(0, cut)), liked.take(slice(cut, None))
    given = task(tmp_path, shown, "gbm", **SMALL | {"trees": 40, "folds": 4} | more)
    model = Gbm().train(given).model
    users, items = (side.ravel().astype(np.int32) + 2 for side in np.meshgrid(np.arange(USERS), np.arange(ITEMS), indexing="ij"))
    scores = model.score({"user": users, "item": items}).reshape(USERS, ITEMS)
    assert recall(scores, held, hidden=shown) > 0.6  # ten of thirty-two at random would be a third
