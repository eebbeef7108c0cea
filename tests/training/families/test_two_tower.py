"""Two towers are trained: they learn tastes, are read back the same, and a warm run grows its tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.models.families import load_model
from pipelines.models.family import Task
from pipelines.models.two_tower import KeyTowers, TwoTower
from shared.contracts.families import TwoTowerParams
from shared.contracts.models import Model
from tests.support.taste_data import ITEMS, USERS, pairs, recall, task

SMALL: dict[str, Any] = {"width": 8, "layers": [16], "embedding": 8}
EVERYBODY = np.arange(2, USERS + 2, dtype=np.int32)


def params(**more: Any) -> TwoTowerParams:
    return TwoTowerParams.model_validate(SMALL | more)


def small(folder: Path, epochs: int = 40, likes: Any = None, **more: Any) -> Task:
    given = task(folder, likes or pairs(), "two_tower", **SMALL | more)
    train = {"epochs": epochs, "batch_size": 128, "learning_rate": 0.01}
    return replace(given, model=Model.model_validate({"family": "two_tower", "params": SMALL | more, "train": train}))


@pytest.mark.requirement("G-01")
@pytest.mark.parametrize("normalise", [True, False])
def test_it_learns_tastes_and_is_read_back_the_same(tmp_path: Path, normalise: bool) -> None:
    given = small(tmp_path, normalise=normalise)
    fitted = TwoTower().train(given)
    one, liked = fitted.model, pairs()
    assert isinstance(one, KeyTowers)
    popular = np.broadcast_to(np.bincount(liked.items, minlength=ITEMS), (USERS, ITEMS))
    assert recall(one.every(EVERYBODY)[:, 2:], liked) > 2 * recall(popular, liked)
    files = one.save(tmp_path)
    again = load_model(lambda name: files[name])
    assert isinstance(again, KeyTowers)
    np.testing.assert_array_equal(again.every(EVERYBODY), one.every(EVERYBODY))


@pytest.mark.requirement("G-09")
def test_a_warm_run_grows_its_tables_and_goes_on_from_the_parents_vectors(tmp_path: Path) -> None:
    first = TwoTower().train(small(tmp_path / "first")).model
    files = first.save(tmp_path)
    likes = pairs(seed=2, users=USERS + 8, items=ITEMS + 4)
    warm = replace(small(tmp_path / "warm", epochs=2, likes=likes), parent=lambda name: files[name])
    one = TwoTower().train(warm).model
    assert isinstance(one, KeyTowers) and one.queries.shape[0] == USERS + 10
    everybody = np.arange(2, USERS + 10, dtype=np.int32)
    good = recall(one.every(everybody)[:, 2:], likes)
    alone = TwoTower().train(replace(warm, parent=None)).model
    assert isinstance(alone, KeyTowers)
    assert good > recall(alone.every(everybody)[:, 2:], likes) + 0.1
