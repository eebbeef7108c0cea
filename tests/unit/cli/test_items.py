"""`eyas items`: the catalogue by hand."""

from __future__ import annotations

import json

import pytest

from services.cli import files

VIEW = {"item": 1, "attributes": {"age": 3}, "available": True, "revision": 1, "updated_at": "2026-01-01T00:00:00Z"}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "items.jsonl"

    def written(*lines):
        path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
        return path

    return written


@pytest.mark.requirement("G-02")
def test_items_are_sent_by_line_in_batches(platform, eyas, file, monkeypatch):
    monkeypatch.setattr(files, "AT_ONCE", 2)
    platform.says("PUT /v1/items/m", {"accepted": 2, "changed": 2}, {"accepted": 1, "changed": 0})
    found = eyas("items", "put", "m", file({"item": 1, "attributes": {"t": "\u00e4"}}, "", {"item": 2}, {"item": 3}))
    assert found.stdout == "m: 3 items written, 2 of them changed\n"
    assert [request.headers["content-type"] for request in platform.asked] == ["application/x-ndjson"] * 2
    assert [[json.loads(line)["item"] for line in request.content.splitlines()] for request in platform.asked] == [[1, 2], [3]]


def test_batches_keep_below_what_the_platform_reads(platform, eyas, file, monkeypatch):
    monkeypatch.setattr(files, "BYTES", 40)
    platform.says("POST /v1/items/m", {"accepted": 1, "changed": 1})
    assert eyas("items", "put", "m", file(*({"item": n, "available": False} for n in range(3))), "--partial").exit_code == 0
    assert len(platform.asked) == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "items.jsonl:2: not JSON"),
        ({"item": 1.5}, "items.jsonl:2: item: expected an id"),
        ({"item": 1, "attributes": {"a": {}}}, "items.jsonl:2: a: expected a number"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_sent(platform, eyas, file, line, said):
    found = eyas("items", "put", "m", file({"item": 1}, line))
    assert found.exit_code == 2
    assert said in found.stderr
    assert platform.asked == []


def test_what_was_written_before_a_refusal_is_said(platform, eyas, file, monkeypatch):
    monkeypatch.setattr(files, "AT_ONCE", 1)
    answers = iter([{"accepted": 1, "changed": 1}])
    platform.says("PUT /v1/items/m", lambda _: next(answers))
    platform.answers["PUT /v1/items/m"].append((422, {"type": "x/invalid", "detail": "line 1: no"}))
    found = eyas("items", "put", "m", file({"item": 1}, {"item": 2}))
    assert found.exit_code == 2
    assert "invalid: line 1: no (counted from item 2 of" in found.stderr


def test_an_empty_file_asks_all_the_same_so_that_a_wrong_name_is_said(platform, eyas, file):
    platform.refuses("PUT /v1/items/m", 404, "not-found", "no recommender is called 'm'")
    found = eyas("items", "put", "m", file())
    assert (found.exit_code, "no recommender is called 'm'" in found.stderr) == (2, True)


def test_items_are_listed_page_after_page_and_shown(platform, eyas):
    platform.says("GET /v1/items/m", {"items": [VIEW], "next": "c"}, {"items": [{**VIEW, "item": 2, "available": False}], "next": None})
    lines = eyas("items", "list", "m").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["ITEM", "AVAILABLE"], ["1", "yes"], ["2", "no"]]
    assert platform.asked[1].url.params["cursor"] == "c"
    platform.says("GET /v1/items/m/1", VIEW)
    assert json.loads(eyas("items", "get", "m", 1, "--json").stdout) == VIEW
    assert eyas("items", "get", "m", 1).stdout.startswith("item 1: available, changed 2026-01-01 00:00:00\nATTRIBUTE")


def test_a_list_that_was_cut_says_so(platform, eyas):
    platform.says("GET /v1/items/m", {"items": [VIEW], "next": "c"})
    found = eyas("items", "list", "m", "--limit", 1, "--json")
    assert json.loads(found.stdout) == {"items": [VIEW], "next": "c"}
    found = eyas("items", "list", "m", "--limit", 1)
    assert "there are more" in found.stderr


def test_items_are_deleted(platform, eyas):
    platform.says("POST /v1/items/m:delete", {"deleted": 1})
    assert eyas("items", "delete", "m", 1, 2).stdout == "m: 1 of 2 items deleted\n"
    assert platform.body == {"items": [1, 2]}
