"""Features of items in the session transformer: parts, sums, the served graph, and growth in a warm run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from pipelines.features.columns import FIRST, NULL, UNKNOWN
from pipelines.features.operators.base import RECENT, RECENT_LIST
from pipelines.inputs.batch_stages import UNKNOWN_ITEMS
from pipelines.models.attention.item_features import BASE, ItemFeature, ItemFeatures, features_of_codes, grown_table, item_features_of
from pipelines.models.attention.shape import FEATURES, ITEMS, Shape, begin
from pipelines.models.external_weights import ExternalWeights
from pipelines.models.families import load_model
from pipelines.models.family import ScoresAll, Trained
from pipelines.models.recent_items import reads_recent
from pipelines.models.sequence_session import SequenceSession, queries_of
from pipelines.models.session import SessionModel, as_likes, newest_of
from tests.support.exported_units import Small, small
from tests.support.sequence_data import by_user, pairs

YEAR = ItemFeature("year", 1, 4, True, None)
GENRES = ItemFeature("genres", 5, 5, True, 3)
PRICE = ItemFeature("price", 10, 1, False, None, (2.0,), (4.0,))
POSTER = ItemFeature("poster", 11, 2, False, 2, (0.0, 1.0), (1.0, 2.0))
DESCRIBED = ItemFeatures((YEAR, GENRES, PRICE, POSTER))
COLUMNS: dict[str, Any] = {
    "year": np.array([2, NULL, UNKNOWN], np.int32),
    "genres": np.array([[2, 4, NULL], [NULL, NULL, NULL], [3, NULL, NULL]], np.int32),
    "price": np.array([4.0, -2.0, 1e9], np.float32),
    "poster": np.array([[1.0, 1.0], [0.0, 0.0], [-1.0, 5.0]], np.float32),
}
TABLE = np.random.default_rng(3).normal(size=(DESCRIBED.rows, 9)).astype(np.float32)


@pytest.mark.requirement("G-20")
def test_an_item_has_the_sum_of_its_codes_the_mean_of_each_list_and_standardised_numbers() -> None:
    half = 1 / np.sqrt(2)
    expected = [
        TABLE[BASE] + TABLE[1 + 2] + (TABLE[5 + 2] + TABLE[5 + 4]) / 2 + 0.5 * TABLE[10] + half * TABLE[11],
        TABLE[BASE] - TABLE[10] - half * half * half * TABLE[12],
        TABLE[BASE] + TABLE[1 + UNKNOWN] + TABLE[5 + 3] + 5 * TABLE[10] + half * (2 * TABLE[12] - TABLE[11]),
    ]
    np.testing.assert_allclose(DESCRIBED.vectors(TABLE, COLUMNS), expected, atol=1e-5)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return small(tmp_path_factory.mktemp("small"), "sequence_and_items")


def untrained(world: Small, sequence: bool) -> SessionModel | SequenceSession:
    """A model with random weights."""
    graph, random = world.graph, np.random.default_rng(5)
    features = item_features_of(graph, world.catalogue, None)
    assert features is not None
    users, items = (graph.key(column).state.cardinality for column in (graph.user, graph.item))
    shape = Shape(items, 8, 1, 2, 4, "next", features=features.rows)
    weights = {path: (array + random.normal(0, 0.3, array.shape)).astype(np.float32) for path, array in begin(shape, 3).items()}
    newest = newest_of(by_user(pairs(users - FIRST, items - FIRST)), shape.length)
    queries = queries_of(shape, weights, newest)
    if sequence:
        return SequenceSession("session", graph.user, graph.item, "movieId_sequence", shape, weights, queries, features)
    return SessionModel(graph.user, graph.item, shape, weights, as_likes(newest), queries, 400.0, features)


@pytest.mark.requirement("G-20", "T-12")
@pytest.mark.parametrize("sequence", [False, True])
def test_the_served_graph_scores_items_without_a_code_by_their_features(world: Small, tmp_path: Path, sequence: bool) -> None:
    model = untrained(world, sequence)
    columns = {name: np.tile(column, (3, *[1] * (column.ndim - 1))) for name, column in world.codes.items()}
    count = len(world.catalogue)
    columns[world.graph.item][:count] = UNKNOWN
    columns[world.graph.item][count] = NULL
    scores = model.score(columns)
    assert len(np.unique(scores[:count].round(4))) > count // 2, "unknown items differ by their features"
    session = onnxruntime.InferenceSession(model.lower().SerializeToString())
    inputs = {column.name for column in session.get_inputs()}
    assert {"year", "genres", "price", "movieId_vector"} < inputs
    (served,) = session.run(None, {name: columns[name] for name in inputs})
    np.testing.assert_allclose(served, scores, atol=2e-5)
    vectors = model.embeddings(columns)
    if not sequence:
        assert not isinstance(model, ScoresAll), "scores of unknown items do not follow from their code"
        inner = (vectors.queries[columns[world.graph.user]] * vectors.vectors).sum(axis=1)
        np.testing.assert_allclose(inner, scores, atol=2e-5)
    files = model.save(tmp_path)
    again: Trained = load_model(files.__getitem__)
    np.testing.assert_array_equal(again.score(columns), scores)


@pytest.mark.requirement("U-14")
def test_recent_items_also_rank_items_without_a_code(world: Small) -> None:
    model = untrained(world, sequence=False)
    assert isinstance(model, SessionModel) and reads_recent(model)
    columns = dict(world.codes)
    columns[world.graph.item] = np.where(np.arange(len(world.catalogue)) % 2, UNKNOWN, columns[world.graph.item]).astype(np.int32)
    lists = np.array([[NULL, NULL], [FIRST + 3, FIRST + 1]], np.int32)
    number = (np.arange(len(world.catalogue)) >= 5).astype(np.int64)
    session = onnxruntime.InferenceSession(model.lower_recent(ExternalWeights(1 << 30), 2).SerializeToString())
    inputs = columns | {RECENT: lists, RECENT_LIST: number}
    (served,) = session.run(None, {column.name: inputs[column.name] for column in session.get_inputs()})
    np.testing.assert_allclose(served, model.score_recent(columns, lists[number]), atol=2e-5)


@pytest.mark.requirement("G-09")
def test_a_warm_run_keeps_the_vectors_of_features_and_begins_new_codes_at_zero() -> None:
    more = ItemFeatures((replace(YEAR, count=6), replace(GENRES, first=7), replace(PRICE, first=12), replace(POSTER, first=13)))
    grown = grown_table(more, DESCRIBED, TABLE)
    np.testing.assert_allclose(more.vectors(grown, COLUMNS), DESCRIBED.vectors(TABLE, COLUMNS), atol=1e-6)
    assert (grown[5:7] == 0).all() and len(grown) == more.rows


def test_items_that_share_a_code_have_the_features_of_the_first(world: Small) -> None:
    catalogue = replace(world.catalogue, columns=world.catalogue.columns | {"movieId": np.full(len(world.catalogue), FIRST + 1, np.int32)})
    of_codes = features_of_codes(world.graph, catalogue, None, None)
    assert of_codes is not None and of_codes.unknown == UNKNOWN_ITEMS
    own = of_codes.features.parts(catalogue.at(np.array([0])).columns)
    np.testing.assert_array_equal(of_codes.parts.factors[FIRST + 1], own.factors[0])
    assert (np.delete(of_codes.parts.factors, FIRST + 1, axis=0) == 0).all(), "codes without an item"
    assert FEATURES not in begin(Shape(5, 8, 1, 2, 4, "next"), 1) and ITEMS in begin(Shape(5, 8, 1, 2, 4, "next"), 1)
