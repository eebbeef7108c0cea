"""A vocabulary that a spec lists: codes in its order, whatever the data has."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import polars as pl
import pytest

from pipelines.features.graph import Graph, load_graph
from pipelines.features.prepared import Prepared
from pipelines.features.raw import item_columns, signature
from shared.contracts.features import Categorify, MultiHot
from shared.domain.errors import Invalid
from tests.support.feature_graphs import fitted, unfitted
from tests.unit.pipelines.recommender import films, spec

ROWS = pl.LazyFrame({"user": [7, 7, 9], "item": [1, 2, 3], "time": [0.0] * 3, "label": [1] * 3})
ITEMS = pl.DataFrame({"movieId": [1, 2, 3, 4], "genres": [["b", "a"], ["c"], [], None], "year": [1990, 5, None, 1991]})
KEYS = {"categorify": ["userId", "movieId"]}


def _fitted(folder: Path, *features: dict[str, Any], known: Graph | None = None, items: pl.DataFrame = ITEMS) -> Prepared:
    return fitted(spec(folder, features=[KEYS, *features]), ROWS, items, known)


def _codes(ready: Prepared, *names: str) -> dict[str, list[Any]]:
    """In both runtimes, which must agree."""
    graph = ready.graph
    ours = graph.transform(ready.items.lazy(), "item").collect()
    session = onnxruntime.InferenceSession(graph.lower().SerializeToString(), providers=["CPUExecutionProvider"])
    raw = item_columns(ready.items, signature(graph)) | {"userId": np.full(len(ours), 7)}
    served = dict(zip([one.name for one in graph.features], session.run([one.output for one in graph.features], raw), strict=True))
    for name in names:
        np.testing.assert_array_equal(ours[name].to_numpy(), served[name])
    return {name: ours[name].to_list() for name in names}


def test_codes_follow_the_list_and_what_it_lacks_is_unknown(tmp_path: Path) -> None:
    ready = _fitted(tmp_path, {"categorify": "year", "values": [1991, 1990, 2020]}, {"multi_hot": "genres", "values": ["a", "b"]})
    found = _codes(ready, "year", "genres")
    assert found["year"] == [3, 1, 0, 2]
    assert found["genres"] == [[3, 2], [1, 0], [0, 0], [0, 0]]
    assert ready.graph.cardinalities() | {"userId": 4, "movieId": 5} == {"userId": 4, "movieId": 5, "year": 5, "genres": 4}


def test_an_empty_list_with_buckets_hashes_everything(tmp_path: Path) -> None:
    ready = _fitted(tmp_path, {"categorify": "year", "values": [], "hash_buckets": 4})
    codes = _codes(ready, "year")["year"]
    assert codes[2] == 0 and all(2 <= code < 6 for at, code in enumerate(codes) if at != 2)
    assert ready.graph.cardinalities()["year"] == 6


def test_it_never_grows_and_is_saved_and_read_back(tmp_path: Path) -> None:
    entry = {"categorify": "year", "values": [1991, 1990]}
    old = _fitted(tmp_path, entry).graph
    again = _fitted(tmp_path, entry, known=old, items=ITEMS.with_columns(year=pl.Series([7, 7, 7, 1990])))
    assert _codes(again, "year")["year"] == [1, 1, 1, 3]
    files = again.graph.save(tmp_path)
    assert load_graph(lambda name: files[name]).describe() == again.graph.describe()
    state = pl.read_parquet(files["vocabulary.year.parquet"])
    assert state["value"].to_list() == [1991, 1990] and state["count"].to_list() == [1, 2]


KINDS: list[tuple[dict[str, Any], str]] = [
    ({"values": []}, "the list is empty"),
    ({"values": [1, "a"]}, "expected only integers or only text"),
    ({"values": [1, 2, 1]}, "1 is listed twice"),
    ({"values": ["a", ""]}, "mean null"),
    ({"values": [-(2**63)]}, "mean null"),
    ({"values": [1], "max_size": 3}, "min_count and max_size have no effect on a listed vocabulary; leave them out"),
    ({"values": [1.5]}, "values"),
]


def test_lists_that_mean_nothing_are_refused(subtests: pytest.Subtests) -> None:
    for (entry, message), kind in product(KINDS, [Categorify, MultiHot]):
        with subtests.test(entry=entry, kind=kind):
            named = {"categorify": "year"} if kind is Categorify else {"multi_hot": "year"}
            with pytest.raises(ValueError, match=message):
                kind.model_validate(named | entry)


def test_a_list_of_another_kind_than_the_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="'year' has integers in the data, but the listed values are not integers"):
        unfitted(spec(tmp_path, features=[KEYS, {"categorify": "year", "values": ["1990"]}]), films().schema)
