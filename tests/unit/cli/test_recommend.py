"""`eyas recommend`, `similar` and `events`."""

from __future__ import annotations

import json

import pytest


def test_recommend_says_who_answered_and_whether_it_fell_back(platform, eyas):
    answer = {"request_id": "q1", "version": 1, "variant": "stable", "items": [{"item": 7, "score": None}], "fallback": "unknown user"}
    platform.says("POST /v1/recommend/m", answer)
    shown = eyas("recommend", "m", 5, "-k", 1).stdout
    assert "fallback: unknown user" in shown
    assert platform.body == {"user": 5, "k": 1}


def test_an_explained_answer_says_what_each_stage_did_and_why_items_stand_there(platform, eyas):
    told = {
        "milliseconds": {"score": 3.5},
        "together": 1,
        "retrieved": 500,
        "filtered": 23,
        "scored": True,
        "explored": None,
        "rules": [["pinned at 1: 7"]],
    }
    answer = {
        "request_id": "q1",
        "version": 1,
        "variant": "stable",
        "items": [{"item": 7, "score": 0.5}],
        "fallback": None,
        "explain": told,
    }
    platform.says("POST /v1/recommend/m", answer)
    shown = eyas("recommend", "m", 5, "--explain").stdout
    assert "500 candidates, 23 filtered; score 3.5 ms" in shown
    assert "pinned at 1: 7" in shown


def test_similar_lists_items_by_their_likeness(platform, eyas):
    platform.says("POST /v1/similar/m", {"version": 3, "items": [{"item": 7, "score": 0.75}]})
    assert "0.75" in eyas("similar", "m", 5, "-k", 1).stdout
    assert platform.body == {"item": 5, "k": 1}


def test_events_are_sent_in_batches_under_the_name(platform, eyas, tmp_path):
    file = tmp_path / "e.jsonl"
    file.write_text("".join(json.dumps({"user": n, "item": 1}) + "\n" for n in range(1500)) + "\n")
    platform.says("POST /v1/events", taken(1000, 3), taken(500, 1), status=202)
    assert eyas("events", "m", file).stdout == "m: 1500 events accepted, 4 answers became hits\n"
    assert [len(json.loads(request.content)["events"]) for request in platform.asked] == [1000, 500]
    assert platform.body["events"][0] == {"recommender": "m", "user": 1000, "item": 1}


def taken(accepted, hits, duplicates=0):
    return {"accepted": accepted, "hits": hits, "duplicates": duplicates}


def test_what_was_known_already_or_is_found_out_later_is_said(platform, eyas, tmp_path):
    file = tmp_path / "e.jsonl"
    shown = {"kind": "impression", "user": 1, "items": [1, 2], "request_id": "p"}
    file.write_text(json.dumps(shown) + "\n" + json.dumps({"user": 1, "item": 1, "id": "a", "request_id": "p"}) + "\n")
    platform.says("POST /v1/events", taken(2, 0, 2), taken(2, None, None), status=202)
    assert eyas("events", "m", file).stdout == "m: 2 events accepted, 2 of them duplicates, 0 answers became hits\n"
    assert platform.body["events"][0] == shown | {"recommender": "m"}
    assert eyas("events", "m", file).stdout == "m: 2 events accepted, hits are counted in a moment\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object"),
        ('{"user": 1}', "item: field required"),
        ('{"user": 1, "item": 1, "recommender": "x"}', "'x'"),
    ],
)
def test_a_bad_line_is_named_by_its_number_before_anything_is_sent(platform, eyas, tmp_path, line, said):
    file = tmp_path / "e.jsonl"
    file.write_text('{"user": 1, "item": 2}\n' + line + "\n")
    result = eyas("events", "m", file)
    assert result.exit_code == 2
    assert f"{file}:2: " in result.stderr
    assert said in result.stderr
    assert platform.asked == []
