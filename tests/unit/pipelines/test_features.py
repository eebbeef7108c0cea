"""One graph, two runtimes: polars and ONNX give equal codes, nulls, strangers and padding included; and it only grows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import polars as pl
import pytest

from pipelines.features.graph import Graph, check_same, codes_name, compile_graph, load_graph
from pipelines.features.raw import item_columns, signature
from pipelines.features.vocabulary import BLANK, fit_vocabulary
from shared.domain.errors import Invalid
from tests.unit.pipelines.recommender import films, spec

USERS = pl.LazyFrame({"user": [7, 7, 7, -3, -3, 9], "item": [1, 2, 2, 2, 3, 3]})


def _items(frame: pl.DataFrame, graph: Graph) -> pl.DataFrame:
    return frame.with_columns([one.normalise() for one in graph.side("item")])


def _fitted(frame: pl.DataFrame, folder: Path, **changes: object) -> Graph:
    graph = compile_graph(spec(folder, **changes), frame.schema, "films.parquet")
    return graph.fit(USERS, _items(frame, graph))


def _onnx(graph: Graph, items: pl.DataFrame, users: np.ndarray) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(graph.lower().SerializeToString(), providers=["CPUExecutionProvider"])
    names = [one.column for one in graph.features]
    raw = item_columns(items, signature(graph)) | {graph.user: users}
    return dict(zip(names, session.run([codes_name(name) for name in names], raw), strict=True))


def _table(lists: bool) -> pl.DataFrame:
    genres = [["Drama", None, "Comedy"], [], None, ["Drama"], ["Été", "Drama", "", "Comedy", "Horror"]]
    frame = pl.DataFrame({"movieId": [1, 2, 3, 4, 5], "genres": genres, "year": [1990, None, 1991, 1990, 1992]})
    return frame if lists else frame.with_columns(pl.col("genres").list.join("|", ignore_nulls=True))


@pytest.mark.parametrize("lists", [True, False])
def test_polars_and_onnx_give_equal_codes(lists: bool, tmp_path: Path) -> None:
    features = [
        {"categorify": ["userId", "movieId"]},
        {"categorify": ["year"], "min_count": 2},
        {"multi_hot": "genres", "max_length": 3} | ({} if lists else {"separator": "|"}),
    ]
    graph = _fitted(_table(lists), tmp_path, features=features)
    items = _items(_table(lists), graph)
    ours = graph.transform(items.lazy(), "item").collect()
    users = np.array([7, 9, -3, 12345, BLANK["int64"]], dtype=np.int64)
    theirs = _onnx(graph, items, users)
    for one in graph.side("item"):
        np.testing.assert_array_equal(ours[one.column].to_numpy(), theirs[one.column])
    encoded = pl.DataFrame({"userId": users}).select(graph.feature("userId").transform())["userId"]
    assert encoded.to_list() == theirs["userId"].tolist() == [2, 4, 3, 1, 0]
    assert theirs["year"].tolist() == [2, 0, 1, 2, 1]
    assert theirs["movieId"].tolist() == [4, 2, 3, 1, 1]
    assert theirs["genres"].tolist() == [[2, 3, 0], [0, 0, 0], [0, 0, 0], [2, 0, 0], [4, 2, 3]]


def test_lists_of_integers_are_padded_with_the_blank_integer(tmp_path: Path) -> None:
    frame = pl.DataFrame({"movieId": [1, 2, 3], "genres": [[5, 6], [5], []]}, schema_overrides={"genres": pl.List(pl.Int32)})
    graph = _fitted(frame, tmp_path, features=[{"categorify": ["userId", "movieId"]}, {"multi_hot": "genres"}])
    items = _items(frame, graph)
    raw = item_columns(items, signature(graph))["genres"]
    assert raw.dtype == np.int64 and raw[2].tolist() == [BLANK["int64"]] * 2
    assert _onnx(graph, items, np.array([7, 7, 7]))["genres"].tolist() == [[2, 3], [2, 0], [0, 0]]


def test_codes_are_by_count_then_value_and_the_file_depends_on_content_alone(tmp_path: Path) -> None:
    values = ["b", "a", "c", "c", None, "", "d", "d"]
    contents = []
    for number, order in enumerate((values, values[::-1])):
        vocabulary = fit_vocabulary(pl.LazyFrame({"word": order}), "string", 1)
        assert vocabulary.values.to_list() == ["c", "d", "a", "b"]
        contents.append(vocabulary.write(tmp_path / f"{number}.parquet").read_bytes())
    assert contents[0] == contents[1]


def test_a_graph_is_saved_and_read_back_the_same(tmp_path: Path) -> None:
    graph = _fitted(films(), tmp_path)
    files = graph.save(tmp_path)
    again = load_graph(lambda name: files[name])
    items = _items(films(), graph).lazy()
    assert again.describe() == graph.describe()
    assert again.transform(items, "item").collect().equals(graph.transform(items, "item").collect())


def test_a_grown_vocabulary_keeps_old_codes_and_appends_new_values(tmp_path: Path) -> None:
    old = _fitted(films(), tmp_path)
    more = pl.LazyFrame({"user": [100, 100, 100, 7, 50], "item": [1, 1, 1, 1, 1]})
    frame = films(22).with_columns(genres=pl.lit("New|Drama|Comedy|Horror"))
    grown = compile_graph(spec(tmp_path), frame.schema, "films.parquet")
    grown = grown.fit(more, _items(frame, grown), old)
    assert grown.feature("userId").state.values.to_list() == [7, -3, 9, 100, 50]
    genres = old.feature("genres").state.values.to_list()
    assert grown.feature("genres").state.values.to_list() == [*genres, "New"]
    assert (old.feature("genres").length, grown.feature("genres").length) == (3, 4)


def test_a_warm_run_with_other_features_is_refused(tmp_path: Path) -> None:
    plain = compile_graph(spec(tmp_path, features=[]), films().schema, "films.parquet")
    with pytest.raises(Invalid, match="start a full one"):
        check_same(plain, _fitted(films(), tmp_path))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([{"categorify": ["userId", "movieId"]}, {"multi_hot": "genres"}], "'genres' is text .*: say its separator"),
        ([{"categorify": ["userId", "movieId", "device"]}], "column 'device' is neither a key nor in the items table"),
    ],
)
def test_features_that_do_not_fit_the_table_are_refused(features: list[object], message: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=message):
        compile_graph(spec(tmp_path, features=features), films().schema, "films.parquet")
