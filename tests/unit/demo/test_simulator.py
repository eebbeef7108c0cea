"""Simulated users against a real HTTP server: what they click, what they send, and that every failure is counted."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from demo.client import Client
from demo.counting import Tally
from demo.simulator import Simulator, Traffic, _Pace, _Rounds
from pipelines.data.synthetic import World

WORLD = World.create(50, 40, seed=5)
Answer = Callable[[str, Any], tuple[int, Any]]


@dataclass
class Served:
    url: str
    asked: list[tuple[str, Any]] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def events(self) -> list[Any]:
        return [event for path, body in self.asked if path == "/v1/events" for event in body["events"]]


def good(path: str, body: Any) -> tuple[int, Any]:
    if path == "/v1/events":
        return 202, {"accepted": len(body["events"]), "hits": 0}
    items = [{"item": item, "score": 0.5} for item in WORLD.best(body["user"]).tolist()]
    return 200, {"request_id": f"q{body['user']}", "version": 3, "variant": "stable", "items": items, "fallback": None}


def overloaded(path: str, body: Any) -> tuple[int, Any]:
    return 503, {"title": "Unavailable", "detail": "no version answers"}


def server_of(answer: Answer, enough: int) -> tuple[ThreadingHTTPServer, Served]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            served.asked.append((self.path, body))
            status, found = answer(self.path, body)
            payload = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)
            if len(served.asked) >= enough:
                served.enough.set()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Served(f"http://127.0.0.1:{server.server_address[1]}")
    return server, served


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    running: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(answer: Answer, enough: int = 1) -> Served:
        server, served = server_of(answer, enough)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((server, thread))
        return served

    yield start
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join()


def simulator(client: Client, **traffic: Any) -> Simulator:
    return Simulator(client, "movies", WORLD, Traffic(**traffic), Tally())


def test_clicks_carry_the_request_id_and_own_picks_carry_stars(serve: Callable[..., Served]) -> None:
    served = serve(good)
    with Client(served.url, "token") as client:
        users = simulator(client, organic=3)
        rng = np.random.default_rng(1)
        for user in range(1, 21):
            users.visit(user, rng)
        users.flush()
    clicks = [event for event in served.events() if "request_id" in event]
    picks = [event for event in served.events() if "value" in event]
    assert len(picks) == 60
    assert clicks
    assert all(event["request_id"] == f"q{event['user']}" and event["item"] in WORLD.best(event["user"]) for event in clicks)
    bins = users.tally.bins()
    assert sum(one.answers for one in bins) == 20
    assert sum(one.hits for one in bins) == len({event["request_id"] for event in clicks})
    assert users.tally.failed == 0


def test_every_refused_request_is_counted_with_its_reason(serve: Callable[..., Served]) -> None:
    served = serve(overloaded)
    with Client(served.url, "token") as client:
        users = simulator(client)
        for user in (1, 2, 3):
            users.visit(user, np.random.default_rng(1))
    assert users.tally.failed == 3
    assert users.tally.failures() == {"POST /v1/recommend/movies: 503 Unavailable: no version answers": 3}
    assert users.tally.answers == 0


def test_events_that_are_refused_count_as_failures(serve: Callable[..., Served]) -> None:
    served = serve(lambda path, body: good(path, body) if "recommend" in path else overloaded(path, body))
    with Client(served.url, "token") as client:
        users = simulator(client)
        users.visit(1, np.random.default_rng(1))
        users.flush()
        users.flush()
    assert users.tally.failed == 1
    assert users.tally.answers == 1


def test_a_server_that_is_gone_is_a_failure_and_not_a_crash() -> None:
    server, served = server_of(good, 1)
    server.server_close()
    with Client(served.url, "token", timeout=1) as client:
        users = simulator(client)
        users.visit(1, np.random.default_rng(1))
    assert users.tally.failed == 1
    assert "ConnectError" in next(iter(users.tally.failures()))


def test_users_come_until_stopped_and_everything_they_did_is_sent(serve: Callable[..., Served]) -> None:
    served = serve(good, enough=30)
    with Client(served.url, "token") as client:
        users = simulator(client, rate=2_000.0, threads=3)
        users.start()
        assert served.enough.wait(20)
        users.stop()
    visits = sum(path.startswith("/v1/recommend") for path, _ in served.asked)
    assert users.tally.answers == visits
    assert sum("value" in event for event in served.events()) == 2 * visits
    assert users.tally.failed == 0


def test_tastes_can_be_exchanged_while_users_come(serve: Callable[..., Served]) -> None:
    served = serve(good)
    moved = WORLD.shifted(1)
    with Client(served.url, "token") as client:
        users = simulator(client, organic=40)
        users.world = moved
        for user in range(1, 31):
            users.visit(user, np.random.default_rng(user))
        users.flush()
    for event in (one for one in served.events() if "value" in one):
        assert 0.5 <= event["value"] <= 5
    planted = np.mean([1 - np.prod(1 - moved.probability(user, WORLD.best(user))) for user in range(1, 31)])
    hits = sum(one.hits for one in users.tally.bins()) / 30
    assert abs(hits - planted) < 0.3


def test_everybody_comes_once_a_round() -> None:
    rounds = _Rounds(WORLD.user_ids, 1)
    for _ in range(3):
        assert sorted(rounds.next() for _ in WORLD.user_ids) == WORLD.user_ids.tolist()


def test_the_pace_is_bounded_and_lateness_is_not_caught_up_with() -> None:
    now = [0.0]
    pace = _Pace(10.0, lambda: now[0])
    assert [round(pace.wait(), 3) for _ in range(3)] == [0.1, 0.2, 0.3]
    now[0] = 100.0
    assert [round(pace.wait(), 3) for _ in range(2)] == [0.0, 0.1]
