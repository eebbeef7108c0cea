"""Output of a notebook: small tables of escaped text, without scripts and without anything from elsewhere."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from eyas_client import answers
from eyas_client.answers import Kpis, Page, Recommendations, Rollout, Rows, Run, Version

from tests.support.openapi_samples import sample, schema
from tests.unit.client.test_openapi import SCHEMAS, models

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"
TAGS = {"table", "caption", "thead", "tbody", "tr", "th", "td"}


def example(name: str) -> Any:
    return sample(schema(SCHEMAS[name]))


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[Any] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def hostile(value: Any) -> Any:
    """The document with hostile text in place of each text, and as a name of each object with free names."""
    if isinstance(value, str):
        return value if value[:4].isdecimal() and "T" in value else HOSTILE
    if isinstance(value, list):
        return [hostile(member) for member in value]
    if isinstance(value, dict):
        return {name: hostile(member) for name, member in value.items()}
    return value


SHOWN = [name for name, kind in models().items() if hasattr(kind, "_repr_html_")]


@pytest.mark.parametrize("name", SHOWN)
def test_every_text_of_the_platform_is_escaped(name: str) -> None:
    answer = getattr(answers, name).model_validate(hostile(example(name)))
    shown = Tags(answer._repr_html_())
    assert shown.tags <= TAGS
    assert shown.tags >= {"table", "td"}
    assert shown.attributes == []
    rows = answer if isinstance(answer, answers.Row) else None
    if rows is not None:
        listed = Tags(Rows(HOSTILE, type(rows).columns, [rows])._repr_html_())
        assert (listed.tags <= TAGS, listed.attributes) == (True, [])
        assert any(HOSTILE in text for text in listed.texts)


def test_what_the_tables_show() -> None:
    assert {"Recommendations", "Run", "Version", "Rollout", "Kpis", "Drift", "Recommender"} <= set(SHOWN)
    items = [{"item": 50, "score": 0.93456}, {"item": "a", "score": None}]
    answer = {"request_id": "q1", "recommender": "movies", "version": 3, "variant": "stable", "items": items, "fallback": None}
    shown = ["movies: version 3 (stable)", "place", "item", "score", "1", "50", "0.9346", "2", "a", "-"]
    assert Tags(Recommendations.model_validate(answer)._repr_html_()).texts == shown
    slots = Tags(Recommendations.model_validate({**answer, "fallback": "unknown user", "slots": {"hero": items}})._repr_html_()).texts
    assert slots[0] == "movies: version 3 (stable), fallback: unknown user, slot hero"
    run = Tags(Run.model_validate(example("Run") | {"version": 7})._repr_html_()).texts
    assert run[:5] == ["run", "field", "value", "id", "text"]
    assert (run[run.index("version") + 1], "gates" in run) == ("7", True)
    kpis = Tags(Kpis.model_validate(example("Kpis"))._repr_html_()).texts
    assert kpis[:3] == ["KPIs of the last text", "version", "answers"]
    for row_type in (Version, Rollout):
        rows = [row_type.model_validate(example(row_type.__name__) | {"version": version}) for version in (41, 42)]
        texts = Tags(Rows("rows", row_type.columns, rows)._repr_html_()).texts
        assert (texts[0], {"41", "42"} <= set(texts)) == ("rows: 2", True)
    assert Tags(Rows("runs", Run.columns)._repr_html_()).texts[0] == "runs: 0"


def test_ids_keep_their_kind_and_new_fields_are_kept() -> None:
    items = [{"item": 1, "score": None, "colour": "red"}, {"item": "1", "score": 0.5}]
    answer = Recommendations.model_validate(example("Recommendations") | {"items": items, "new_field": {"a": 1}})
    assert [item.item for item in answer.items] == [1, "1"]
    assert answer.model_dump()["new_field"] == {"a": 1}
    assert answer.items[0].model_extra == {"colour": "red"}
    page = Page[Run].model_validate({"items": [example("Run")], "next": None, "total": 9})
    assert page.model_extra == {"total": 9}
