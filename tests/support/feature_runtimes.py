"""The runtimes of a feature graph on the same rows: drawn rows, polars' features of them, and what ONNX makes of them.

Rows have nulls, values that were never seen, empty lists, text in any script and the extremes of int64.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import polars as pl
from hypothesis import strategies as st
from pydantic import TypeAdapter

from pipelines.data.pages import of_users
from pipelines.features.engines.history import ROW, RowHistory
from pipelines.features.engines.polars import PreparedTables
from pipelines.features.graph import Graph, Tables, compile_graph, joined
from pipelines.features.operators.sequence import Sequence
from pipelines.features.raw import raw_column, signature
from pipelines.features.stored import with_values
from shared.contracts.features import Operator
from shared.contracts.serving import Lists, Serve
from shared.domain.pages import page_key
from shared.serving.signature import BLANK, Signature
from shared.serving.tensors import tensors

EXAMPLES = int(os.environ.get("EYAS_CASES", "25"))
OPERATORS: TypeAdapter[tuple[Any, ...]] = TypeAdapter(tuple[Operator, ...])
KEYS = {"categorify": ["user", "item"]}
CASES: Mapping[str, list[dict[str, Any]]] = {
    "categorify": [{"categorify": ["word", "number"]}],
    "categorify: rare, few": [{"categorify": ["word", "number"], "min_count": 2, "max_size": 3}],
    "categorify: hash buckets": [{"categorify": "number", "max_size": 2, "hash_buckets": 7}],
    "categorify: listed": [
        {"categorify": "word", "values": ["b", "ü", "日本"]},
        {"categorify": "number", "values": [0, -1, 2**63 - 1, 2**53 + 1]},
    ],
    "categorify: everything hashed": [{"categorify": "number", "values": [], "hash_buckets": 5}],
    "multi_hot: listed": [{"multi_hot": "tags", "values": ["b", "日本", "a"]}],
    "categorify: shared": [{"categorify": ["word", "other"], "vocabulary": "words"}, {"multi_hot": "tags", "vocabulary": "words"}],
    "multi_hot: lists of text": [{"multi_hot": "tags", "max_length": 3}],
    "multi_hot: lists of integers": [{"multi_hot": "ids", "min_count": 2}],
    "multi_hot: delimited": [{"multi_hot": "said", "separator": "|"}],
    "normalise": [{"normalise": ["price", "number"]}],
    "normalise: range": [{"normalise": "price", "to": "range"}],
    "log": [{"log": ["price", "number"]}],
    "clip": [{"clip": "price", "min": -1.5, "max": 2}],
    "fill": [{"fill": "price", "with": -1}],
    "fill: mean, flag": [{"fill": ["price", "number"], "flag": True}],
    "a chain": [{"fill": "price"}, {"clip": "price", "min": 0}, {"log": "price"}, {"normalise": "price"}],
    "bucketise": [{"bucketise": ["price", "number"], "at": [-1, 0, 2.5]}],
    "bucketise: quantiles": [{"bucketise": "price", "quantiles": 4}],
    "target_encode": [{"target_encode": {"of": "item"}}],
    "target_encode: text, targets": [{"target_encode": {"of": "word", "target": ["label", "spent"], "folds": 3, "smoothing": 0}}],
    "target_encode: combinations": [{"target_encode": {"of": ["user", "word", "number"], "smoothing": 1}}],
    "target_encode: codes": [{"calendar": {"of": "time", "parts": ["hour"]}}, {"target_encode": {"of": "hour"}}],
    "count_encode": [{"count_encode": ["item", "word"]}, {"count_encode": "number", "scale": "share"}],
    "count_encode: plain": [{"count_encode": "user", "scale": "none"}],
    "lag": [{"lag": {"of": "time", "by": "user"}}],
    "lag: steps of numbers": [{"lag": {"of": "spent", "by": "user", "steps": 2}}],
    "cyclic": [{"cyclic": {"of": "time", "periods": ["day", "week", "year"]}}],
    "calendar": [{"calendar": {"of": "time", "parts": ["hour", "weekday"]}}],
    "cross": [{"categorify": "word"}, {"calendar": {"of": "time", "parts": ["hour"]}}, {"cross": ["word", "hour"], "buckets": 50}],
    "cross: several values, three features": [
        {"multi_hot": "tags", "max_length": 3},
        {"bucketise": "price", "at": [0]},
        {"cross": ["user", "tags", "price_bucket"]},
    ],
    "one_hot": [{"categorify": "word"}, {"multi_hot": "tags"}, {"one_hot": ["word", "tags"]}],
    "extract": [{"extract": {"of": "text", "what": "hashtags"}}, {"multi_hot": "text_hashtags"}],
    "extract: a pattern": [{"extract": {"of": "text", "pattern": r"(\d+) mm", "as": "lens"}}, {"multi_hot": "lens"}],
    "vector": [{"vector": {"of": "item", "from": "posters.parquet", "width": 3}}],
    "sequence": [{"sequence": {"of": "item", "by": "user", "length": 3}}],
    "sequence: window": [{"sequence": {"of": "item", "by": "user", "length": 3, "window": "3s"}}],
    "sequence: session, newest first": [{"sequence": {"of": "item", "by": "user", "length": 4, "gap": "1s", "reverse": True}}],
    "sequence: session, window, liked": [
        {"sequence": {"of": "item", "by": "user", "length": 4, "gap": "1h", "window": "30d", "liked": True}}
    ],
    "sequence: pages": [{"sequence": {"of": "item", "by": "user", "length": 4, "pages": True}}],
    "sequence: pages, newest first, beside a lag": [
        {"sequence": {"of": "item", "by": "user", "length": 4, "pages": True, "reverse": True}},
        {"lag": {"of": "time", "by": "user"}},
        {"count_encode": "item"},
        {"target_encode": {"of": "item"}},
    ],
    "sequence: pages, session, window": [
        {"sequence": {"of": "item", "by": "user", "length": 4, "pages": True, "gap": "1h", "window": "30d"}}
    ],
    "sequence: liked, newest first": [{"sequence": {"of": "item", "by": "user", "length": 4, "liked": True, "reverse": True}}],
}

GROUPS: Mapping[str, list[str]] = {
    group: [case for case in CASES if case.partition(":")[0] == group] for group in dict.fromkeys(case.partition(":")[0] for case in CASES)
}
"""The cases of each operator."""

TEXT = st.text(max_size=3).filter(lambda one: "\0" not in one)
WORD = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ü", "日本", "a b", "🦅", "A"]), TEXT)
WIDE = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([-(2**63) + 1, 2**63 - 1, 2**53 + 1, -(2**31), 2**31 - 1]))
NUMBER = st.one_of(
    st.none(), st.just(math.nan), st.sampled_from([0.0, -0.0, 1.0, 2.5, 1e-30, 1e30, -7.25]), st.floats(-1000, 1000, width=32)
)
TIME = st.one_of(st.integers(0, 2_000_000_000), st.integers(0, 3), st.sampled_from([-1, -86_401, 2**40]))
DRAWN_ITEM = st.fixed_dictionaries(
    {
        "word": WORD,
        "other": WORD,
        "number": WIDE,
        "price": NUMBER,
        "tags": st.one_of(st.none(), st.lists(WORD, max_size=5)),
        "ids": st.one_of(st.none(), st.lists(WIDE, max_size=4)),
        "said": st.one_of(st.none(), st.lists(st.sampled_from(["a", "b", "ü", ""]), max_size=5).map("|".join)),
        "text": st.one_of(st.none(), st.sampled_from(["#a and #B", "35 mm, 50 mm", "", "#ü#a @x", "no 7 mm #日本"])),
        "item_vector": st.one_of(st.none(), st.lists(st.one_of(st.just(0.0), st.floats(-100, 100, width=32)), min_size=3, max_size=3)),
    }
)
DRAWN_ROW = st.fixed_dictionaries(
    {
        "user": st.one_of(st.integers(1, 5), st.sampled_from([-(2**63) + 1, 2**63 - 1])),
        "item": st.integers(0, 5),
        "time": TIME,
        "label": st.integers(0, 1),
        "spent": st.one_of(st.none(), st.floats(0, 100, width=16)),
    }
)
DRAWN_PAGE = st.fixed_dictionaries(
    {
        "user": st.one_of(st.integers(1, 6), st.sampled_from([-(2**63) + 1, 2**63 - 1])),
        "item": st.sampled_from(["home", "cart", "日本", "7"]).map(page_key),
        "time": TIME,
    }
)
SCHEMA = {"user": pl.Int64(), "item": pl.Int64(), "time": pl.Int64(), "label": pl.Int8(), "spent": pl.Float64()}
ITEMS = {
    "word": pl.String(),
    "other": pl.String(),
    "number": pl.Int64(),
    "price": pl.Float64(),
    "tags": pl.List(pl.String()),
    "ids": pl.List(pl.Int64()),
    "said": pl.String(),
    "text": pl.String(),
    "item_vector": pl.List(pl.Float32()),
}
TABLES = Tables("user", "item", "time", pl.Schema({name: dtype for name, dtype in SCHEMA.items() if name != "label"}), pl.Schema(ITEMS))


Values = list[dict[str, Any]]


def assert_onnx_equals_polars(entries: Values, seen: Values, new: Values, films: Values, viewed: Values) -> None:
    """Fitted on `seen` rows, of films 0 to 3: films 4 and 5 come later, so that their values may be unknown."""
    known = [one for one in seen if one["item"] < 4] or [seen[0] | {"item": 0}]
    graph = compile_graph(OPERATORS.validate_python([KEYS, *entries]), TABLES)
    graph = fitted(graph, rows_of(known), films[:4], pages(viewed, rows_of(known)) if graph.paged else None)
    rows = with_session(graph, prepared(graph, rows_of([*seen, *new]), films).collect())
    ours = graph.transform(rows.lazy()).collect()
    for limit in (None, 0):  # tables in the graph, and beside it
        for theirs in (by_onnx(graph, rows, limit), *by_onnx_of_offsets(graph, rows, limit)):
            for feature in graph.features:
                compare(feature.name, feature.kind, ours[feature.name].to_numpy(), theirs[feature.name])


def with_session(graph: Graph, rows: pl.DataFrame) -> pl.DataFrame:
    """Adds items of a request, some of them unknown, if the graph takes any."""
    inputs = [operator.session for operator in graph.operators if isinstance(operator, Sequence) and operator.session is not None]
    some = ([], [3], [0, 9], [2, 1, 3], [5])
    lists = pl.Series([some[at % len(some)] for at in range(len(rows))], dtype=pl.List(pl.Int64))
    return rows.with_columns(lists.list.tail(column.width or 1).alias(column.name) for column in inputs)


def drawn(what: st.SearchStrategy[dict[str, Any]], least: int, most: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(what, min_size=least, max_size=most)


def pages(viewed: list[dict[str, Any]], rows: pl.DataFrame) -> pl.LazyFrame:
    """Of users who have rows, as etl hands them on."""
    return of_users(pl.LazyFrame(viewed, schema={name: SCHEMA[name] for name in ("user", "item", "time")}), rows.lazy())


def fitted(graph: Graph, rows: pl.DataFrame, films: list[dict[str, Any]], viewed: pl.LazyFrame | None = None) -> Graph:
    items = items_of(graph, films)
    whole = prepared(graph, rows, films).with_row_index(ROW)
    with tempfile.TemporaryDirectory() as folder:
        history = RowHistory(whole, graph.ordered, graph.row, Path(folder), len(rows), viewed) if graph.ordered else None
        return graph.fit(PreparedTables(whole, items.lazy(), None, graph.row, history, viewed))


def prepared(graph: Graph, rows: pl.DataFrame, films: list[dict[str, Any]]) -> pl.LazyFrame:
    plain = rows.lazy().with_columns(graph.prepared("interactions"))
    return joined({"interactions": plain, "items": items_of(graph, films).lazy()}, graph)


def by_onnx(graph: Graph, rows: pl.DataFrame, limit: int | None = None) -> dict[str, np.ndarray[Any, Any]]:
    served, rows = asked(graph, rows, limit, "padded")
    return run_onnx(graph, limit, "padded", tensors(served, {one.name: raw_column(rows, one, "rows") for one in served.inputs}))


def by_onnx_of_offsets(graph: Graph, rows: pl.DataFrame, limit: int | None) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """As columns are sent, and of the lists as they are in the data, however long. None where no lists are taken."""
    served, rows = asked(graph, rows, limit, "offsets")
    lists = [one for one in served.inputs if one.lists == "offsets"]
    if not lists:
        return
    sent = tensors(served, {one.name: raw_column(rows, one, "rows") for one in served.inputs})
    yield run_onnx(graph, limit, "offsets", sent)
    for one in lists:
        column = rows[one.name].fill_null([])
        values = column.explode(empty_as_null=False, keep_nulls=False).fill_null(BLANK[one.dtype]).to_list()
        sent[f"{one.name}__values"] = np.array(values, {"int64": np.int64, "string": np.str_, "float32": np.float32}[one.dtype])
        sent[f"{one.name}__offsets"] = np.array([0, *column.list.len().cum_sum()], np.int64)
    yield run_onnx(graph, limit, "offsets", sent)


def asked(graph: Graph, rows: pl.DataFrame, limit: int | None, lists: Lists) -> tuple[Signature, pl.DataFrame]:
    """What the unit takes, and the columns of that."""
    serve = Serve(lists=lists) if limit is None else Serve(lists=lists, vocabulary_limit=limit)
    of_requests = [operator.session.name for operator in graph.operators if isinstance(operator, Sequence) and operator.session is not None]
    stored = without_strangers(graph, with_values(rows.drop(of_requests), graph.stored(limit)), limit)
    return signature(graph, serve), stored.with_columns(rows[name] for name in of_requests)


def run_onnx(graph: Graph, limit: int | None, lists: Lists, feed: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    session = onnxruntime.InferenceSession(graph.lower(limit, lists).SerializeToString(), providers=["CPUExecutionProvider"])
    given = {name: column.astype(np.object_) if column.dtype.kind == "U" else column for name, column in feed.items()}
    return dict(zip([one.name for one in graph.features], session.run([one.output for one in graph.features], given), strict=True))


def without_strangers(graph: Graph, rows: pl.DataFrame, limit: int | None) -> pl.DataFrame:
    """Nothing is stored of users who weren't there; all items are in the catalogue."""
    known = pl.col(graph.user).is_in(graph.key(graph.user).state.values.implode())
    names = [one.name for one in graph.stored(limit) if one.side == "user"]
    return rows.with_columns(pl.when(known).then(pl.col(name)).alias(name) for name in names)


def compare(name: str, kind: str, ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> None:
    assert ours.shape == theirs.shape, name
    assert theirs.dtype == (np.int32 if kind == "code" else np.float32), name
    if kind == "code":
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
    else:
        assert np.isfinite(ours).all() and np.isfinite(theirs).all(), name
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=0, err_msg=name)


def rows_of(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA)


def items_of(graph: Graph, films: list[dict[str, Any]]) -> pl.DataFrame:
    frame = pl.DataFrame(films, schema=ITEMS).with_columns(item=pl.int_range(len(films), dtype=pl.Int64, eager=True))
    return frame.select("item", *graph.prepared("items"))
