"""YAML from clients: what a document may cost to read is bounded before it is read."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from yaml._yaml import CParser

from shared.contracts import yaml12
from shared.contracts.spec import MAX_SPEC, parse_spec
from shared.contracts.yaml12 import MAX_DEPTH, MAX_NODES, load
from shared.domain.errors import Invalid

pytestmark = pytest.mark.requirement("U-13")

LARGE = {
    "scalars of a list": "[" + ",".join(["a"] * 32_000) + "]",
    "empty lists": "[" + ",".join(["[]"] * 21_000) + "]",
    "lines of a list": "- a\n" * 16_000,
    "names of a mapping": "{" + ",".join(f"a{n}: 1" for n in range(6_000)) + "}",
    "merged mappings": "{<<: [" + ",".join(f"{{a{n}: 1}}" for n in range(4_500)) + "]}",
}
DEEP = {
    "lists in brackets": "[" * 32_000 + "]" * 32_000,
    "lists by dashes": "- " * 32_000,
    "mappings": "{a: " * 10_000 + "1" + "}" * 10_000,
    "keys that are mappings": "? " * 32_000,
    "merged mappings": "{<<: " * 8_000 + "{}" + "}" * 8_000,
}


@pytest.fixture
def events(monkeypatch):
    """How many events the parser was asked for."""
    asked = Counter()
    get_event = yaml12._Loader.get_event

    def count(loader):
        asked["events"] += 1
        return get_event(loader)

    monkeypatch.setattr(yaml12._Loader, "get_event", count)
    return asked


def test_a_document_with_too_many_values_is_refused_while_it_is_read(events, subtests):
    for what, text in LARGE.items():
        with subtests.test(what=what):
            events.clear()
            assert len(text) < MAX_SPEC
            with pytest.raises(Invalid, match=f"^spec: more than {MAX_NODES} values"):
                parse_spec(text)
            assert events["events"] <= 2 * MAX_NODES + 10


def test_a_document_that_is_nested_too_deep_is_refused_where_it_becomes_so(events, subtests):
    for what, text in DEEP.items():
        with subtests.test(what=what):
            events.clear()
            with pytest.raises(Invalid, match=f"^spec: values nested more than {MAX_DEPTH} deep"):
                parse_spec(text)
            assert events["events"] <= 3 * MAX_DEPTH + 10


def test_a_document_at_the_limits_is_read():
    assert load(json.dumps([1] * (MAX_NODES - 1)), "a list", MAX_NODES) == [1] * (MAX_NODES - 1)
    deep = load("[" * MAX_DEPTH + "]" * MAX_DEPTH, "a list", MAX_NODES)
    for _ in range(MAX_DEPTH - 1):
        (deep,) = deep
    assert deep == []


def test_a_file_of_the_operators_own_may_have_more_values():
    assert len(load(json.dumps([1] * 3 * MAX_NODES), "a file")) == 3 * MAX_NODES


def test_libyaml_reads_the_text():
    """The parser of pure Python takes eight times as long."""
    assert yaml12._Loader.check_event is CParser.check_event


def test_columns_are_compared_once_each(monkeypatch):
    """A list that is searched for each of its 7,000 names takes seconds."""
    names = ", ".join(f"c{n}" for n in range(7_000))
    spec = parse_spec(
        f"""
        name: wide
        data: {{interactions: {{uri: a.csv}}, items: {{uri: b.csv, key: movieId}}}}
        schema: {{user: userId, item: movieId, time: t, label: {{column: rating, positive: ">= 4"}}}}
        features: [{{categorify: [userId, movieId, {names}]}}]
        """
    )
    compared = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    operator = spec.features[0]
    columns = tuple(map(Name, operator.categorify))
    monkeypatch.setattr(type(spec), "operators", lambda spec: (operator.model_copy(update={"categorify": columns}),))
    type(spec)._check_columns(spec)
    assert compared < 10 * len(columns)


def test_a_clients_document_is_read_with_pauses_and_an_operators_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads of the process run in them."""
    pauses: list[float] = []
    monkeypatch.setattr("shared.contracts.yaml12.time.sleep", pauses.append)
    text = f"[{', '.join('1' * 2000)}]"
    assert load(text, "spec", 10_000) == [1] * 2000
    assert len(pauses) == (4002 - 1000) // 50, "each of 2,001 values is composed and constructed"
    pauses.clear()
    assert load(f"[{', '.join('1' * 400)}]", "spec", 10_000) == [1] * 400
    assert pauses == [], "a usual spec"
    assert load(text, "spec") == [1] * 2000
    assert pauses == []
