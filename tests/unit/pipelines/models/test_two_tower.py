"""Two towers: vectors that retrieve, learned from likes against a batch's own items; the same scores wherever they are computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import polars as pl
import pytest
from pydantic import ValidationError

from pipelines.export.neighbours import build_index
from pipelines.inputs.batches import Batches
from pipelines.inputs.tables import FeatureTable
from pipelines.models.family import ScoresAll, Task, Trained
from pipelines.models.neural.network import Dense, Length
from pipelines.models.neural.weights import begin
from pipelines.models.two_tower import KeyTowers, TwoTower, TwoTowerModel, known_users, plan, sequences_of, vectors_of
from pipelines.training.trainer import TrainingRequest, material
from services.index.opening import OpenIndexes
from shared.contracts.families import TwoTowerParams
from shared.contracts.models import Model
from shared.domain.errors import Invalid
from tests.support.exported_units import Small
from tests.support.exported_units import small as small_world
from tests.support.feature_graphs import of_keys
from tests.support.taste_data import ITEMS, USERS, pairs, task

SMALL: dict[str, Any] = {"width": 8, "layers": [16], "embedding": 8}
EVERYBODY = np.arange(2, USERS + 2, dtype=np.int32)


def params(**more: Any) -> TwoTowerParams:
    return TwoTowerParams.model_validate(SMALL | more)


def small(folder: Path, epochs: int = 40, likes: Any = None, **more: Any) -> Task:
    given = task(folder, likes or pairs(), "two_tower", **SMALL | more)
    train = {"epochs": epochs, "batch_size": 128, "learning_rate": 0.01}
    return replace(given, model=Model.model_validate({"family": "two_tower", "params": SMALL | more, "train": train}))


def untrained(**more: Any) -> KeyTowers:
    architecture = plan(of_keys(USERS, ITEMS), params(**more), None)
    weights = begin(architecture, 3)
    return KeyTowers(architecture, weights, vectors_of(architecture, weights, "user", known_users(of_keys(USERS, ITEMS), None)))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return small_world(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def featured(world: Small) -> TwoTowerModel:
    """Weights of no training."""
    graph = world.graph
    architecture = plan(graph, params(), None)
    weights = begin(architecture, 3)
    return TwoTowerModel(architecture, weights, vectors_of(architecture, weights, "user", known_users(graph, world.meetings.users.table)))


@pytest.mark.requirement("G-01")
def test_a_score_is_the_cosine_of_two_vectors_by_the_temperature() -> None:
    one = untrained(temperature=0.2)
    weights, sides = one.weights, []
    for side, code in (("user", 5), ("item", 7)):
        rows = weights[f"table_{side}/embeddings"][code]
        rows = np.maximum(rows @ weights[f"{side}_hidden_0/kernel"] + weights[f"{side}_hidden_0/bias"], 0)
        sides.append(rows @ weights[f"{side}_direction/kernel"] + weights[f"{side}_direction/bias"])
    cosine = sides[0] @ sides[1] / np.linalg.norm(sides[0]) / np.linalg.norm(sides[1])
    assert one.score({"user": np.array([5], np.int32), "item": np.array([7], np.int32)})[0] == pytest.approx(cosine / 0.2, rel=1e-4)


@pytest.mark.parametrize("layers", [[], [8], [8, 4]])
@pytest.mark.parametrize("normalise", [True, False])
def test_the_whole_catalogue_is_scored_as_pair_by_pair(layers: list[int], normalise: bool) -> None:
    one = untrained(layers=layers, normalise=normalise)
    users = np.array([0, 1, 9, 30], np.int32)
    every = one.every(users)
    assert isinstance(one, ScoresAll) and every.shape == (4, ITEMS + 2)
    pair = {"user": np.repeat(users, ITEMS + 2), "item": np.tile(np.arange(ITEMS + 2, dtype=np.int32), 4)}
    np.testing.assert_allclose(every.ravel(), one.score(pair), atol=1e-5)


@pytest.mark.requirement("T-13")
@pytest.mark.parametrize("normalise", [True, False])
def test_the_lowered_model_gives_its_scores(normalise: bool) -> None:
    one = untrained(dropout=0.3, normalise=normalise)
    columns = {"user": np.array([0, 1, 2, 9], np.int32), "item": np.array([2, 3, 1, 11], np.int32)}
    session = onnxruntime.InferenceSession(one.lower().SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, columns)[0], one.score(columns), atol=1e-5)


@pytest.mark.requirement("G-01")
def test_vectors_in_the_index_rank_as_scores_do() -> None:
    one = untrained()
    found = one.embeddings({"item": np.arange(ITEMS, dtype=np.int32) + 2})
    assert found is not None and found.vectors.shape == (ITEMS, 8) and found.queries.shape == (USERS + 2, 8)
    keys = np.arange(ITEMS)
    built = build_index(found.vectors, found.queries[2:], ITEMS // 2, seed=1).content
    for content in (None, built):
        rows, scores = OpenIndexes().open(keys, found.vectors, content).nearest(found.queries[EVERYBODY], 5)
        for user, nearest, values in zip(EVERYBODY, rows, scores, strict=True):
            own = one.score({"user": np.full(ITEMS, user, np.int32), "item": np.arange(ITEMS, dtype=np.int32) + 2})
            np.testing.assert_allclose(values, own[nearest], atol=1e-4)
            np.testing.assert_allclose(np.sort(own)[::-1][:5], own[nearest], atol=1e-4)


@pytest.mark.requirement("G-01")
def test_a_tower_takes_all_features_of_its_side_with_the_users_sequence_and_none_else(world: Small, featured: TwoTowerModel) -> None:
    graph = world.graph
    for side, more in (("user", {"movieId_sequence"}), ("item", set())):
        names = {feature.name for feature in graph.side(side)} | more  # type: ignore[arg-type]
        nodes = featured.architecture.network.towards(f"{side}_vector").nodes
        taken = next(one.of for one in nodes if one.name == f"{side}_features")
        assert {name.removeprefix("~level_") for name in taken} == names
        assert not any(one.name.startswith("item" if side == "user" else "user") for one in nodes)
    assert {one.name for one in graph.side("context", "pair")} and not isinstance(featured, ScoresAll)
    of_sides = {feature.name for feature in graph.side("user", "item")}
    assert set(featured.architecture.features) == of_sides | {"movieId_sequence"}


def test_a_warm_run_from_a_parent_without_sequences_goes_on_without_them(world: Small) -> None:
    without = replace(world.graph, operators=tuple(each for each in world.graph.operators if each not in sequences_of(world.graph)))
    parent = plan(without, params(), None)
    assert plan(world.graph, params(), parent).features == parent.features


@pytest.mark.requirement("G-01")
def test_a_users_vector_by_code_is_made_of_what_is_known_of_the_user(world: Small, featured: TwoTowerModel) -> None:
    graph, count = world.graph, len(world.items)
    found = featured.embeddings(world.meetings.items.columns)
    (sequence,) = sequences_of(graph)
    for key in (1, 5, 24):
        users = np.full(count, key)
        features = world.meetings.features(users, np.arange(count)) | world.meetings.users.of(users)
        newest = sequence.apply(pl.LazyFrame({"userId": users}), "serve").collect()
        features["movieId_sequence"] = newest[sequence.outputs[0].name].to_numpy()
        code = int(features[graph.user][0])
        np.testing.assert_allclose(found.vectors @ found.queries[code], featured.score(features), atol=1e-4)
    assert len({tuple(one) for one in found.queries.tolist()}) > len(graph.key(graph.user).state.values) / 2


def test_the_newest_row_of_a_user_counts_and_others_are_strangers_with_a_key() -> None:
    graph = of_keys(4, 4)
    table = FeatureTable({"user": np.array([2, 2, 4], np.int32)}, {})
    np.testing.assert_array_equal(known_users(graph, table)["user"], np.arange(6))


def test_rows_that_are_no_likes_stay_out_of_training_and_stand_in_what_is_looked_at(tmp_path: Path) -> None:
    given = small(tmp_path)
    rows = pl.read_parquet(given.rows)
    label = pl.Series("label", (np.arange(len(rows)) % 3 > 0).astype(np.int8))
    rows.with_columns(label).write_parquet(given.rows)
    model = given.model.model_copy(update={"train": given.model.train.model_copy(update={"validation": 0.25})})
    with material(replace(given, model=model), TrainingRequest(0, in_batch=True)) as there:
        seen = list(there.batches.epoch(0))
        assert all((one.labels == 1).all() for one in seen)
        likes = int(pl.scan_parquet(there.batches.path).select((pl.col("label") > 0).sum()).collect().item())
        assert sum(map(len, seen)) == there.batches.rows_per_epoch() == likes
        assert [len(one) for one in seen[:-1]] == [128] * (len(seen) - 1)
        assert there.validation is not None
        looked = list(there.validation.epoch(0))
        assert 0 < sum(int(batch.labels.sum()) for batch in looked) < sum(map(len, looked)) == there.validation.rows_per_epoch()


def test_batches_of_likes_alone_go_on_from_any_place(tmp_path: Path) -> None:
    given = small(tmp_path)
    rows = pl.read_parquet(given.rows)
    rows.with_columns(pl.Series("label", (np.arange(len(rows)) % 50 == 0).astype(np.int8))).write_parquet(given.rows)
    batches = Batches(given.rows, given.graph, given.items, None, 3, 0, 1, positives=True)
    whole = list(batches.placed(1))
    for at, (_, place) in enumerate(whole[:-1]):
        rest = [batch for batch, _ in batches.placed(1, place)]
        for batch, (wanted, _) in zip(rest, whole[at + 1 :], strict=True):
            np.testing.assert_array_equal(batch.columns["item"], wanted.columns["item"])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"layers": [8]}, "width, layers, normalise and temperature are not the parent's"),
        ({"width": 9}, "width, layers, normalise and temperature are not the parent's"),
        ({"temperature": 0.2}, "width, layers, normalise and temperature are not the parent's"),
        ({"normalise": False}, "width, layers, normalise and temperature are not the parent's"),
        ({"embedding": 4}, r"model\.params\.embedding: 4 is not the parent's width"),
    ],
)
def test_a_warm_run_with_other_parameters_is_refused(changed: dict[str, Any], said: str) -> None:
    graph = of_keys(9, 9)
    parent = plan(graph, params(), None)
    assert plan(graph, params(dropout=0.2), parent).tables == parent.tables
    assert plan(graph, params(embedding=None), parent).tables == parent.tables
    with pytest.raises(Invalid, match=f"{said}.*start a full run"):
        plan(graph, params(**changed), parent)


def test_what_has_no_effect_or_no_room_is_refused(short_of_memory: Callable[[int], None], tmp_path: Path) -> None:
    short_of_memory(2_000_000_000)
    with pytest.raises(ValidationError, match="'temperature' has no effect without normalise"):
        TwoTowerParams(normalise=False, temperature=0.2)
    with pytest.raises(Invalid, match="'pooling' has no effect, because no feature of a user or an item has several codes per row"):
        plan(of_keys(9, 9), params(pooling="sum"), None)
    with pytest.raises(Invalid, match=r"weights take 2\.\d GB"):
        plan(of_keys(300_000, 300_000), params(embedding=1024), None)
    given = small(tmp_path)
    large = given.model.model_copy(update={"train": given.model.train.model_copy(update={"batch_size": 65_536})})
    with pytest.raises(
        Invalid, match="compares each row with each other row, so 65,536 rows take 17 GB several times over: set at most 16,384"
    ):
        TwoTower().train(replace(given, model=large))


def test_vectors_of_one_length_are_what_the_towers_end_in_unless_told_otherwise() -> None:
    ends = {normalise: untrained(normalise=normalise).architecture.network for normalise in (True, False)}
    lengths = [one.length for one in ends[True].nodes if isinstance(one, Length)]
    assert lengths == [10.0, 1.0] and not any(isinstance(one, Length) for one in ends[False].nodes)
    last = [one for one in ends[False].nodes if isinstance(one, Dense) and one.name.endswith("_vector")]
    assert [(one.units, one.activation) for one in last] == [(8, "linear")] * 2


def test_its_model_is_a_trained_one() -> None:
    one: Trained = untrained()
    assert {table.column for table in one.tables} == {"user", "item"}
