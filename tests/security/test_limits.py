"""One client's token stalls nobody: attacks on a living platform, each refused with what it may do instead."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

from tests.security.fuzzing import platform
from tests.security.platform import NAME, TOKEN
from tests.servers.platform_process import until

pytestmark = [pytest.mark.requirement("U-13"), pytest.mark.timeout(300)]

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with platform(None, "--rates") as url:
        yield url


@pytest.fixture
def owner(url: str) -> Iterator[httpx.Client]:
    with client(url, TOKEN) as owner:
        yield owner


def client(url: str, token: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60)


@pytest.fixture
def holder(url: str, owner: httpx.Client, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """With a token of its own: what it spends is not missed by other tests."""
    name = request.node.name.replace("_", "-")[:50]
    made = owner.post("/v1/tokens", json={"name": name, "role": "operator"})
    with client(url, made.raise_for_status().json()["token"]) as holder:
        yield holder


def problem(response: httpx.Response, status: int, kind: str) -> str:
    assert response.status_code == status, response.text
    assert response.json()["type"].endswith(f"/{kind}")
    detail: str = response.json()["detail"]
    return detail


def test_a_large_context_is_refused_unread(holder: httpx.Client) -> None:
    body = json.dumps({"user": 7, "context": {f"n{number}": 1 for number in range(75_000)}}).encode()
    for path in (f"/v1/recommend/{NAME}", f"/v1/recommend/{NAME}?explain=true", f"/v1/similar/{NAME}"):
        assert "this route accepts at most 65536" in problem(holder.post(path, content=body, headers=JSON), 413, "too-large")
    many = {"user": 7, "context": {f"n{number}": 1 for number in range(600)}}
    assert "names; the limit is 500" in problem(holder.post(f"/v1/recommend/{NAME}", json=many), 422, "invalid")


def test_costly_yaml_is_refused_by_a_limit_that_it_names(holder: httpx.Client) -> None:
    for text, limit in (
        ("[" + ",".join(["a"] * 32_000) + "]", "more than 10000 values"),
        ("[" * 32_000 + "]" * 32_000, "nested more than 100 deep"),
        ("a: &a [1]\nb: *a\n", "aliases are not allowed; write the value out"),
    ):
        answer = holder.post("/v1/recommenders:validate", content=text, headers={"Content-Type": "application/yaml"})
        assert limit in problem(answer, 422, "invalid")


def test_lists_of_nothing_are_refused_on_every_route_that_reads_json(holder: httpx.Client) -> None:
    body = b'{"events": [' + b",".join([b"[]"] * 345_000) + b"]}"
    for method, path in (
        ("POST", "/v1/events"),
        ("POST", "/v1/alerts"),
        ("PUT", f"/v1/items/{NAME}"),
        ("POST", f"/v1/items/{NAME}"),
        ("PUT", f"/v1/features/{NAME}/user"),
    ):
        assert "more than 150000 values" in problem(holder.request(method, path, content=body, headers=JSON), 413, "too-large")


def test_a_token_that_validates_without_a_pause_is_held_up_and_nobody_else(holder: httpx.Client, owner: httpx.Client) -> None:
    text = b"name: x".ljust(64 * 1024)
    answers = [holder.post("/v1/recommenders:validate", content=text) for _ in range(80)]
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) == {422, 429}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert 1 <= int(refused.headers["Retry-After"]) <= 20
    assert "EYAS_CONTROL_RATE" in problem(refused, 429, "rate-limited")
    assert holder.get("/v1/whoami").status_code == 200
    assert holder.post(f"/v1/recommend/{NAME}", json={"user": 1}).status_code == 200
    assert owner.post("/v1/recommenders:validate", content=text).status_code == 422


def test_runs_that_nobody_waits_for_are_refused(holder: httpx.Client) -> None:
    held = until("there is a recommender", lambda: holder.get(f"/v1/recommenders/{NAME}").is_success)
    assert held
    answers = [holder.post(f"/v1/recommenders/{NAME}/runs", json={"fresh": True}) for _ in range(60)]
    assert {answer.status_code for answer in answers} == {202, 409}
    refused = next(answer for answer in answers if answer.status_code == 409)
    assert "at most 20 may wait" in problem(refused, 409, "queue-full")
    waiting = holder.get("/v1/runs", params={"recommender": NAME, "state": "pending", "limit": 100}).json()["items"]
    assert len(waiting) <= 20
    for run in waiting:
        holder.post(f"/v1/runs/{run['id']}:cancel", json={})


def test_a_flood_of_unknown_tokens_locks_out_nobody_who_is_known(url: str, owner: httpx.Client, holder: httpx.Client) -> None:
    assert holder.get("/v1/whoami").status_code == 200
    with httpx.Client(base_url=url, timeout=60) as stranger:
        statuses = Counter(
            stranger.get("/v1/whoami", headers={"Authorization": f"Bearer eyas_t{number:016d}_{'0' * 64}"}).status_code
            for number in range(400)
        )
    assert set(statuses) == {401, 429}
    assert [one.get("/v1/whoami").status_code for one in (holder, owner)] == [200, 200]
