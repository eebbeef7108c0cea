"""`eyas export-events`: all pages in one file, or none."""

from __future__ import annotations

import json

EVENTS = [{"id": f"e{n}", "recommender": "m", "user": "é", "item": n, "at": "2026-01-01T00:00:00Z"} for n in range(3)]


def test_all_pages_are_written_to_one_file(platform, eyas, tmp_path):
    platform.says("GET /v1/events/m", {"items": EVENTS[:2], "next": "more"}, {"items": EVENTS[2:]})
    path = tmp_path / "events.jsonl"
    assert eyas("export-events", "m", str(path)).stdout == f"m: 3 events written to {path}\n"
    assert [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] == EVENTS
    assert [request.url.params.get("cursor") for request in platform.asked] == [None, "more"]


def test_a_fault_in_between_leaves_no_file(platform, eyas, tmp_path):
    answers = iter([{"items": EVENTS, "next": "more"}])
    platform.says("GET /v1/events/m", lambda _: next(answers))
    assert eyas("export-events", "m", str(tmp_path / "events.jsonl")).exit_code != 0
    assert not list(tmp_path.glob("events*"))
    assert "cannot be written" in eyas("export-events", "m", str(tmp_path / "no" / "events.jsonl")).stderr


def test_no_events_are_an_empty_file(platform, eyas, tmp_path):
    platform.says("GET /v1/events/m", {"items": []})
    path = tmp_path / "events.jsonl"
    assert json.loads(eyas("export-events", "m", str(path), "--json").stdout) == {"recommender": "m", "events": 0, "file": str(path)}
    assert path.read_text() == ""
