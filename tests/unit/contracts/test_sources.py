"""Where rows may be said to be."""

from __future__ import annotations

import pytest

from shared.contracts.sources import Place
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
from shared.domain.errors import Invalid

PLACES = [
    {"uri": "a.csv"},
    {"uri": "s3://lake/a/", "names": {"userId": "the user"}},
    {"query": "WITH x AS (SELECT 1) SELECT * FROM x", "from": "shop"},
]


@pytest.mark.requirement("G-29")
def test_a_place_is_files_or_a_query(subtests: pytest.Subtests) -> None:
    for place in PLACES:
        with subtests.test(place=place):
            found = read(Place, place, "spec")
            assert {name: value for name, value in found.model_dump(by_alias=True).items() if value} == place


INVALID_PLACES = [
    ({}, "set either uri, or query and from$"),
    ({"uri": "a.csv", "query": "SELECT 1", "from": "shop"}, "either uri, or query and from, not both"),
    ({"query": "SELECT 1"}, "'from' is missing; set the name of a database"),
    ({"uri": "a.csv", "from": "shop"}, "'query' is missing; 'from' needs it"),
    ({"query": "SELECT 1; SELECT 2", "from": "shop"}, "query: expected one SELECT, without ';'"),
    ({"query": "DROP TABLE t", "from": "shop"}, "query: begins with 'DROP'"),
    ({"query": "SELECT 1", "from": "postgresql://reader:hush@host/shop"}, "from: expected the name of a database"),
    ({"uri": "a.csv", "names": {"a": "x", "b": "x"}}, "names: two columns have the name 'x'"),
    ({"uri": "a.csv", "names": {"no name": "x"}}, "expected a column's name"),
]


def test_a_place_that_says_too_little_or_too_much_is_refused(subtests: pytest.Subtests) -> None:
    for place, said in INVALID_PLACES:
        with subtests.test(place=place), pytest.raises(Invalid, match=said):
            read(Place, place, "spec")


def test_a_spec_with_queries_is_read_back_from_its_own_document() -> None:
    data = {
        "interactions": {"query": "SELECT * FROM did", "from": "shop", "also": "events"},
        "items": {"uri": "i.csv", "key": "movieId"},
        "users": {"query": "SELECT * FROM users", "from": "shop", "key": "id"},
    }
    schema = {"user": "userId", "item": "movieId", "time": "t", "label": {"column": "rating", "positive": ">= 4"}}
    spec = read(RecommenderSpec, {"name": "m", "data": data, "schema": schema}, "spec")
    assert read(RecommenderSpec, spec.document(), "spec") == spec
    assert [place.label for place in spec.data.places().values()] == ["query of shop", "i.csv", "query of shop"]
