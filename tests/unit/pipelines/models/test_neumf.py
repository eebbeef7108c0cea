"""NeuMF: an inner product beside hidden layers, begun as a factorisation; the same scores wherever they are computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from pydantic import ValidationError

from pipelines.models.family import Task
from pipelines.models.neumf import NeumfModel, architecture_of, going_on, plan, pretrained
from pipelines.models.neural.weights import begin
from pipelines.models.tables import Table
from shared.contracts.families import NeumfParams
from shared.contracts.models import Model
from tests.support.taste_data import ITEMS, USERS, pairs, recall, task

SMALL = {"width": 8, "layers": [8, 4]}


def model(seed: int = 1, **params: object) -> NeumfModel:
    """Untrained."""
    said = NeumfParams.model_validate(SMALL | params)
    user, item = (Table(name, codes + 2, said.width + said.layers[0], None) for name, codes in (("user", USERS), ("item", ITEMS)))
    architecture = architecture_of(user, item, said)
    random = np.random.default_rng(seed)
    weights = begin(architecture, seed)
    return NeumfModel(architecture, {name: random.standard_normal(one.shape).astype(np.float32) for name, one in weights.items()})


def small(folder: Path, epochs: int = 3, **params: object) -> Task:
    given = task(folder, pairs(), "neumf", **SMALL | params)
    train = {"epochs": epochs, "batch_size": 256}
    return replace(given, model=Model.model_validate({"family": "neumf", "params": SMALL | params, "train": train}))


@pytest.mark.requirement("N-01")
def test_the_logit_is_a_weighted_product_and_what_hidden_layers_make_of_the_rest() -> None:
    one = model()
    weights = one.weights
    user, item = weights["table_user/embeddings"][5], weights["table_item/embeddings"][7]
    hidden = np.concatenate([user[8:], item[8:]])
    for name in ("hidden_0", "hidden_1"):
        hidden = np.maximum(hidden @ weights[f"{name}/kernel"] + weights[f"{name}/bias"], 0)
    logit = np.concatenate([user[:8] * item[:8], hidden]) @ weights["score/kernel"][:, 0] + weights["score/bias"][0]
    found = one.score({"user": np.array([5], np.int32), "item": np.array([7], np.int32)})
    assert found[0] == pytest.approx(1 / (1 + np.exp(-logit)), rel=1e-4)


@pytest.mark.parametrize("layers", [[8], [8, 4], [16, 8, 4]])
def test_the_whole_catalogue_is_scored_as_pair_by_pair(layers: list[int]) -> None:
    one = model(layers=layers)
    users = np.array([0, 1, 9, 30], np.int32)
    every = one.every(users)
    assert every.shape == (4, ITEMS + 2)
    pair = {"user": np.repeat(users, ITEMS + 2), "item": np.tile(np.arange(ITEMS + 2, dtype=np.int32), 4)}
    np.testing.assert_allclose(every.ravel(), one.score(pair), atol=1e-5)


@pytest.mark.requirement("T-13")
def test_the_lowered_model_gives_its_scores() -> None:
    one = model(dropout=0.3)
    columns = {"user": np.array([0, 1, 2, 9], np.int32), "item": np.array([2, 3, 1, 11], np.int32)}
    session = onnxruntime.InferenceSession(one.lower().SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, columns)[0], one.score(columns), atol=1e-6)


def test_it_begins_as_a_factorisation_that_ranks(tmp_path: Path) -> None:
    given = small(tmp_path)
    said = given.model.params
    assert isinstance(said, NeumfParams)
    architecture = plan(given.graph, said, None)
    first = NeumfModel(architecture, pretrained(given, said, architecture))
    liked = pairs()
    begun = NeumfModel(architecture, begin(architecture, 1))
    everybody = np.arange(2, USERS + 2, dtype=np.int32)
    good, bad = (recall(one.every(everybody)[:, 2:], liked) for one in (first, begun))
    assert good > 0.6 > bad


def test_it_trains_as_suits_what_it_begins_from_unless_the_spec_says_otherwise() -> None:
    def train(**said: object) -> tuple[int, float]:
        found = Model.model_validate({"family": "neumf"} | said).train
        return found.epochs, found.learning_rate

    assert train() == (1, 0.0002)
    assert train(params={"pretrain": False}) == (20, 0.001)
    assert train(train={"epochs": 7}) == (7, 0.0002)
    whole = Model.model_validate({"family": "neumf", "train": {"epochs": 7}})
    assert Model.model_validate_json(whole.model_dump_json()) == whole


def test_without_pretraining_there_is_nothing_to_say_of_it() -> None:
    with pytest.raises(ValidationError, match="'factorisation' has no effect without pretrain"):
        NeumfParams(pretrain=False, factorisation=0.1)


def test_a_warm_run_learns_as_from_nothing_unless_the_spec_says_otherwise() -> None:
    def train(**said: object) -> tuple[int, float]:
        found = going_on(Model.model_validate({"family": "neumf"} | said)).train
        return found.epochs, found.learning_rate

    assert train() == (20, 0.001)
    assert train(params={"pretrain": False}) == (20, 0.001)
    assert train(train={"epochs": 7}) == (7, 0.001)
    assert train(train={"learning_rate": 0.01, "batch_size": 64}) == (20, 0.01)
