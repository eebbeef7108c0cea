"""What a spec says of its model: presets and what stands beside them, families of one's own, baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from shared.contracts import presets
from shared.contracts.families import FAMILIES, EaseParams, ItemKnnParams, OwnParams
from shared.contracts.models import Model
from shared.contracts.presets import PRESETS, Preset

MINE = Preset("itemknn", "nothing at all", {"neighbours": 7, "shrink": 2.0}, {"seed": 9})


@pytest.fixture(autouse=True)
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(presets.PRESETS, "mine", MINE)  # type: ignore[arg-type]


def test_a_preset_says_what_a_spec_leaves_out() -> None:
    model = Model.model_validate({"preset": "mine"})
    assert (model.family, model.train.seed, model.preset) == ("itemknn", 9, "mine")
    assert model.params == ItemKnnParams(neighbours=7, shrink=2.0)


def test_what_is_said_beside_a_preset_has_the_last_word() -> None:
    model = Model.model_validate({"preset": "mine", "family": "itemknn", "params": {"shrink": 5}, "train": {"seed": 3}})
    assert model.params == ItemKnnParams(neighbours=7, shrink=5.0)
    assert model.train.seed == 3


def test_a_spec_with_a_preset_is_read_back_from_its_own_document_as_the_same() -> None:
    model = Model.model_validate({"preset": "mine", "params": {"shrink": 5}})
    document = model.model_dump(mode="json")
    assert document["preset"] == "mine" and document["params"]["neighbours"] == 7
    assert Model.model_validate(document) == model
    assert "preset" not in Model().model_dump(mode="json")


INVALID_MODELS = [
    ({"preset": "mime"}, "unknown preset 'mime': did you mean 'mine'?"),
    ({"preset": "mine", "family": "mf"}, "preset: 'mine' has the family 'itemknn'; leave 'family' out"),
    ({"preset": "mine", "params": {"width": 8}}, "unknown field 'width'"),
    ({"preset": 3}, "preset"),
    ({"family": "ease", "baseline": "ease"}, "baseline: 'ease' is the model's own family; choose another family"),
    ({"baseline": "mlp"}, "Input should be 'itemknn', 'ease', 'mf' or 'transitions'"),
    ({"family": "acme.models"}, "unknown model family 'acme.models'"),
    ({"family": "acme.models:"}, "unknown model family"),
    ({"family": "../acme:Two"}, "unknown model family"),
    ({"family": "ease", "params": {"regularisation": 0}}, "greater than 0"),
]


def test_a_fault_is_said(subtests: pytest.Subtests) -> None:
    for said, fault in INVALID_MODELS:
        with subtests.test(said=said):
            with pytest.raises(ValidationError) as caught:
                Model.model_validate(said)
            assert fault in str(caught.value)


def test_a_name_is_a_family_or_a_preset() -> None:
    assert Model.model_validate({"preset": "mine", "params": {"shrink": 1}}).params == ItemKnnParams(neighbours=7, shrink=1)
    ease = {"family": "ease", "params": {"regularisation": 5}, "train": {"seed": 4}}
    assert Model.model_validate(ease).params == EaseParams(regularisation=5)


def test_parameters_of_ones_own_family_are_kept_as_they_are() -> None:
    said = {"family": "acme.models:Two", "params": {"half_life": 3, "names": ["a", {"b": None}]}, "train": {"epochs": 9}}
    model = Model.model_validate(said)
    assert isinstance(model.params, OwnParams) and model.params.root == said["params"]
    assert Model.model_validate(model.model_dump(mode="json")) == model
    assert Model.model_validate({"family": "a:B"}).params == OwnParams({})


def test_every_preset_is_one_of_its_family() -> None:
    for name, preset in PRESETS.items():
        assert Model.model_validate({"preset": name}).family == preset.family
        assert preset.about and name not in FAMILIES


INVALID_PROCESSES = [
    ({"train": {"processes": 2}}, "train.processes: tensorflow trains in one process; set framework: torch"),
    ({"family": "ease", "train": {"processes": 2}}, "'processes' has no effect: ease is solved in closed form"),
    ({"family": "mine.family:Mine", "train": {"processes": 2}}, "'processes' has no effect: a custom family trains"),
    ({"framework": "torch", "train": {"processes": 65}}, "less than or equal to 64"),
    ({"framework": "torch", "train": {"processes": 4, "batch_size": 3}}, "3 rows are too few for 4 processes"),
    ({"framework": "torch", "train": {"shard": "row"}}, "'shard' has no effect in one process"),
    ({"framework": "torch", "train": {"shard": "row", "processes": 2}}, "does not support optimizer: adam; set sgd or adagrad"),
    (
        {"framework": "torch", "train": {"shard": "column", "processes": 2, "optimizer": "adagrad"}},
        "column does not support optimizer: adagrad; set sgd, or",
    ),
    ({"framework": "torch", "train": {"cold_rows": "host", "processes": 2}}, "'cold_rows' has no effect without 'shard'"),
]


def test_processes_and_shards_that_cannot_be_are_refused(subtests: pytest.Subtests) -> None:
    for model, reason in INVALID_PROCESSES:
        with subtests.test(model=model), pytest.raises(ValidationError, match=reason):
            Model.model_validate(model)


UNSUPPORTED_SETTINGS = [
    (
        {"family": "session", "train": {"compile": True}},
        "train: 'session' does not support 'compile': its steps are not compiled; leave it out",
    ),
    (
        {"family": "session", "train": {"mixed_precision": True}},
        "train: 'session' does not support 'mixed_precision': its layers compute in",
    ),
    (
        {"family": "session", "framework": "torch", "train": {"resident": True}},
        "'session' does not support 'resident': its batches are made on",
    ),
    (
        {"family": "session", "framework": "torch", "train": {"processes": 2}},
        "'session' does not support 'processes': it is trained by one",
    ),
    ({"family": "session", "framework": "jax"}, "framework: jax cannot train 'session': jax compiles each of its batch shapes"),
    ({"family": "session", "tune": {"train.compile": {"of": [True, False]}}}, "tune: 'session' does not support 'compile'"),
    (
        {"family": "two_tower", "framework": "torch", "train": {"resident": True}},
        "'two_tower' does not support 'resident': its batches are made",
    ),
]


@pytest.mark.requirement("N-05", "G-20")
def test_what_a_family_of_steps_cannot_do_is_refused_with_the_spec(subtests: pytest.Subtests) -> None:
    for said, reason in UNSUPPORTED_SETTINGS:
        with subtests.test(said=said), pytest.raises(ValidationError, match=reason):
            Model.model_validate(said)


@pytest.mark.parametrize("train", [{"processes": 2}, {"processes": 64, "shard": "column", "optimizer": "sgd"}])
def test_what_can_be_shared_out_is_taken(train: Mapping[str, Any]) -> None:
    assert Model.model_validate({"framework": "torch", "train": train}).train.processes == train["processes"]
