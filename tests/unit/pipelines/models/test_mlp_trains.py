"""A tiny `mlp` is trained on TensorFlow: it ranks what users like, and its arrays score as the framework does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from pipelines.models.families import FAMILIES, load_model
from pipelines.models.neural import train as training
from pipelines.models.neural.plain import sigmoid
from pipelines.models.neural.step import NeuralStep
from shared.contracts.models import Model
from tests.support.taste_data import ITEMS, USERS, pairs, recall, task

SETTINGS: dict[str, Any] = {
    "family": "mlp",
    "params": {"width": 8, "layers": [16]},
    "train": {"epochs": 20, "batch_size": 256, "learning_rate": 0.02},
}


@pytest.mark.tensorflow
@pytest.mark.requirement("T-08")
def test_a_tiny_mlp_learns_tastes_and_its_arrays_score_as_tensorflow_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[NeuralStep] = []

    class Remembered(NeuralStep):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            steps.append(self)

    monkeypatch.setattr(training, "NeuralStep", Remembered)
    given = replace(task(tmp_path, pairs(), "popularity"), model=Model.model_validate(SETTINGS))
    fitted = FAMILIES["mlp"].train(given)
    losses = fitted.facts["losses"]
    assert len(losses) == 20 and losses[-1] < 0.8 * losses[0]

    users, items = (side.ravel().astype(np.int32) + 2 for side in np.meshgrid(np.arange(USERS), np.arange(ITEMS), indexing="ij"))
    columns = {"user": users, "item": items}
    scores = fitted.model.score(columns)
    popular = np.broadcast_to(np.bincount(pairs().items, minlength=ITEMS), (USERS, ITEMS))
    assert recall(scores.reshape(USERS, ITEMS), pairs()) > 2 * recall(popular, pairs()) > 0.3, "a quarter of the items is each user's taste"

    (step,) = steps
    np.testing.assert_allclose(scores, sigmoid(step.own_logits(columns)), atol=1e-5)
    session = onnxruntime.InferenceSession(fitted.model.lower().SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, columns)[0], scores, atol=1e-5)
    files = fitted.model.save(tmp_path)
    np.testing.assert_array_equal(load_model(lambda name: files[name]).score(columns), scores)
