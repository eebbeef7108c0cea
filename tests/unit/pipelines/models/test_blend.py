"""A weighted sum of families: fitted weights, equal scores wherever they are computed, warm runs, refused specs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pydantic import ValidationError

from pipelines.features.columns import FIRST, NULL
from pipelines.features.operators.base import RECENT, RECENT_LIST
from pipelines.models.blend import Blend, BlendModel
from pipelines.models.external_weights import ExternalWeights
from pipelines.models.families import load_model
from pipelines.models.recent_items import reads_recent
from pipelines.training.likes import LikePairs
from shared.contracts.families import BlendParams
from shared.contracts.models import Model
from shared.domain.errors import Invalid
from tests.support import taste_data
from tests.support.taste_data import ITEMS, USERS, pairs

EASE: dict[str, Any] = {"family": "ease", "params": {"regularisation": 50}}
MF: dict[str, Any] = {"family": "mf", "params": {"width": 8, "regularisation": 0.01}}


def trained(folder: Path, *of: object, liked: LikePairs | None = None, parent: object = None, **params: object) -> BlendModel:
    model = Blend().train(taste_data.task(folder, liked or pairs(), "blend", parent, of=list(of), **params)).model
    assert isinstance(model, BlendModel)
    return model


def everything() -> dict[str, Any]:
    """Every pair of codes."""
    users, items = np.meshgrid(np.arange(USERS + FIRST), np.arange(ITEMS + FIRST), indexing="ij")
    return {"user": users.ravel().astype(np.int32), "item": items.ravel().astype(np.int32)}


@pytest.mark.requirement("U-15", "T-13")
@pytest.mark.parametrize("of", [(EASE, MF), (EASE, "itemknn", "popularity")])
def test_scores_are_the_weighted_sum_in_training_and_as_served(tmp_path: Path, of: tuple[object, ...]) -> None:
    model, columns = trained(tmp_path, *of, weights=[0.3, 0.7, 0.2][: len(of)]), everything()
    expected = sum(
        weight / spread * part.score(columns) for weight, spread, part in zip(model.weights, model.spreads, model.parts, strict=True)
    )
    assert_allclose(model.score(columns), expected, atol=1e-5)
    assert_allclose(model.every(np.arange(USERS + FIRST, dtype=np.int32)).ravel(), expected, atol=1e-5)
    session = onnxruntime.InferenceSession(model.lower().SerializeToString(), providers=["CPUExecutionProvider"])
    assert_allclose(session.run(["score"], columns)[0], expected, atol=1e-4)
    files = model.save(tmp_path)
    assert_array_equal(load_model(files.__getitem__).score(columns), model.score(columns))


@pytest.mark.requirement("U-14")
def test_parts_read_recent_items_as_they_do_alone(tmp_path: Path) -> None:
    model = trained(tmp_path, EASE, MF, "popularity", weights=[1, 1, 1])
    assert reads_recent(model)
    count = 60
    columns = {"user": np.arange(count, dtype=np.int32), "item": (np.arange(count) % ITEMS + FIRST).astype(np.int32)}
    lists = np.array([[NULL] * 3, [FIRST + 1, FIRST + 7, NULL]], np.int32)
    number = np.arange(count) % 2
    expected = model.score_recent(columns, lists[number])
    assert np.abs(expected - model.score(columns)).max() > 0.01
    graph = model.lower_recent(ExternalWeights(sys.maxsize), 3).SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    assert_allclose(session.run(["score"], {**columns, RECENT: lists, RECENT_LIST: number})[0], expected, atol=1e-4)


@pytest.mark.requirement("U-15")
def test_the_weights_are_those_that_rank_held_out_likes_best(tmp_path: Path) -> None:
    """Tastes that popularity does not know: it gets no weight. A world without tastes: popularity gets it all."""
    tasteful = trained(tmp_path / "tastes", EASE, "popularity", liked=pairs(users=400))
    assert tasteful.weights[0] >= 0.8
    random = np.random.default_rng(3)
    users, shares = 400, (1.0 + np.arange(ITEMS)) ** -1.2
    codes = np.unique(np.concatenate([user * ITEMS + random.choice(ITEMS, 6, p=shares / shares.sum()) for user in range(users)]))
    codes = random.permutation(codes)
    plain = trained(
        tmp_path / "plain",
        {"family": "itemknn", "params": {"pull": 0.5}},
        "popularity",
        liked=LikePairs(codes // ITEMS, codes % ITEMS, users, ITEMS),
    )
    assert plain.weights[1] >= 0.5


@pytest.mark.requirement("U-15")
def test_a_warm_run_keeps_the_weights_and_refuses_other_parts(tmp_path: Path) -> None:
    first = trained(tmp_path / "first", EASE, MF, weights=[0.25, 0.75])
    files = first.save(tmp_path / "first")
    parent: Callable[[str], Path] = files.__getitem__
    assert trained(tmp_path / "warm", EASE, MF, parent=parent).weights == (0.25, 0.75)
    with pytest.raises(Invalid, match="the parts are not the parent's: a warm run cannot change them; start a full run"):
        trained(tmp_path / "other", EASE, "itemknn", parent=parent)


def test_with_too_few_likes_the_weights_are_equal(tmp_path: Path) -> None:
    few = LikePairs(np.array([0, 0, 1, 1, 2]), np.array([0, 1, 1, 2, 0]), 3, 3)
    assert trained(tmp_path, EASE, "popularity", liked=few).weights == (0.5, 0.5)


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({"of": ["ease"]}, "at least 2 items"),
        ({"of": ["ease", "mlp"]}, "unknown part of a blend 'mlp'"),
        ({"of": ["ease", {"family": "mf", "params": {"width": 0}}]}, "greater than or equal to 1"),
        ({"of": ["ease", "mf"], "weights": [1]}, "1 weights for 2 parts; write one weight for each part"),
        ({"of": ["ease", "mf"], "weights": [0, 0]}, "all weights are 0; set one above 0"),
    ],
)
def test_a_bad_blend_is_refused(params: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        Model.model_validate({"family": "blend", "params": params})


def test_a_part_is_a_name_or_a_family_with_parameters() -> None:
    model = Model.model_validate({"family": "blend", "params": {"of": ["ease", MF]}})
    document = json.loads(model.model_dump_json())
    assert document["params"]["of"][0] == "ease"
    assert isinstance(model.params, BlendParams)
    assert [part.family for part in model.params.parts] == ["ease", "mf"]
    assert Model.model_validate(document) == model
