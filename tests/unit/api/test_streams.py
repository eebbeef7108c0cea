"""Streams over a real server on loopback: order, resumption, end, revocation, the bound, listeners that go, shutdown."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import replace

import httpx
import pytest
import uvicorn

from services.api import streams
from services.api.streams import Listeners
from shared.domain.errors import Unavailable
from shared.domain.run import StageDone
from shared.ports import HistoryEntry
from tests.servers.platform_process import until
from tests.support.api_world import NOW, TOKEN


class Served:
    def __init__(self, world):
        self.world = world
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.server = uvicorn.Server(uvicorn.Config(world.app, log_config=None, lifespan="off", timeout_graceful_shutdown=60))
        world.app.state.closing = lambda: self.server.should_exit
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})

    @property
    def count(self):
        return self.world.app.state.listeners.count

    def listen(self, path, token=TOKEN, **headers):
        return httpx.stream("GET", self.url + path, headers={"Authorization": f"Bearer {token}", **headers}, timeout=30, trust_env=False)

    def __enter__(self):
        self.thread.start()
        until("the server listens", lambda: self.server.started)
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive()
        self.socket.close()


def events(response):
    """(event, id, data), as EventSource reads them."""
    assert response.status_code == 200, response.read()
    assert response.headers["content-type"].startswith("text/event-stream")
    found = {}
    for line in response.iter_lines():
        if not line:
            if "event" in found:
                yield found["event"], found.get("id"), json.loads(found["data"])
            found = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            found[name] = value


@pytest.fixture
def served(world, monkeypatch):
    monkeypatch.setattr(streams, "POLL", 0.02)
    monkeypatch.setattr(streams, "RECHECK", 0.05)
    world.add_recommender()
    world.add_run("r1")
    with Served(world) as running:
        yield running


def move(world, target, **status):
    world.runs.past = [*world.runs.past, HistoryEntry(NOW, world.runs.past[-1].target, target, f"on to {target}", "eyas")]
    one = world.runs.rows["r1"]
    world.runs.rows["r1"] = replace(one, status=replace(one.status, state=target, **status))


def done(*stages):
    return tuple(StageDone(stage, f"r1-{stage}-1", NOW, NOW) for stage in stages)


@pytest.mark.requirement("C-01")
def test_changes_are_told_in_order_as_they_come_and_then_the_end(world, served):
    move(world, "etl")
    with served.listen("/v1/runs/r1/stream") as response:
        told = events(response)
        assert [next(told)[:2] for _ in range(2)] == [("state", "3"), ("state", "6")]
        move(world, "train")
        name, id, data = next(told)
        assert (name, id) == ("state", "9")
        assert data == {"at": "2026-01-01T00:00:00Z", "source": "etl", "target": "train", "reason": "on to train", "actor": "eyas"}
        move(world, "cancelled", reason="enough")
        assert next(told)[1] == "12"
        assert next(told) == ("end", None, {"state": "cancelled", "reason": "enough"})
        assert list(told) == []
    until("the place is free", lambda: served.count == 0)


@pytest.mark.requirement("C-01")
def test_a_stream_goes_on_after_the_last_event_that_was_read(world, served, problem):
    for state in ("etl", "train", "failed"):
        move(world, state)
    with served.listen("/v1/runs/r1/stream", **{"Last-Event-ID": "6"}) as response:
        assert [one[:2] for one in events(response)] == [("state", "9"), ("state", "12"), ("end", None)]
    for id in ("x", "-1", "9" * 30, "²"):
        path = "/v1/runs/r1/stream"
        response = httpx.get(served.url + path, headers=[(b"Authorization", b"Bearer a-token"), (b"Last-Event-ID", id.encode())])
        assert "start again without it" in problem(response, 400, "malformed")


def test_more_changes_than_one_look_takes_are_all_told(world, served):
    for _ in range(250):
        move(world, "pending")
    move(world, "cancelled")
    with served.listen("/v1/runs/r1/stream") as response:
        assert [int(one[1]) for one in events(response) if one[0] == "state"] == [3 * place for place in range(1, 253)]


def test_the_last_lines_of_the_stage_under_way_are_told(world, served):
    world.executor.text["r1-etl-1"] = "".join(f"line {number}\n" for number in range(50)) + "half"
    move(world, "etl", attempt=1)
    with served.listen("/v1/runs/r1/stream") as response:
        told = events(response)
        name, _, data = [next(told) for _ in range(3)][-1]
        assert (name, data["stage"], data["attempt"]) == ("log", "etl", "r1-etl-1")
        assert data["lines"] == [f"line {number}" for number in range(30, 50)]
        world.executor.text["r1-etl-1"] += " and half\n"
        assert next(told)[2]["lines"] == ["half and half"]


@pytest.mark.requirement("C-01")
def test_a_token_that_is_revoked_hears_nothing_more(world, served):
    world.holder("viewer", ["m"])
    holder = world.holder("viewer", ["m"])._headers["Authorization"].removeprefix("Bearer ")
    with served.listen("/v1/runs/r1/stream", holder) as response:
        told = events(response)
        assert next(told)[0] == "state"
        world.tokens.revoke(world.tokens.list()[0].id, NOW, "owner")
        name, _, data = next(told)
        assert name == "problem"
        assert "this token was revoked" in data["detail"]
        move(world, "etl")
        assert list(told) == []


def test_a_store_that_goes_away_ends_the_stream_with_its_reason(world, served, monkeypatch):
    with served.listen("/v1/runs/r1/stream") as response:
        told = events(response)
        next(told)

        def away(id):
            raise Unavailable("the database doesn't answer")

        monkeypatch.setattr(world.runs, "get", away)
        assert list(told) == [("problem", None, {"detail": "the database doesn't answer"})]


@pytest.mark.requirement("C-01")
def test_there_are_so_many_places_and_who_goes_frees_one(world, served, problem):
    world.app.state.listeners = Listeners(2)
    with served.listen("/v1/runs/r1/stream") as one, served.listen("/v1/runs/r1/logs/stream") as other:
        assert (one.status_code, other.status_code) == (200, 200)
        until("both have a place", lambda: served.count == 2)
        with served.listen("/v1/runs/r1/stream") as third:
            third.read()
            assert "2 streams are open" in problem(third, 429, "crowded")
            assert third.headers["retry-after"] == "10"
    until("both places are free", lambda: served.count == 0)
    with served.listen("/v1/runs/r1/stream") as again:
        assert again.status_code == 200


@pytest.mark.requirement("C-01")
def test_listeners_do_not_hold_up_the_end_of_the_server(world):
    world.add_run("r1")
    with Served(world) as running, running.listen("/v1/runs/r1/stream") as response:
        told = events(response)
        next(told)
        running.server.should_exit = True
        assert list(told) == []  # an end without `end`: the next server goes on from there


def test_a_silent_stream_shows_that_it_lives(world, served, monkeypatch):
    monkeypatch.setattr(streams, "HEARTBEAT", 0.1)
    with served.listen("/v1/runs/r1/logs/stream") as response:
        lines = (line for line in response.iter_lines() if line.startswith(":"))
        assert [next(lines), next(lines)] == [": still here", ": still here"]


@pytest.mark.requirement("C-01")
def test_a_log_is_told_as_it_is_written_from_stage_to_stage(world, served):
    world.executor.text = {"r1-etl-1": "one\n", "r1-train-1": "two", "r1-evaluate-1": "three\n"}
    move(world, "etl", attempt=1)
    with served.listen("/v1/runs/r1/logs/stream") as response:
        told = events(response)
        first = {"stage": "etl", "attempt": "r1-etl-1", "text": "one\n", "next": 4}
        assert next(told) == ("log", "r1-etl-1:4", first)
        world.executor.text["r1-etl-1"] += "more\n"
        assert next(told)[1:] == ("r1-etl-1:9", first | {"text": "more\n", "next": 9})
        move(world, "evaluate", stages=done("etl", "train"))  # what was over between two looks is told too
        assert [next(told)[2]["text"] for _ in range(2)] == ["two", "three\n"]
        move(world, "rejected", stages=done("etl", "train", "evaluate"))
        assert [one[0] for one in told] == ["end"]


def test_one_stages_log_ends_with_the_stage_and_is_taken_up(world, served, problem):
    world.executor.text = {"r1-etl-1": "one\ntwo\n", "r1-train-1": "other\n"}
    move(world, "train", attempt=1, stages=done("etl"))
    path = "/v1/runs/r1/logs/stream?stage=etl"
    with served.listen(path) as response:
        assert [one[2].get("text") for one in events(response)] == ["one\ntwo\n", None]
    with served.listen(path, **{"Last-Event-ID": "r1-etl-1:4"}) as response:
        assert [one[2].get("text") for one in events(response)] == ["two\n", None]
    with served.listen("/v1/runs/r1/logs/stream", **{"Last-Event-ID": "r1-etl-1:4"}) as response:
        told = events(response)
        assert [next(told)[2]["text"] for _ in range(2)] == ["two\n", "other\n"]
    for id in ("r1-etl-1", "../../x-etl-1:0", "r1-etl-1:-4"):
        with served.listen(path, **{"Last-Event-ID": id}) as response:
            response.read()
            assert "start again without it" in problem(response, 400, "malformed")


def test_another_runs_log_is_not_read_by_an_id_of_its_events(world, served):
    world.executor.text = {"r2-etl-1": "secret\n", "r1-etl-1": "own\n"}
    move(world, "failed", attempt=1)
    with served.listen("/v1/runs/r1/logs/stream", **{"Last-Event-ID": "r2-etl-1:0"}) as response:
        assert [one[2].get("text") for one in events(response)] == ["own\n", None]
