"""NeuMF is trained: with and without a factorisation before it, and in a warm run on tastes that have moved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipelines.models.families import load_model
from pipelines.models.family import Task
from pipelines.models.neumf import Neumf, NeumfModel
from shared.contracts.models import Model
from shared.domain.errors import Invalid
from tests.support.taste_data import ITEMS, USERS, pairs, recall, task

SMALL = {"width": 8, "layers": [8, 4]}


def small(folder: Path, epochs: int = 3, **params: object) -> Task:
    given = task(folder, pairs(), "neumf", **SMALL | params)
    train = {"epochs": epochs, "batch_size": 256}
    return replace(given, model=Model.model_validate({"family": "neumf", "params": SMALL | params, "train": train}))


@pytest.mark.requirement("N-01")
@pytest.mark.parametrize("pretrain", [True, False])
def test_it_learns_tastes_and_is_read_back_the_same(tmp_path: Path, pretrain: bool) -> None:
    given = small(tmp_path, epochs=3 if pretrain else 40, pretrain=pretrain)
    fitted = Neumf().train(given)
    one = fitted.model
    assert isinstance(one, NeumfModel)
    everybody = np.arange(2, USERS + 2, dtype=np.int32)
    assert recall(one.every(everybody)[:, 2:], pairs()) > 0.6
    files = one.save(tmp_path)
    again = load_model(lambda name: files[name])
    assert isinstance(again, NeumfModel)
    np.testing.assert_array_equal(again.every(everybody), one.every(everybody))
    with pytest.raises(Invalid, match="width and layers are not the parent's"):
        Neumf().train(replace(small(tmp_path, layers=[8, 8]), parent=lambda name: files[name]))


@pytest.mark.requirement("G-18")
def test_a_warm_run_follows_tastes_that_have_moved(tmp_path: Path) -> None:
    """With nothing chosen: one careful pass, as after a factorisation, would leave all as it was."""
    files = Neumf().train(small(tmp_path)).model.save(tmp_path)
    parent = load_model(lambda name: files[name])
    assert isinstance(parent, NeumfModel)
    liked = pairs()
    moved = replace(liked, items=(liked.items + 1) % ITEMS)
    said = Model.model_validate({"family": "neumf", "params": SMALL, "train": {"batch_size": 16}})
    given = replace(task(tmp_path / "moved", moved, "neumf", **SMALL), model=said, parent=lambda name: files[name])
    found = Neumf().train(given).model
    assert isinstance(found, NeumfModel)
    everybody = np.arange(2, USERS + 2, dtype=np.int32)
    before, after = (recall(one.every(everybody)[:, 2:], moved) for one in (parent, found))
    assert after > before + 0.2
