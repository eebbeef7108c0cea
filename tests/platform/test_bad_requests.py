"""Bad requests to a platform as users have it, over HTTP: each is refused by one clear line, nothing of it is a fault of the
platform's, and the next good request is answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.rollout_world import NAME, World
from shared.domain.route import Route
from tests.servers.platform_process import PlatformProcess, until

JSON, NDJSON = "application/json", "application/x-ndjson"
RECOMMEND, EVENTS, ITEMS, SPECS = f"/v1/recommend/{NAME}", "/v1/events", f"/v1/items/{NAME}", "/v1/recommenders"
GOOD: dict[str, Any] = {"recommender": NAME, "user": 1, "item": 2}
TEN_MEGABYTES = 10 << 20


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    home = tmp_path_factory.mktemp("platform") / "home"
    world = World(home, 100, {})
    world.serve(Route(world.version()))
    with PlatformProcess(home, home) as running:
        until("the first answer", lambda: answered(running))
        yield running
        assert "unexpected error" not in running.log
        assert "Traceback" not in running.log
    world.close()


def answered(platform: PlatformProcess) -> bool:
    found = platform.client.post(RECOMMEND, json={"user": 1})
    return found.is_success and found.json()["fallback"] is None


def send(platform: PlatformProcess, path: str, content: Any, kind: str = JSON) -> Any:
    return platform.client.post(path, content=content, headers={"Content-Type": kind})


def refused(response: Any, status: int, *words: str) -> str:
    """One line, as a problem, with no more of the inside than the reader can use."""
    assert response.status_code == status, response.text[:500]
    assert response.headers["content-type"] == "application/problem+json"
    said: str = response.json()["detail"]
    assert said
    assert len(said) < 2000
    assert not set("\n\r") & set(said)
    assert "Traceback" not in said
    assert "pydantic" not in said
    for word in words:
        assert word in said, said
    return said


def asking(**changes: Any) -> bytes:
    return json.dumps({"user": 1} | changes).encode()


ASKED: dict[str, tuple[bytes, int, tuple[str, ...]]] = {
    "k of nought": (asking(k=0), 422, ("k: ", "1")),
    "k below nought": (asking(k=-1), 422, ("k: ", "1")),
    "a huge k": (asking(k=1001), 422, ("k: ", "1000")),
    "k beyond every number": (b'{"user": 1, "k": 1' + b"0" * 4000 + b"}", 422, ("k: ",)),
    "k with more digits than are read": (b'{"user": 1, "k": 1' + b"0" * 5000 + b"}", 400, ()),
    "k as text": (asking(k="x"), 422, ("k: ", "'x'")),
    "half a k": (asking(k=1.5), 422, ("k: ",)),
    "no k": (asking(k=None), 422, ("k: ",)),
    "k as a list": (asking(k=[10]), 422, ("k: ",)),
    "k that is no number": (b'{"user": 1, "k": NaN}', 422, ("k: ",)),
    "no user": (b"{}", 422, ("user: ",)),
    "a user's name": (asking(user="ada"), 422, ("user: ", "'ada'")),
    "a user that is no number": (b'{"user": NaN}', 422, ("user: ",)),
    "a user without end": (b'{"user": Infinity}', 422, ("user: ",)),
    "a user beyond 64 bits": (asking(user=2**63), 422, ("user: ",)),
    "true as a user": (asking(user=True), 422, ("user: ",)),
    "an unknown field": (asking(users=[1]), 422, ("users",)),
    "a field of another request": (asking(item=3), 422, ("item",)),
    "excluded texts": (asking(exclude=["a"]), 422, ("exclude.0: ",)),
    "too much excluded": (asking(exclude=[1] * 10_001), 422, ("exclude: ", "10000")),
    "an excluded item that is no number": (b'{"user": 1, "exclude": [NaN]}', 422, ("exclude.0: ",)),
    "a context that is none": (asking(context=[1]), 422, ("context: ",)),
    "a context in a context": (asking(context={"a": {"b": 1}}), 422, ("context: ", "a: ")),
    "a context of a number that is none": (b'{"user": 1, "context": {"a": NaN}}', 422, ("context: ", "a: ")),
    "a context with too many names": (asking(context={f"n{at}": at for at in range(51)}), 422, ("context: ", "51")),
    "a context with a NUL": (asking(context={"a": "\0"}), 422, ("context", "NUL")),
    "nothing": (b"", 422, ()),
    "a list": (b"[]", 422, ("object",)),
    "null": (b"null", 422, ()),
    "half of it": (b'{"user": 1', 400, ("JSON",)),
    "no JSON": (b"user=1", 400, ("JSON",)),
    "no text": (b'{"user": "\xff"}', 400, ("JSON",)),
    "nested deeply": (b'{"user": 1, "context": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", 400, ("JSON",)),
}


@pytest.mark.requirement("G-01")
def test_a_bad_question_is_refused_by_the_field_and_the_next_good_one_is_answered(
    platform: PlatformProcess, subtests: pytest.Subtests
) -> None:
    for name, (body, status, words) in ASKED.items():
        with subtests.test(msg=name):
            refused(send(platform, RECOMMEND, body), status, *words)
            assert answered(platform)


def test_an_unknown_recommender_is_not_there(platform: PlatformProcess, subtests: pytest.Subtests) -> None:
    for name in ("nobody", "x" * 64, "x" * 65, "No-Name", "a%00b", "..%2f..%2fetc%2fpasswd", "%F0%9F%98%80"):
        with subtests.test(msg=name):
            refused(send(platform, f"/v1/recommend/{name}", asking()), 404)


def test_a_question_may_not_be_asked_otherwise(platform: PlatformProcess) -> None:
    refused(platform.client.get(RECOMMEND), 405, "POST")
    refused(platform.client.post(f"{RECOMMEND}?k=5", content=asking(), headers={"Content-Type": JSON}), 422, "k")
    refused(send(platform, RECOMMEND, asking(), "text/plain"), 415, JSON)
    refused(platform.client.post(RECOMMEND, content=asking(), headers={"Content-Type": JSON, "Authorization": "Bearer x"}), 401)


BATCHES: dict[str, tuple[bytes, int, tuple[str, ...]]] = {
    "no events": (b"{}", 422, ("events: ",)),
    "events that are none": (b'{"events": {"user": 1}}', 422, ("events: ", "list")),
    "an unknown field beside them": (b'{"events": [], "event": []}', 422, ("event: ",)),
    "an unknown field of the third": (json.dumps({"events": [GOOD, GOOD, GOOD | {"vaule": 1}]}).encode(), 422, ("events.2", "vaule")),
    "a user's name": (json.dumps({"events": [GOOD | {"user": "ada"}]}).encode(), 422, ("events.0.user: ",)),
    "a value that is no number": (b'{"events": [{"recommender": "films", "user": 1, "item": 2, "value": NaN}]}', 422, ("events.0.value",)),
    "a time without a zone": (json.dumps({"events": [GOOD | {"at": "2026-01-01T00:00:00"}]}).encode(), 422, ("events.0.at: ",)),
    "a time to come": (json.dumps({"events": [GOOD | {"at": "2999-01-01T00:00:00Z"}]}).encode(), 422, ("events.0.at: ",)),
    "a kind that there isn't": (json.dumps({"events": [GOOD | {"kind": "clicked"}]}).encode(), 422, ("events.0.kind: ",)),
    "an unknown recommender": (json.dumps({"events": [GOOD, GOOD | {"recommender": "nobody"}]}).encode(), 422, ("events.1", "nobody")),
    "1001 of them": (json.dumps({"events": [GOOD] * 1001}).encode(), 422, ("events: ", "1000")),
    "half of it": (b'{"events": [', 400, ("JSON",)),
    "nested deeply": (b'{"events": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", 400, ("JSON",)),
}


@pytest.mark.requirement("G-05")
def test_a_bad_batch_is_refused_whole_by_event_and_field(platform: PlatformProcess, subtests: pytest.Subtests) -> None:
    before = stored(platform)
    for name, (body, status, words) in BATCHES.items():
        with subtests.test(msg=name):
            refused(send(platform, EVENTS, body), status, *words)
            assert stored(platform) == before


def stored(platform: PlatformProcess) -> float:
    text = platform.client.get(platform.metrics_url).text
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("eyas_interactions_total"))


BAD_LINES: dict[str, tuple[bytes, str]] = {
    "half of a line": (b'{"recommender": "films", "user": 1, "it', "not JSON"),
    "no JSON": (b"user=1", "not JSON"),
    "no text": (b'{"recommender": "\xff\xfe"}', "not JSON"),
    "a list": (b"[]", "object"),
    "a number": (b"7", "object"),
    "an unknown field": (json.dumps(GOOD | {"vaule": 1}).encode(), "vaule"),
    "an item's name": (json.dumps(GOOD | {"item": "x"}).encode(), "item: "),
    "a number that is none": (b'{"recommender": "films", "user": 1, "item": 2, "value": NaN}', ""),
    "a recommender that there isn't": (json.dumps(GOOD | {"recommender": "nobody"}).encode(), "recommender: "),
    "a time to come": (json.dumps(GOOD | {"at": "2999-01-01T00:00:00Z"}).encode(), "at: "),
    "nested deeply": (b"[" * 5_000 + b"]" * 5_000, "not JSON"),
    "a NUL": (json.dumps(GOOD | {"id": "a\0b"}).encode(), "NUL"),
}


@pytest.mark.requirement("G-05")
def test_a_bad_line_in_the_middle_is_named_and_the_others_are_taken(platform: PlatformProcess, subtests: pytest.Subtests) -> None:
    for name, (bad, said) in BAD_LINES.items():
        with subtests.test(msg=name):
            check_bad_line(platform, name, bad, said)


def check_bad_line(platform: PlatformProcess, name: str, bad: bytes, said: str) -> None:
    good = [json.dumps(GOOD | {"id": f"{name}-{at}"}).encode() for at in range(4)]
    sent = b"\n".join([*good[:2], bad, *good[2:]])
    found = send(platform, EVENTS, sent, NDJSON)
    assert found.status_code == 202, found.text
    assert (found.json()["accepted"], found.json()["duplicates"], found.json()["refused"]) == (4, 0, 1)
    (line,) = found.json()["lines"]
    assert line["line"] == 3
    assert said in line["message"]
    assert "\n" not in line["message"]
    again = send(platform, EVENTS, sent, NDJSON).json()
    assert (again["accepted"], again["duplicates"], again["refused"]) == (4, 4, 1), "what was good is there, and counts once"


def test_where_no_line_is_good_the_answer_is_an_error(platform: PlatformProcess) -> None:
    refused(send(platform, EVENTS, b"{\n{\n{", NDJSON), 422, "lines.1: not JSON")


LARGE: dict[str, tuple[str, bytes, str]] = {
    "a question": (RECOMMEND, asking(exclude=[1]).ljust(TEN_MEGABYTES), JSON),
    "a question of many items": (RECOMMEND, asking(exclude=[2**40] * 700_000), JSON),
    "a batch of events": (EVENTS, json.dumps({"events": [GOOD] * 200_000}).encode(), JSON),
    "lines of events": (EVENTS, (json.dumps(GOOD).encode() + b"\n") * 200_000, NDJSON),
    "one endless line": (EVENTS, b"x" * TEN_MEGABYTES, NDJSON),
    "items": (ITEMS, (b'{"item": 1, "attributes": {"a": 1}}\n') * 300_000, NDJSON),
    "a spec": (SPECS, b"name: " + b"x" * TEN_MEGABYTES, "application/yaml"),
}


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "in chunks"])
def test_ten_megabytes_are_refused(platform: PlatformProcess, announced: bool, subtests: pytest.Subtests) -> None:
    before = stored(platform)
    for name, (path, body, kind) in LARGE.items():
        with subtests.test(msg=name):
            assert len(body) > 8 << 20
            content = body if announced else (body[at : at + 65536] for at in range(0, len(body), 65536))
            refused(send(platform, path, content, kind), 413, "larger than", "in parts")
            assert stored(platform) == before
            assert answered(platform)
