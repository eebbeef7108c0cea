"""DLRM is trained: it learns tastes, is read back the same, and a warm run goes on from its parent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipelines.models.dlrm import plan
from pipelines.models.families import FAMILIES, load_model
from pipelines.models.neural.model import NeuralModel
from shared.contracts.families import DlrmParams
from shared.contracts.models import Model
from tests.support.exported_units import Small, small
from tests.support.taste_data import pairs, recall, task


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return small(tmp_path_factory.mktemp("small"))


@pytest.mark.requirement("G-19")
def test_it_learns_tastes_from_keys_alone_is_read_back_the_same_and_a_warm_run_goes_on_from_it(tmp_path: Path) -> None:
    given = task(tmp_path, pairs(), "dlrm")
    how = {"epochs": 60, "batch_size": 256, "learning_rate": 0.01}
    given = replace(given, model=Model.model_validate({"family": "dlrm", "params": {"width": 8, "layers": [16]}, "train": how}))
    model = FAMILIES["dlrm"].train(given).model
    users, items = (side.ravel() for side in np.meshgrid(np.arange(2, 62, dtype=np.int32), np.arange(2, 42, dtype=np.int32), indexing="ij"))
    scores = model.score({"user": users, "item": items})
    assert recall(scores.reshape(60, 40), pairs()) > 0.6
    files = model.save(tmp_path)
    again = load_model(lambda name: files[name])
    np.testing.assert_array_equal(again.score({"user": users, "item": items}), scores)
    gentle = Model.model_validate({"family": "dlrm", "params": given.model.params, "train": how | {"epochs": 1, "learning_rate": 1e-5}})
    warm = FAMILIES["dlrm"].train(replace(given, model=gentle, parent=lambda name: files[name])).model
    np.testing.assert_allclose(warm.score({"user": users, "item": items}), scores, atol=0.01)


@pytest.mark.requirement("G-19")
def test_a_warm_run_has_its_parents_structure(world: Small, tmp_path: Path) -> None:
    first = world.train("dlrm")
    assert isinstance(first, NeuralModel)
    params = DlrmParams()
    assert plan(world.graph, params, first.architecture) == first.architecture
    assert {one.width for one in first.tables} == {16} and first.architecture.size == sum(one.nbytes for one in first.weights.values())
