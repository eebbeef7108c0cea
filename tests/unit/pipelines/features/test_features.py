"""One graph, two runtimes: polars and ONNX give equal codes, nulls, strangers and padding included; and it only grows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import polars as pl
import pytest

from pipelines.features.columns import BLANK
from pipelines.features.graph import Graph, check_same, load_graph
from pipelines.features.operators.categorify import Categorify, MultiHot
from pipelines.features.prepared import EXTRA, Prepared, extra_columns, graph_of, prepare
from pipelines.features.raw import item_columns, signature
from pipelines.inputs.tables import Users
from shared.domain.errors import Invalid
from tests.support.feature_graphs import fitted, unfitted
from tests.unit.pipelines.recommender import films, spec

USERS = pl.LazyFrame({"user": [7, 7, 7, -3, -3, 9], "item": [1, 2, 2, 2, 3, 3], "time": [0.0] * 6, "label": [1] * 6})


def _fitted(frame: pl.DataFrame, folder: Path, rows: pl.LazyFrame = USERS, known: Graph | None = None, **changes: object) -> Prepared:
    return fitted(spec(folder, **changes), rows, frame, known)


def _onnx(ready: Prepared, users: np.ndarray) -> dict[str, np.ndarray]:
    graph = ready.graph
    session = onnxruntime.InferenceSession(graph.lower().SerializeToString(), providers=["CPUExecutionProvider"])
    raw = item_columns(ready.items, signature(graph)) | {graph.user: users}
    return dict(zip([one.name for one in graph.features], session.run([one.output for one in graph.features], raw), strict=True))


def _values(graph: Graph, name: str) -> list[object]:
    operator = next(one for one in graph.operators if isinstance(one, Categorify | MultiHot) and one.column.name == name)
    return operator.state.values.to_list()


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
    ready = _fitted(_table(lists), tmp_path, features=features)
    graph = ready.graph
    ours = graph.transform(ready.items.lazy(), "item").collect()
    users = np.array([7, 9, -3, 12345, BLANK["int64"]], dtype=np.int64)
    theirs = _onnx(ready, users)
    for one in graph.side("item"):
        np.testing.assert_array_equal(ours[one.name].to_numpy(), theirs[one.name])
    encoded = Users(graph, None, None).of(users)["userId"]
    encoded[-1] = 0  # a key is never null
    assert encoded.tolist() == theirs["userId"].tolist() == [2, 4, 3, 1, 0]
    assert theirs["year"].tolist() == [2, 0, 1, 2, 1]
    assert theirs["movieId"].tolist() == [4, 2, 3, 1, 1]
    assert theirs["genres"].tolist() == [[2, 3, 0], [0, 0, 0], [0, 0, 0], [2, 0, 0], [4, 2, 3]]


def test_lists_of_integers_are_padded_with_the_blank_integer(tmp_path: Path) -> None:
    frame = pl.DataFrame({"movieId": [1, 2, 3], "genres": [[5, 6], [5], []]}, schema_overrides={"genres": pl.List(pl.Int32)})
    ready = _fitted(frame, tmp_path, features=[{"categorify": ["userId", "movieId"]}, {"multi_hot": "genres"}])
    raw = item_columns(ready.items, signature(ready.graph))["genres"]
    assert raw.dtype == np.int64 and raw[2].tolist() == [BLANK["int64"]] * 2
    assert _onnx(ready, np.array([7, 7, 7]))["genres"].tolist() == [[2, 3], [2, 0], [0, 0]]


def test_codes_are_by_count_then_value_and_the_files_depend_on_content_alone(tmp_path: Path) -> None:
    contents = []
    for number, order in enumerate((slice(None), slice(None, None, -1))):
        frame = pl.DataFrame({"movieId": [1, 2, 3, 4], "genres": [["b"], ["a"], ["c", "d"], ["c", "", "d"]]})[order]
        ready = _fitted(frame.sort("movieId"), tmp_path, features=[{"categorify": ["userId", "movieId"]}, {"multi_hot": "genres"}])
        assert _values(ready.graph, "genres") == ["c", "d", "a", "b"]
        folder = tmp_path / str(number)
        folder.mkdir()
        contents.append({name: path.read_bytes() for name, path in ready.graph.save(folder).items()})
    assert contents[0] == contents[1]


def test_a_graph_is_saved_and_read_back_the_same(tmp_path: Path) -> None:
    ready = _fitted(films(), tmp_path)
    files = ready.graph.save(tmp_path)
    again = load_graph(lambda name: files[name])
    assert again.describe() == ready.graph.describe()
    items = ready.items.lazy()
    assert again.transform(items, "item").collect().equals(ready.graph.transform(items, "item").collect())


def test_a_grown_vocabulary_keeps_old_codes_and_appends_new_values(tmp_path: Path) -> None:
    old = _fitted(films(), tmp_path).graph
    more = pl.LazyFrame({"user": [100, 100, 100, 7, 50], "item": [1] * 5, "time": [0.0] * 5, "label": [1] * 5})
    frame = films(22).with_columns(genres=pl.lit("New|Drama|Comedy|Horror"))
    grown = _fitted(frame, tmp_path, more, old).graph
    assert _values(grown, "userId") == [7, -3, 9, 100, 50]
    assert _values(grown, "genres") == [*_values(old, "genres"), "New"]
    assert [one.width for which in (old, grown) for one in which.features if one.name == "genres"] == [3, 4]


def test_a_warm_run_with_other_features_is_refused(tmp_path: Path) -> None:
    plain = unfitted(spec(tmp_path, features=[]), films().schema)
    with pytest.raises(Invalid, match="start a full run"):
        check_same(plain, _fitted(films(), tmp_path).graph)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([{"categorify": ["userId", "movieId"]}, {"multi_hot": "genres"}], "'genres' is text .*: set its separator"),
        (
            [{"categorify": ["userId", "movieId", "device"]}],
            "'device' is neither a key nor in the interactions table or the items table films",
        ),
    ],
)
def test_features_that_do_not_fit_the_table_are_refused(features: list[object], message: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=message):
        unfitted(spec(tmp_path, features=features), films().schema)


def test_bounds_are_of_the_data_whatever_else_is_made_of_it(tmp_path: Path) -> None:
    features = [{"categorify": ["userId", "movieId"]}, {"normalise": "year"}, {"bucketise": "year", "at": [1991]}]
    ready = _fitted(films(), tmp_path, features=features)
    made = ready.graph.transform(ready.items.lazy(), "item").collect()["year_bucket"].to_list()
    assert made == [0 if year is None else 1 + (year >= 1991) for year in films()["year"]]


def test_a_label_column_that_is_called_label_stays_what_was_judged_of_it(tmp_path: Path) -> None:
    schema = {"user": "userId", "item": "movieId", "time": "at", "label": {"column": "label", "positive": ">= 4"}}
    features = [{"categorify": ["userId", "movieId"]}, {"target_encode": {"of": "movieId", "smoothing": 0}}]
    wanted = spec(tmp_path, schema=schema, features=features)
    there = pl.Schema({"userId": pl.Int64(), "movieId": pl.Int64(), "at": pl.Float64(), "label": pl.Float64()})
    extra = extra_columns(wanted, there)
    rows = pl.LazyFrame({"user": [1, 1, 2], "item": [1, 2, 1], "time": [0.0, 1.0, 2.0], "label": [1, 0, 1]})
    carried = rows.with_columns(pl.lit(5.0).alias(f"{EXTRA}{name}") for name in extra)
    ready = prepare(graph_of(wanted, extra, films().schema, None, {}), films(), None, carried).fit(carried)
    ready.write_rows(carried, carried, None, (tmp_path / "train.parquet", tmp_path / "holdout.parquet"))
    assert pl.read_parquet(tmp_path / "train.parquet")["label"].to_list() == [1, 0, 1]
    assert ready.graph.transform(ready.items.lazy(), "item").collect()["movieId_te"][:2].to_list() == [1.0, 0.0]


def test_a_column_that_is_called_as_the_offsets_of_another_is_refused_before_data_flows(tmp_path: Path) -> None:
    features = [{"categorify": ["userId", "movieId", "genres__offsets"]}, {"multi_hot": "genres", "separator": "|"}]
    schema = films().with_columns(pl.lit(1).alias("genres__offsets")).schema
    unfitted(spec(tmp_path, features=features), schema)
    with pytest.raises(
        Invalid, match=r"^serve.lists: 'offsets' makes the input 'genres__offsets' from 'genres', but a column has that name: "
    ):
        unfitted(spec(tmp_path, features=features, serve={"lists": "offsets"}), schema)
