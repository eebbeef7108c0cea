"""Retries: of requests that can be repeated only, with backoff or the platform's Retry-After, and with equal ids."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import httpx
import pytest
from eyas_client import AsyncClient, Client, Conflict, Invalid, Unavailable

from tests.support.openapi_samples import sample, schema
from tests.unit.client.conftest import Handler, problem

RUN = {**sample(schema("RunView")), "id": "r1", "state": "pending", "reason": ""}
ANSWER = {"request_id": "q1", "recommender": "movies", "version": 1, "variant": "stable", "items": [], "fallback": None}
ACCEPTED = {"accepted": 2, "duplicates": 0, "conflicts": 0, "hits": 1, "refused": 0, "lines": []}
Connect = Callable[..., Client]


class Script:
    """Answers one after the other, and the requests that got them. An exception is raised in place of an answer."""

    def __init__(self, *outcomes: httpx.Response | Exception) -> None:
        self.outcomes: Iterator[httpx.Response | Exception] = iter(outcomes)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        outcome = next(self.outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def ok(document: object) -> httpx.Response:
    return httpx.Response(200, json=document)


@pytest.mark.parametrize(
    "failure",
    [httpx.ConnectError("refused"), httpx.ReadTimeout("late"), httpx.RemoteProtocolError("cut"), problem(503), problem(429)],
    ids=lambda failure: type(failure).__name__ + str(getattr(failure, "status_code", "")),
)
def test_a_read_is_sent_again_after_a_growing_pause(connect: Connect, pauses: list[float], failure: httpx.Response | Exception) -> None:
    script = Script(failure, failure, failure, ok(RUN))
    assert connect(script).runs.get("r1").id == "r1"
    assert len(script.requests) == 4
    assert all(0.1 * 2**place <= pause <= 0.2 * 2**place for place, pause in enumerate(pauses))


def test_the_async_client_does_the_same(connect_async: Callable[[Handler], AsyncClient], pauses: list[float]) -> None:
    script = Script(httpx.ConnectError("refused"), problem(503, **{"Retry-After": "3"}), ok(RUN))
    run = asyncio.run(connect_async(script).runs.get("r1"))  # type: ignore[arg-type]
    assert (run.id, len(script.requests), pauses[1]) == ("r1", 3, 3)


def test_a_platform_that_stays_away_is_reported_after_the_last_retry(connect: Connect, pauses: list[float]) -> None:
    script = Script(*[problem(503)] * 6)
    with pytest.raises(Unavailable, match=r"^unavailable: the database is away$"):
        connect(script).runs.get("r1")
    assert (len(script.requests), len(pauses)) == (6, 5)
    script = Script(problem(503))
    with pytest.raises(Unavailable):
        connect(script, retries=0).runs.get("r1")


def test_retry_after_is_kept_and_a_long_one_is_left_to_the_caller(connect: Connect, pauses: list[float]) -> None:
    connect(Script(problem(429, **{"Retry-After": "7"}), ok(RUN))).runs.get("r1")
    assert pauses == [7]
    with pytest.raises(Unavailable):
        connect(Script(problem(429, **{"Retry-After": "3600"}))).runs.get("r1")
    assert pauses == [7]


@pytest.mark.parametrize("failure", [httpx.ReadError("cut"), problem(503), problem(429)])
def test_a_recommendation_is_asked_once_because_each_answer_is_logged(connect: Connect, failure: httpx.Response | Exception) -> None:
    script = Script(failure)
    with pytest.raises(Unavailable):
        connect(script).recommend("movies", 1)
    assert len(script.requests) == 1
    assert connect(Script(failure, ok(ANSWER))).recommend("movies", 1, trial=True).version == 1


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500, 502])
def test_other_answers_are_final(connect: Connect, status: int) -> None:
    script = Script(problem(status))
    with pytest.raises(Exception, match="the database is away"):
        connect(script).runs.get("r1")
    assert len(script.requests) == 1


def test_a_write_keeps_its_idempotency_key_and_waits_for_its_first_try(connect: Connect, pauses: list[float]) -> None:
    script = Script(httpx.ReadTimeout("late"), problem(409, "conflict", **{"Retry-After": "1"}), ok(RUN))
    client = connect(script)
    client.runs.start("movies")
    assert len({request.headers["Idempotency-Key"] for request in script.requests}) == 1
    assert len({request.content for request in script.requests}) == 1
    script.outcomes = iter([ok(RUN), problem(409, "conflict")])
    client.runs.start("movies")
    assert script.requests[-1].headers["Idempotency-Key"] != script.requests[0].headers["Idempotency-Key"]
    with pytest.raises(Conflict):
        client.runs.start("movies")


def sent(script: Script) -> list[list[dict[str, object]]]:
    return [json.loads(request.content)["events"] for request in script.requests]


def test_events_are_sent_again_with_the_same_ids(connect: Connect) -> None:
    script = Script(httpx.ReadError("cut"), ok(ACCEPTED))
    shown = {"kind": "impression", "user": 1, "items": [1], "request_id": "s"}
    events = [{"user": 1, "item": 2}, {"user": 1, "item": 3, "id": "own"}, shown]
    total = connect(script).events("movies", iter(events))
    first, second = sent(script)
    assert first == second
    assert first[0].keys() == {"recommender", "id", "user", "item"}
    assert [event.get("id") for event in first[1:]] == ["own", None]
    assert total.accepted == 2


def test_events_are_sent_in_batches_of_the_servers_limits(connect: Connect) -> None:
    script = Script(*[ok({**ACCEPTED, "duplicates": None, "hits": None}), ok(ACCEPTED), ok(ACCEPTED)])
    total = connect(script).events("movies", ({"user": user, "item": 1} for user in range(2500)))
    assert list(map(len, sent(script))) == [1000, 1000, 500]
    assert [event["user"] for batch in sent(script) for event in batch] == list(range(2500))
    assert len({event["id"] for batch in sent(script) for event in batch}) == 2500
    assert (total.accepted, total.hits, total.duplicates, total.conflicts) == (6, None, None, 0)
    large = [{"user": "u" * 200, "item": "i" * 200, "request_id": "q" * 100, "kind": "page" * 200}] * 1500
    script = Script(*[ok(ACCEPTED)] * 10)
    connect(script).events("movies", large)
    assert len(script.requests) > 2
    assert all(len(request.content) <= 1024 * 1024 for request in script.requests)
    lists = [{"kind": "impression", "user": 1, "items": list(range(1000)), "request_id": str(number)} for number in range(300)]
    script = Script(*[ok(ACCEPTED)] * 10)
    connect(script).events("movies", lists)
    assert all(sum(map(request.content.count, (b",", b"[", b"{"))) <= 150_000 for request in script.requests)
    assert sum(map(len, sent(script))) == 300
    assert connect(Script()).events("movies", []).accepted == 0


def test_a_refused_batch_says_how_much_was_accepted_before(connect: Connect) -> None:
    script = Script(ok({**ACCEPTED, "accepted": 1000}), problem(422, "invalid", "events.3.item: Field required"))
    with pytest.raises(Invalid, match=r"^invalid: events\.3\.item: Field required \(1000 events of earlier batches were accepted\)$"):
        connect(script).events("movies", [{"user": 1, "item": 2}] * 1001)


def test_a_wait_outlives_a_restart_but_not_its_timeout(connect: Connect, pauses: list[float]) -> None:
    from eyas_client import Unsuccessful, WaitTimeout

    away = [httpx.ConnectError("refused")] * 6
    states: list[str] = []
    script = Script(ok(RUN), *away, ok(RUN), ok({**RUN, "state": "etl"}), ok({**RUN, "state": "rejected", "reason": "auc is low"}))
    run = connect(script).runs.wait("r1", progress=lambda run: states.append(run.state))
    assert (run.state, states) == ("rejected", ["pending", "etl", "rejected"])
    with pytest.raises(Unsuccessful, match=r"^run r1 is rejected: auc is low$") as fault:
        connect(Script(ok({**RUN, "state": "rejected", "reason": "auc is low"}))).runs.wait("r1", check=True)
    assert fault.value.outcome.state == "rejected"
    with pytest.raises(WaitTimeout, match="is pending after 5 s"):
        connect(lambda request: ok(RUN)).runs.wait("r1", 5)
    with pytest.raises(TimeoutError):
        connect(lambda request: ok(RUN)).runs.wait("r1", 0)
    with pytest.raises(Unavailable):
        connect(lambda request: problem(503), retries=0).runs.wait("r1")
    assert sum(pauses) < 120


def test_pages_are_read_until_the_limit(connect: Connect) -> None:
    sent_headers: list[dict[str, str]] = []

    def pages(request: httpx.Request) -> httpx.Response:
        sent_headers.append(dict(request.url.params))
        count, page = int(request.url.params["limit"]), len(sent_headers)
        return ok({"items": [{**RUN, "id": f"r{page}-{number}"} for number in range(count)], "next": None if page == 3 else f"c{page}"})

    client = connect(pages)
    runs = client.runs.list("movies", state="pending", limit=250)
    assert [len(runs), runs[-1].id] == [250, "r2-49"]
    assert sent_headers == [{"limit": "200", "state": "pending"}, {"limit": "50", "state": "pending", "cursor": "c1"}]
    sent_headers.clear()
    assert len(client.runs.list("movies", limit=None)) == 600
