"""One spec, several families: what each of them reads of it, and that what is left out changes nothing for it."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.features.graph import FEATURES, Graph, check_same, compile_graph, load_graph
from pipelines.features.raw import signature
from pipelines.features.reading import BELOW, CODES, KEYS_ALONE, MISSING, ORDER, SEQUENCE_AND_ITEMS, Reads
from shared.artifacts.store import FsspecArtifacts
from shared.domain.errors import Invalid
from tests.support.etl_stage import Etl
from tests.support.exported_units import Small, small
from tests.support.feature_runtimes import CASES, KEYS, OPERATORS, TABLES, by_onnx, fitted, prepared, rows_of, with_session
from tests.unit.pipelines.recommender import films, ratings, spec, write

EXAMPLES = int(os.environ.get("EYAS_CASES", "4"))
PRICES: list[list[dict[str, Any]]] = [
    [{"normalise": "price"}],
    [{"normalise": "price", "to": "range"}],
    [{"log": "price"}],
    [{"fill": "price", "flag": True}],
    [{"fill": "price", "with": -3}, {"log": "price"}],
    [{"clip": "price", "min": -50, "max": 60}, {"normalise": "price"}],
    [{"fill": "price"}, {"clip": "price", "min": 0}, {"log": "price"}, {"normalise": "price"}],
    [{"normalise": "price"}, {"clip": "price", "min": -1, "max": 1}, {"normalise": "price", "to": "range"}],
    [{"log": "price"}, {"clip": "price", "max": 3}, {"fill": "price"}],
    [{"normalise": "price"}, {"log": "price"}],
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return small(tmp_path_factory.mktemp("small"))


def read(entries: list[dict[str, Any]], reads: Reads) -> Graph:
    return compile_graph(OPERATORS.validate_python([KEYS, *entries]), TABLES, reads)


@pytest.mark.requirement("G-06")
def test_deep_families_read_everything_and_others_no_more_than_the_keys(subtests: pytest.Subtests) -> None:
    for case in CASES:
        with subtests.test(case=case):
            entries = [KEYS, *CASES[case]] if case != "categorify: shared" else [KEYS, {"categorify": "word", "vocabulary": "words"}]
            assert not read(CASES[case], "deep").left
            keys = read(entries[1:], "keys")
            assert [one.kind for one in keys.operators] == ["categorify", "categorify"]
            assert keys.raws() and {one.name for one in keys.raws()} == {"user", "item"}
            assert {one.why for one in keys.left} == {KEYS_ALONE}


@pytest.mark.requirement("G-06")
def test_a_key_has_the_codes_that_it_has_in_every_family() -> None:
    """Where its vocabulary is counted in another column too, that column is looked at; nobody is asked for it."""
    entries = [{"multi_hot": "ids", "vocabulary": "item"}]
    rows = rows_of([{"user": 1, "item": at % 2, "time": at, "label": 1, "spent": None} for at in range(6)])
    films = [{"ids": [at, 77, 77]} for at in range(6)]
    deep, keys = (fitted(read(entries, reads), rows, films) for reads in ("deep", "keys"))
    assert 77 in keys.key("item").state.values.to_list()
    assert keys.key("item").state.values.equals(deep.key("item").state.values)
    assert [one.name for one in signature(keys).inputs] == ["user", "item"]
    assert [one.name for one in signature(deep).inputs] == ["user", "item", "ids"]


SPARED: list[tuple[list[dict[str, Any]], list[str], list[str]]] = [
    ([{"normalise": ["price", "number"]}], ["number(price)", "number(number)"], [ORDER, ORDER]),
    ([{"log": "price"}], ["clip(price)"], [BELOW]),
    ([{"clip": "price", "min": 0}, {"log": "price"}], ["clip(price)"], [ORDER]),
    ([{"clip": "price", "max": 0}, {"log": "price"}], ["clip(price)", "clip(clip(price))"], [BELOW]),
    ([{"count_encode": "user"}, {"log": "user_count"}, {"normalise": "user_count"}], ["count_encode(user)"], [ORDER, ORDER]),
    ([{"fill": "price", "flag": True}], ["number(price)"], [MISSING]),
    ([{"fill": "price"}, {"log": "price"}], ["clip(price)"], [MISSING, BELOW]),
    ([{"normalise": "price"}, {"clip": "price", "max": 2}], ["normalise(price)", "clip(normalise(price))"], []),
    (
        [{"fill": "price"}, {"normalise": "price"}, {"clip": "price", "max": 2}, {"normalise": "price"}],
        ["fill(price)", "normalise(fill(price))", "clip(normalise(fill(price)))"],
        [ORDER],
    ),
    ([{"log": "price"}, {"fill": "price"}, {"clip": "price", "max": 2}], ["log(price)", "clip(log(price))"], [MISSING]),
    (
        [{"count_encode": "user", "scale": "none"}, {"log": "user_count"}, {"bucketise": "user_count", "at": [1]}],
        ["count_encode(user)", "log(count_encode(user))", "bucketise(log(count_encode(user)))"],
        [],
    ),
    ([{"bucketise": "price", "at": [1]}, {"normalise": "price"}], ["bucketise(price)", "number(price)"], [ORDER]),
    ([{"fill": "price", "flag": True}, {"log": "price_missing"}], ["fill(price)", "clip(fill(price))"], [BELOW]),
    (
        [{"categorify": "word"}, {"multi_hot": "tags"}, {"one_hot": ["word", "tags"]}],
        ["categorify(word)", "multi_hot(tags)", "one_hot(multi_hot(tags))"],
        [CODES],
    ),
]


@pytest.mark.requirement("G-06")
def test_trees_are_spared_what_changes_none_of_their_splits(subtests: pytest.Subtests) -> None:
    for entries, made, why in SPARED:
        with subtests.test(entries=entries):
            graph = read(entries, "trees")
            formulas: dict[str, str] = {}
            for one in graph.operators:
                formula = f"{one.kind}({', '.join(formulas.get(column.name, column.name) for column in one.inputs)})"
                formulas |= dict.fromkeys((out.name for out in one.outputs), formula)
            assert list(dict.fromkeys(formulas.values()))[2:] == made
            assert [one.why for one in graph.left] == why


NEW: list[str] = ["target_encode", "count_encode", "lag", "cyclic", "calendar", "cross", "bucketise", "vector", "sequence"]


@pytest.mark.requirement("G-06")
def test_what_says_something_new_stays_for_trees(subtests: pytest.Subtests) -> None:
    for kind in NEW:
        with subtests.test(kind=kind):
            for name, entries in CASES.items():
                if name.split(":")[0] == kind:
                    graph = read(entries, "trees")
                    assert graph.operators == read(entries, "deep").operators and not graph.left


_PLAIN = st.one_of(st.none(), st.integers(-100, 100).map(float))
_WILD = st.one_of(st.none(), st.just(math.nan), st.floats(width=32, allow_nan=False, allow_infinity=False))


@pytest.mark.requirement("G-06")
@pytest.mark.parametrize("values", [_PLAIN, _WILD], ids=["whole numbers", "any number"])
def test_without_the_steps_that_are_left_out_a_tree_splits_rows_in_the_same_places(
    subtests: pytest.Subtests, values: st.SearchStrategy[float | None]
) -> None:
    """All splits of what is there are the same ones, ties included; of any number, where float32 merges neighbours, there are more."""

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(prices=st.lists(values, min_size=2, max_size=12))
    def same(prices: list[float | None], entries: list[dict[str, Any]]) -> None:
        films = [{"price": price} for price in prices]
        rows = rows_of([{"user": 1, "item": at, "time": at, "label": at % 2, "spent": None} for at in range(len(films))])
        there = np.array([price is not None and not math.isnan(price) for price in prices])
        found = {}
        for reads in ("deep", "trees"):
            graph = fitted(read(entries, reads), rows, films)  # type: ignore[arg-type]
            # As served: polars' division may differ in the last bit between rows of one value.
            found[reads] = by_onnx(graph, prepared(graph, rows, films).collect())["price"]
        assert not np.isnan(found["deep"]).any()
        assert np.isnan(found["trees"]).tolist() == (~there).tolist()
        deep, trees = (_splits(found[reads][there]) for reads in ("deep", "trees"))
        assert deep <= trees
        if values is _PLAIN:
            assert deep == trees

    for entries in PRICES:
        with subtests.test(entries=entries):
            same(entries=entries)


def _splits(values: np.ndarray[Any, Any]) -> set[tuple[bool, ...]]:
    """What a threshold can do."""
    return {tuple((values <= at).tolist()) for at in values.tolist()}


@pytest.mark.requirement("G-06")
def test_what_trees_read_is_served_as_it_was_trained_on_and_read_back_the_same(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, case in enumerate(CASES):
        with subtests.test(case=case):
            folder = tmp_path / str(number)
            folder.mkdir()
            words = {"word": "a", "other": "b", "said": "a|b", "text": "#a 35 mm"}
            films = [
                words
                | {"number": at - 2 if at else None, "price": at / 3 if at % 2 else None, "tags": ["a", "c"][: at % 3], "ids": [at, 1]}
                for at in range(6)
            ]
            rows = rows_of([{"user": at % 4, "item": at % 6, "time": at * 7777, "label": at % 2, "spent": at / 4} for at in range(40)])
            graph = fitted(read(CASES[case], "trees"), rows, films)
            request_rows = with_session(graph, prepared(graph, rows, films).collect())
            ours = graph.transform(request_rows.lazy()).collect()
            for limit in (None, 0):
                for name, theirs in by_onnx(graph, request_rows, limit).items():
                    np.testing.assert_allclose(ours[name].to_numpy(), theirs, rtol=1e-6, equal_nan=True, err_msg=name)
            again = load_graph(graph.save(folder).__getitem__)
            assert (again.reads, again.left) == ("trees", graph.left)
            assert again.transform(request_rows.lazy()).collect().equals(ours)
            check_same(read(CASES[case], "trees"), again)


@pytest.mark.requirement("G-06")
def test_only_trees_are_told_that_a_number_is_missing(world: Small) -> None:
    entries, tables = world.graph.entries, world.graph.tables
    trees = compile_graph(entries, tables, "trees")
    assert [one.column for one in signature(world.graph).features if one.missing] == []
    assert '"missing"' not in signature(world.graph).model_dump_json()
    said = {one.feature for one in trees.left}
    assert said == {"price, price_missing", "price", "age_bucket_hot"}


@pytest.mark.requirement("G-06")
@pytest.mark.parametrize("family", ["popularity", "mf"])
def test_a_run_of_a_family_of_keys_makes_of_the_data_what_it_reads(etl: Etl, tmp_path: Path, family: str) -> None:
    write(tmp_path, ratings(2_000).with_columns(device=pl.lit("phone")))
    pl.DataFrame({"userId": range(1, 25), "age": range(1, 25)}).write_parquet(tmp_path / "users.parquet")
    features = [
        {"categorify": ["userId", "movieId", "year", "device"]},
        {"multi_hot": "genres", "separator": "|"},
        {"normalise": "age"},
        {"calendar": {"of": "at", "parts": ["hour"]}},
        {"sequence": {"of": "movieId", "by": "userId"}},
        {"vector": {"of": "movieId", "from": str(tmp_path / "nowhere.parquet"), "width": 4}},
    ]
    made = spec(tmp_path, features=features, model={"family": family}, gates=[{"parity": 1e-4}])
    data = {**made.document()["data"], "users": {"uri": str(tmp_path / "users.parquet"), "key": "userId"}}
    outcome = etl(type(made).model_validate(made.document() | {"data": data}))
    graph = load_graph(outcome.files.__getitem__)
    assert [one.name for one in graph.features] == ["userId", "movieId"] and graph.reads == "keys"
    assert [one.name for one in signature(graph).inputs] == ["userId", "movieId"]
    assert "users.parquet" not in outcome.files and "users.features.parquet" not in outcome.files
    columns = pl.read_parquet_schema(outcome.files["train.parquet"])
    # What serves may still be asked with the device.
    assert list(columns) == ["user", "item", "time", "label", "x.device", "user_code", "item_row"]


@pytest.mark.requirement("G-06", "G-20")
def test_session_reads_keys_sequence_and_items_and_takes_the_items_of_a_request(etl: Etl, tmp_path: Path) -> None:
    """A target mean of an item is left out: it differs between the training rows of an item."""
    write(tmp_path, ratings(2_000), films().with_columns(price=pl.col("year") / 100))
    features = [
        {"categorify": ["userId", "movieId", "year"]},
        {"log": "price"},
        {"target_encode": {"of": "movieId"}},
        {"count_encode": "userId"},
        {"sequence": {"of": "movieId", "by": "userId", "length": 3, "gap": "1h"}},
    ]
    outcome = etl(spec(tmp_path, features=features, model={"family": "session"}, gates=[{"parity": 1e-4}]))
    graph = load_graph(outcome.files.__getitem__)
    assert [feature.name for feature in graph.features] == ["userId", "movieId", "year", "price", "movieId_sequence"]
    assert graph.reads == "sequence_and_items"
    assert [source.name for source in signature(graph).inputs] == ["userId", "movieId", "year", "price", "at", "movieId_session"]
    assert (signature(graph).session, signature(graph).time) == ("movieId_session", "at")
    assert [feature.feature for feature in graph.left] == ["movieId_te", "userId_count"]
    assert {feature.why for feature in graph.left} == {SEQUENCE_AND_ITEMS}


def test_what_is_wrong_with_a_feature_is_said_whoever_reads_it(etl: Etl, tmp_path: Path) -> None:
    write(tmp_path)
    features = [{"categorify": ["userId", "movieId"]}, {"normalise": "genres"}]
    with pytest.raises(Invalid, match="features: 'genres' is String, not a number"):
        etl(spec(tmp_path, features=features, model={"family": "popularity"}, gates=[{"parity": 1e-4}]))


def test_a_warm_run_keeps_what_its_parent_reads(etl: Etl, tmp_path: Path) -> None:
    """A parent of a release whose families all read everything, as of one of now."""
    write(tmp_path, ratings(2_000))
    put = FsspecArtifacts(str(tmp_path / "artifacts")).put
    counting = spec(tmp_path, model={"family": "popularity"}, gates=[{"parity": 1e-4}])
    events = tmp_path / "events.csv"
    ratings(600).select(user="userId", item="movieId", value="rating", time=pl.col("at") + 1e8).write_csv(events)
    for parent, names in ((spec(tmp_path), ["userId", "movieId", "year", "genres"]), (counting, ["userId", "movieId"])):
        before = etl(parent)
        inputs = {"parent": {name: put(path) for name, path in before.files.items()}, "events": {"events.csv": put(events)}}
        grown = load_graph(etl(counting, inputs=inputs, mode="warm").files.__getitem__)
        assert [one.name for one in grown.features] == names


def test_features_for_families_that_this_release_does_not_have_are_refused(tmp_path: Path) -> None:
    rows = rows_of([{"user": 1, "item": 0, "time": 1, "label": 1, "spent": None}])
    files = fitted(read([], "keys"), rows, [{}]).save(tmp_path)
    document = json.loads(files[FEATURES].read_text())
    files[FEATURES].write_text(json.dumps(document | {"reads": "graphs"}))
    with pytest.raises(Invalid, match="for families that read 'graphs', which this release does not have: start a full run"):
        load_graph(files.__getitem__)
