"""A transformer that reads the sequence of each row and of each request: strangers are answered by the items that a request brings."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import polars as pl
import pytest

from pipelines.evaluation.scorers import unit_answers
from pipelines.export.parity import answers, choose_pairs
from pipelines.export.unit import write_unit
from pipelines.features.columns import FIRST, NULL
from pipelines.features.graph import load_graph
from pipelines.features.operators.sequence import Sequence
from pipelines.features.raw import signature as signature_of
from pipelines.inputs.tables import read_table
from pipelines.models.attention import plain
from pipelines.models.attention.item_features import item_vectors
from pipelines.models.attention.lowered import AT_ONCE
from pipelines.models.attention.shape import Shape, begin
from pipelines.models.attention.streams import read_streams
from pipelines.models.families import load_model
from pipelines.models.family import MODEL, ScoresAll
from pipelines.models.neural.weights import WEIGHTS
from pipelines.models.sequence_session import QUERIES, SequenceSession, newest_by_code, queries_of, read_sequence, scores_of
from shared.contracts.families import SessionParams
from shared.contracts.serving import Serve
from shared.domain.errors import EyasError, Invalid
from shared.domain.pages import page_key
from shared.serving.signature import BLANK
from shared.serving.tensors import tensors
from tests.support.exported_units import Small, small
from tests.support.page_views import KEYS, NAMES, log, paged, sequence
from tests.unit.pipelines.recommender import write

LENGTH, ITEMS = 5, 40
Of = Callable[..., Any]


def reader(objective: Any = "next", length: int = LENGTH) -> SequenceSession:
    shape = Shape(ITEMS + FIRST, 8, 2, 2, length, objective)
    weights = begin(shape, 3)
    random = np.random.default_rng(5)
    weights = {path: (one + random.normal(0, 0.3, one.shape)).astype(np.float32) for path, one in weights.items()}
    return SequenceSession("session", "user", "item", "item_sequence", shape, weights, np.zeros((4, 8), np.float32))


def rows(lists: list[list[int]], length: int = LENGTH) -> Any:
    return np.array([[*one, *[NULL] * (length - len(one))] for one in lists], np.int32)


def met(sequences: Any, seed: int = 1) -> dict[str, Any]:
    """Each with some items."""
    whole = np.repeat(sequences, 6, axis=0)
    return {"item_sequence": whole, "item": np.random.default_rng(seed).integers(0, ITEMS + FIRST, len(whole)).astype(np.int32)}


def many(count: int) -> Any:
    random = np.random.default_rng(7)
    return rows([random.integers(1, ITEMS + FIRST, random.integers(0, LENGTH + 1)).tolist() for _ in range(count)])


@pytest.mark.requirement("G-20")
@pytest.mark.parametrize("objective", ["next", "masked"])
def test_a_score_is_what_the_transformer_makes_of_the_rows_sequence_met_by_the_items_vector(objective: str) -> None:
    model, columns = reader(objective), met(many(20))
    states = plain.states(model.shape, model.weights, columns["item_sequence"])
    vectors = item_vectors(model.weights)[columns["item"]]
    np.testing.assert_allclose(model.score(columns), (states * vectors[:, :-1]).sum(axis=1) + vectors[:, -1], atol=1e-5)
    assert not isinstance(model, ScoresAll), "what is known by code says nothing of a row's own sequence"


@pytest.mark.requirement("G-20", "T-12")
@pytest.mark.parametrize("objective", ["next", "masked"])
@pytest.mark.parametrize("count", [1, AT_ONCE, 2 * AT_ONCE + 3])
def test_it_is_served_as_it_scores(objective: str, count: int) -> None:
    model, columns = reader(objective), met(many(count))
    (served,) = onnxruntime.InferenceSession(model.lower().SerializeToString()).run(None, columns)
    np.testing.assert_allclose(served, model.score(columns), atol=1e-5)


@pytest.mark.requirement("G-20")
def test_the_order_of_a_sequence_counts_and_so_does_each_item() -> None:
    model = reader()
    columns = {"item_sequence": rows([[5, 9, 3], [3, 9, 5], [5, 9], []]), "item": np.full(4, 12, np.int32)}
    found = model.score(columns)
    assert np.abs(np.diff(np.sort(found))).min() > 1e-3


@pytest.mark.requirement("G-20", "N-06")
def test_a_call_reads_each_distinct_sequence_once(tmp_path: Path) -> None:
    """As ONNX Runtime counts it: one turn for one sequence, however many rows have it."""
    model = reader()
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    unit = onnxruntime.InferenceSession(model.lower().SerializeToString(), options)
    unit.run(None, {"item_sequence": np.repeat(rows([[4, 8]]), 500, axis=0), "item": np.arange(500, dtype=np.int32) % ITEMS})
    events = json.loads(Path(unit.end_profiling()).read_text())
    shapes = [one["args"]["output_type_shape"] for one in events if one.get("args", {}).get("op_name") == "Softmax"]
    assert [next(iter(one[0].values())) for one in shapes] == [[1, 2, 3, 3]] * model.shape.blocks, (
        "sequences, heads, places as far as they go"
    )


def test_what_a_model_of_training_scores_reads_each_sequence_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked, states = reader(), [], plain.states
    monkeypatch.setattr(plain, "states", lambda shape, weights, of: asked.append(len(of)) or states(shape, weights, of))
    model.score(met(np.repeat(rows([[4, 8], [3]]), 50, axis=0)))
    assert sum(asked) <= 3


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return small(tmp_path_factory.mktemp("small"), "sequence")


@pytest.fixture(scope="module")
def model(world: Small) -> SequenceSession:
    """Weights of no training, and what they make of each user's newest items."""
    graph = world.graph
    shape = Shape(graph.key("movieId").state.cardinality, 16, 1, 2, 4, "next")
    weights = {path: (one + np.random.default_rng(5).normal(0, 0.3, one.shape)).astype(np.float32) for path, one in begin(shape, 3).items()}
    sequence = next(one for one in graph.operators if isinstance(one, Sequence))
    queries = queries_of(shape, weights, newest_by_code(graph, sequence))
    return SequenceSession("session", graph.user, graph.item, "movieId_sequence", shape, weights, queries)


@pytest.fixture(scope="module")
def ask(world: Small, model: SequenceSession) -> Of:
    """The served unit's scores of the whole catalogue for a user who brings items."""
    unit, signature = onnxruntime.InferenceSession(world.unit(model)), world.signature
    keys = world.items["movieId"].to_numpy()

    def asked(user: int, brings: list[int]) -> Any:
        padded = [*brings, *[BLANK["int64"]] * (4 - len(brings))]
        feed = {"userId": np.full(len(keys), user), "movieId": keys, "movieId_session": np.tile(np.array(padded, np.int64), (len(keys), 1))}
        return unit.run(["score"], tensors(signature, feed))[0]

    return asked


@pytest.mark.requirement("G-20", "C-04")
def test_the_unit_takes_the_keys_and_what_a_request_brings_and_answers_as_in_training(world: Small, model: SequenceSession) -> None:
    signature = world.signature
    assert signature.session == "movieId_session"
    assert [(one.name, one.side, one.width) for one in signature.inputs] == [
        ("userId", "user", None),
        ("movieId", "item", None),
        ("movieId_session", "context", 4),
    ]
    samples = world.rows(model)
    outputs = ["score", *(one.output for one in signature.features)]
    taken = tensors(signature, {one.name: samples[one.name] for one in signature.inputs})
    for name, found in zip(outputs, onnxruntime.InferenceSession(world.unit(model)).run(outputs, taken), strict=True):
        np.testing.assert_allclose(found, samples[name], atol=1e-5)
    brought = (samples["movieId_session"] != BLANK["int64"]).any(axis=1)
    assert brought.any() and not brought.all(), "requests with items and without"


@pytest.mark.requirement("G-20")
def test_who_has_no_moment_meets_items_with_an_empty_sequence(world: Small, model: SequenceSession) -> None:
    """Where no column of the interactions is taken, too."""
    found = world.meetings.features(np.full(3, 9_999), np.arange(3))
    assert (found["movieId_sequence"] == NULL).all()
    assert len(model.score(found)) == 3


@pytest.mark.requirement("G-20")
def test_a_stranger_is_answered_by_the_items_that_the_request_brings_in_their_order(world: Small, model: SequenceSession, ask: Of) -> None:
    codes, keys = world.catalogue.columns["movieId"], world.items["movieId"].to_list()
    of = dict(zip(keys, codes.tolist(), strict=True))
    known = [key for key in keys if of[key] >= FIRST]
    one, two, three = known[:3]

    def plainly(*items: int) -> Any:
        return scores_of(model.shape, model.weights, rows([[of[key] for key in items]] * len(keys), 4), item_vectors(model.weights)[codes])

    np.testing.assert_allclose(ask(9_999, []), plainly(), atol=1e-5)
    np.testing.assert_allclose(ask(9_999, [one, two]), plainly(one, two), atol=1e-5)
    assert np.abs(ask(9_999, [one, two]) - ask(9_999, [two, one])).max() > 1e-3
    np.testing.assert_allclose(ask(9_999, [one, two]), ask(8_888, [one, two]), atol=1e-6)
    assert np.abs(ask(9_999, [one, two]) - ask(9_999, [one, three])).max() > 1e-3


@pytest.mark.requirement("G-20")
def test_what_a_known_user_brings_follows_on_what_was_known_and_the_newest_count(world: Small, model: SequenceSession, ask: Of) -> None:
    sequence = next(one for one in world.graph.operators if isinstance(one, Sequence))
    users, rows_ = sequence.table
    at = int(np.argmax((rows_[:-1] != NULL).sum(axis=1)))
    user, before = int(users.to_series(0)[at]), rows_[at]
    assert (before != NULL).all()
    codes = world.catalogue.columns["movieId"]
    key = world.items["movieId"].to_list()[int(np.argmax(codes >= FIRST))]
    then = np.append(before[1:], codes[codes >= FIRST][0])[None]
    np.testing.assert_allclose(
        ask(user, [key]),
        scores_of(model.shape, model.weights, np.tile(then, (len(codes), 1)), item_vectors(model.weights)[codes]),
        atol=1e-5,
    )
    np.testing.assert_allclose(
        ask(user, []),
        scores_of(model.shape, model.weights, np.tile(before[None], (len(codes), 1)), item_vectors(model.weights)[codes]),
        atol=1e-5,
    )
    found = model.embeddings(world.codes)
    code = int(world.graph.key("userId").state.coded(pl.Series([user]))[0])
    np.testing.assert_allclose(found.vectors @ found.queries[code], ask(user, []), atol=1e-5)


@pytest.mark.requirement("G-20", "C-04", "T-12")
@pytest.mark.parametrize(
    ("sequence", "serve"),
    [
        ({"gap": "1h"}, {}),
        ({"window": "3d", "liked": True}, {}),
        ({}, {"lists": "offsets"}),
        ({}, {"vocabulary_limit": 1}),
    ],
    ids=["session", "window, liked", "offsets", "stored"],
)
def test_what_is_brought_follows_on_whatever_is_known_in_every_runtime(tmp_path: Path, sequence: Any, serve: Any) -> None:
    one = replace(small(tmp_path, "sequence", **sequence), serve=Serve.model_validate(serve))
    limit = one.serve.vocabulary_limit
    graph, served, raw = one.graph, signature_of(one.graph, one.serve), one.raw.stored(one.graph, limit)
    shape = Shape(graph.key("movieId").state.cardinality, 8, 1, 2, 4, "next")
    model = replace(reader(), item="movieId", sequence="movieId_sequence", shape=shape, weights=begin(shape, 3))
    users, places = choose_pairs(graph, lambda name: one.folder / name, len(one.items), seed=1)
    samples = answers(graph, model, raw, users, places, served)
    files = write_unit(graph, model, tmp_path / "model.onnx", limit, one.serve.lists)
    np.testing.assert_allclose(unit_answers(files["model.onnx"], served, samples), samples["score"], atol=1e-5)
    assert len(np.unique(samples["features/movieId_sequence"], axis=0)) > 50
    assert (limit > 1) or any(given.origin == "store" for given in served.inputs)


def test_what_is_kept_scores_as_what_was_trained(world: Small, model: SequenceSession, tmp_path: Path) -> None:
    files = model.save(tmp_path)
    assert set(files) == {MODEL, WEIGHTS, QUERIES}
    found = load_model(lambda name: files[name])
    np.testing.assert_array_equal(found.score(world.codes), model.score(world.codes))
    np.save(tmp_path / QUERIES, np.zeros((5, 3), np.float32))
    with pytest.raises(EyasError, match=r"queries.npy: does not match model.json: the files are of different models"):
        load_model(lambda name: files[name])


@pytest.mark.requirement("G-16", "G-20")
def test_views_of_pages_are_read_and_never_to_be_found(etl: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path, log())
    outcome = etl(paged(tmp_path, [KEYS, sequence()], model={"family": "session"}, gates=[{"parity": 1e-4}]))
    graph = load_graph(outcome.files.__getitem__)
    feature = read_sequence(graph, SessionParams())
    assert feature is not None and feature.vocabulary is not None
    assert feature.vocabulary.cardinality == graph.key("movieId").state.cardinality, "one vector for each code that is read"
    codes = read_table(outcome.files["items.features.parquet"], graph, "item").columns["movieId"]
    found = read_streams(outcome.files["train.parquet"], feature.name, codes, feature.liked)
    pages = feature.vocabulary.coded(pl.Series([page_key(name) for name in NAMES]))
    is_page = np.isin(found.sequences.others, pages[pages >= FIRST])
    assert found.sought is not None and is_page.any() and not (is_page & found.sought).any()
    rows_ = pl.read_parquet(outcome.files["train.parquet"])
    liked = rows_.filter((pl.col("label") > 0) & pl.Series(codes[rows_["item_row"].to_numpy()] >= FIRST))
    assert found.sought.sum() == len(liked), "each like once"
    assert len(found.sequences.others) < 3 * len(rows_), "rows share their streams"


@pytest.mark.requirement("N-05")
def test_a_feature_that_it_cant_read_is_refused(world: Small) -> None:
    graph = world.graph
    backwards = [replace(one, reverse=True) if isinstance(one, Sequence) else one for one in graph.operators]
    with pytest.raises(Invalid, match=r"sequence.reverse: 'session' reads the oldest first"):
        read_sequence(replace(graph, operators=tuple(backwards)), SessionParams())
    with pytest.raises(Invalid, match=r"model.params.length: the sequence feature sets the length to 4"):
        read_sequence(graph, SessionParams(length=9))
    assert read_sequence(graph, SessionParams()) is not None
    assert read_sequence(graph, SessionParams(length=50)) is not None, "a spec that is kept says its defaults too"
