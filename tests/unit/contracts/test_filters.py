"""The spec's `serve.filter`: short to write, checked where it is applied, and what it was before is still read."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from shared.contracts.serving import window
from shared.contracts.spec import parse_spec
from shared.domain.errors import Invalid

DEFAULT = [{"not_seen": "ever"}, {"available": True}]


def spec(**serve):
    document = {
        "name": "m",
        "data": {"interactions": {"uri": "a.csv"}, "items": {"uri": "b.csv", "key": "movieId"}},
        "schema": {"user": "userId", "item": "movieId", "time": "t", "label": {"column": "rating", "positive": ">= 4"}},
        "serve": serve,
    }
    return parse_spec(json.dumps(document))


@pytest.mark.requirement("G-02")
def test_a_filter_is_kept_as_it_was_written():
    entries = [{"not_seen": "30d"}, {"available": True}, "age_rating <= user.age"]
    found = spec(filter=entries, attributes={"age_rating": "number"})
    assert found.document()["serve"]["filter"] == entries
    assert window(found.serve.not_seen) == timedelta(days=30)
    assert [one.text for one in found.serve.expressions()] == ["age_rating <= user.age"]


def test_what_was_liked_and_what_is_unavailable_is_dropped_unless_told_otherwise():
    found = spec()
    assert found.document()["serve"]["filter"] == DEFAULT
    assert (window(found.serve.not_seen), found.serve.only_available) == (None, True)
    found = spec(filter=[])
    assert (found.serve.not_seen, found.serve.only_available) == (None, False)


def test_the_field_that_it_replaces_is_refused_with_the_new_name():
    for former in ({"seen": "drop"}, {"seen": "keep", "filter": []}):
        with pytest.raises(Invalid, match=r"serve.*'seen' is replaced by 'filter'; write filter: \[{not_seen: ever}, {available: true}\]"):
            spec(**former)
    assert spec(filter=[{"not_seen": "ever"}, {"available": True}]) == spec()


INVALID_FILTERS = [
    ({"filter": "available"}, "serve.filter: expected a list"),
    ({"filter": [3]}, "serve.filter.0: expected one filter such as {not_seen: 30d}, or an expression"),
    ({"filter": [{"not_sen": "3d"}]}, "serve.filter.0: unknown filter 'not_sen': did you mean 'not_seen'?"),
    ({"filter": [{"not_seen": "soon"}]}, "serve.filter.0.not_seen: expected a duration such as 30d, or 'ever', got 'soon'"),
    ({"filter": [{"available": False}]}, "serve.filter.0.available: expected True, got false"),
    ({"filter": DEFAULT * 2}, "filter: 'not_seen' is listed twice"),
    ({"filter": ["available"] * 33}, "serve.filter: expected at most 32 entries, got 33"),
    ({"filter": ["available", "price = 3"]}, "serve.filter.1: 'price = 3', column 7: '=' is not a sign of the filter language"),
    ({"filter": ["a < 3", "a == 'x'"]}, "serve: filter: \"a == 'x'\", column 3: '==' compares 'a' (a number) with 'x' (a text)"),
    ({"filter": ["pric < 3"], "attributes": {"price": "number"}}, "serve.attributes declares no 'pric': did you mean 'price'?"),
    ({"filter": ["a < user.ag"], "context": {"age": "number"}}, "serve.context declares no 'ag': did you mean 'age'?"),
    ({"attributes": {"a b": "number"}}, "serve.attributes: 'a b' is not an attribute name"),
    ({"attributes": {"a": "integer"}}, "serve.attributes.a: expected 'number', 'text', 'boolean', 'numbers' or 'texts'"),
    ({"attributes": {"available": "boolean"}}, "'available' is a built-in attribute"),
    ({"attributes": {f"a{n}": "text" for n in range(51)}}, "serve.attributes: expected at most 50"),
]


def test_a_filter_that_cannot_be_meant_is_refused_with_its_place(subtests):
    for serve, said in INVALID_FILTERS:
        with subtests.test(serve=serve):
            with pytest.raises(Invalid) as fault:
                spec(**serve)
            assert said in str(fault.value)
