"""Fixed rows through each operator: ONNX makes the features that polars makes, and a saved graph makes the same.

`tests/contract/test_runtimes.py` draws rows.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pipelines.features.graph import compile_graph, load_graph
from shared.contracts import features as contract
from shared.domain.pages import page_key
from tests.support.feature_runtimes import (
    CASES,
    GROUPS,
    KEYS,
    OPERATORS,
    TABLES,
    Values,
    assert_onnx_equals_polars,
    fitted,
    prepared,
    rows_of,
)

LARGEST = 2**63 - 1
FILMS: Values = [
    {"word": "b", "other": "a", "number": 3, "price": 2.5, "tags": ["a", "b"], "ids": [1, 2], "said": "a|b", "text": "#a and #B"},
    {"word": None, "other": "b", "number": None, "price": None, "tags": None, "ids": None, "said": None, "text": None},
    {"word": "ü", "other": "b", "number": LARGEST, "price": -7.25, "tags": [None, "日本"], "ids": [LARGEST], "said": "ü", "text": ""},
    {"word": "b", "other": "", "number": -1, "price": math.nan, "tags": [], "ids": [], "said": "", "text": "35 mm, 50 mm"},
    {"word": "new", "other": None, "number": 7, "price": 1e30, "tags": list("abcab"), "ids": [1, -LARGEST], "said": "b|c", "text": "#new"},
    {"word": "", "other": "ü", "number": 2**53 + 1, "price": -0.0, "tags": [""], "ids": [None, 2], "said": "|", "text": "no 7 mm #日本"},
]
for at, film in enumerate(FILMS):
    film["item_vector"] = None if at == 1 else [float(at), -0.5, 0.0]
SEEN: Values = [
    {
        "user": at % 4 + 1,
        "item": (at * 5 + at // 3) % 6,
        "time": at * 40_000 + at % 3,
        "label": int(at % 3 != 1),
        "spent": at / 4 if at % 5 else None,
    }
    for at in range(24)
]
SEEN += [
    {"user": LARGEST, "item": 2, "time": -86_401, "label": 1, "spent": 2.0},
    {"user": 1, "item": 0, "time": 2, "label": 0, "spent": None},
]
NEW: Values = [
    {"user": 9, "item": 5, "time": 2_000_000_000, "label": 0, "spent": 1.0},
    {"user": 1, "item": 4, "time": 960_000, "label": 1, "spent": None},
    {"user": LARGEST, "item": 3, "time": 960_001, "label": 0, "spent": 0.5},
]
PAGES = ["home", "cart", "日本", "home", "7", "cart"] * 2
VIEWED: Values = [{"user": at % 3 + 1, "item": page_key(page), "time": at * 61_000 + 1} for at, page in enumerate(PAGES)]


def test_every_operator_is_compared() -> None:
    assert {kind for entries in CASES.values() for entry in entries for kind in entry} >= set(contract._KINDS)


@pytest.mark.requirement("G-14", "G-15", "T-04", "T-05", "T-06")
@pytest.mark.parametrize("operator", GROUPS)
def test_onnx_makes_the_features_of_polars(operator: str, subtests: pytest.Subtests) -> None:
    for case in GROUPS[operator]:
        with subtests.test(case):
            assert_onnx_equals_polars(CASES[case], SEEN, NEW, FILMS, VIEWED)


@pytest.mark.requirement("T-06")
def test_a_graph_that_was_saved_and_read_makes_the_same_features(tmp_path: Path) -> None:
    users = [1, 2, 1, 3, 1, 2] * 5
    rows = rows_of([{"user": user, "item": at % 5, "time": at * 7777, "label": at % 2, "spent": at / 4} for at, user in enumerate(users)])
    words = {"word": "a", "other": "b", "said": "a|b", "text": "#a 35 mm"}
    films = [
        words | {"number": at % 3, "price": at / 3, "tags": ["a", "c"][: at % 3], "ids": [at, 1], "item_vector": [float(at), 1.0, 2.0]}
        for at in range(6)
    ]
    for number, (case, entries) in enumerate(CASES.items()):
        graph = fitted(compile_graph(OPERATORS.validate_python([KEYS, *entries]), TABLES), rows, films)
        folder = tmp_path / str(number)
        folder.mkdir()
        files = graph.save(folder)
        again = load_graph(files.__getitem__)
        asked = prepared(graph, rows, films)
        assert again.transform(asked).collect().equals(graph.transform(asked).collect()), case
        assert again.lower().SerializeToString() == graph.lower().SerializeToString(), case
