"""`eyas watch`: changes of state as the platform tells them, over an end that is none."""

from __future__ import annotations

import json
from functools import partial

import httpx
import pytest

from services.cli import watching
from services.cli.client import Client


def event(name, data, id=None):
    return (f"id: {id}\n" if id else "") + f"event: {name}\ndata: {json.dumps(data)}\n\n"


def change(seq, target, reason=""):
    return event("state", {"at": "2026-01-01T00:00:00Z", "source": "", "target": target, "reason": reason, "actor": "eyas"}, seq)


@pytest.fixture
def told(monkeypatch):
    """What each listening is told, and from which event on it asked."""

    class Told(list):
        asked = ()

        def __call__(self, request):
            assert request.url.path == "/v1/runs/r1/stream"
            self.asked = (*self.asked, request.headers.get("last-event-id"))
            said = self.pop(0)
            if isinstance(said, Exception):
                raise said
            if isinstance(said, httpx.Response):
                return said
            return httpx.Response(200, text=said, headers={"Content-Type": "text/event-stream"})

    made = Told()
    monkeypatch.setattr("services.cli.client.Client", partial(Client, transport=httpx.MockTransport(made)))
    monkeypatch.setattr(watching, "EVERY", 0)
    return made


def test_each_change_is_shown_once_though_the_stream_breaks(told, eyas):
    told += [
        "retry: 2000\n\n" + change(3, "pending", "created") + ": still here\n\n" + event("log", {"lines": ["x"]}),
        "",
        change(7, "registered", "all gates\npassed") + event("end", {"state": "registered", "reason": ""}),
    ]
    result = eyas("--url", "http://127.0.0.1:1", "watch", "r1")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["2026-01-01 00:00:00  pending  created", "2026-01-01 00:00:00  registered  all gates passed"]
    assert told.asked == (None, "3", "3")


def test_a_platform_that_stops_in_between_is_waited_for_and_one_that_stays_away_is_told(told, eyas, monkeypatch):
    away = httpx.ConnectError("refused")
    told += [change(3, "pending"), away, away, change(7, "registered") + event("end", {"state": "registered", "reason": ""})]
    result = eyas("--url", "http://127.0.0.1:1", "watch", "r1")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2), result.output
    assert result.stderr.count("nothing answers at") == 1
    monkeypatch.setattr(watching, "PATIENCE", 0)
    told += [change(3, "pending"), away]
    assert eyas("--url", "http://127.0.0.1:1", "watch", "r1").exit_code == 3
    told += [away]
    assert eyas("--url", "http://127.0.0.1:1", "watch", "r1").exit_code == 3


def test_a_connection_that_breaks_before_it_says_anything_is_no_stream_that_ended(told, eyas, monkeypatch):
    """Else whatever takes connections and says nothing would be listened to for ever."""
    for number, kind in enumerate((httpx.ReadError, httpx.RemoteProtocolError, httpx.ReadTimeout, httpx.WriteError), 1):
        told += [kind("broken")]
        result = eyas("--url", "http://127.0.0.1:1", "watch", "r1")
        assert (result.exit_code, len(told.asked), "/v1/runs/r1/stream" in result.stderr) == (3, number, True), result.output
    monkeypatch.setattr(watching, "PATIENCE", 0)
    told += [change(3, "pending"), httpx.ReadError("broken")]
    result = eyas("--url", "http://127.0.0.1:1", "watch", "r1")
    assert (result.exit_code, "broken" in result.stderr) == (3, True), result.output


def test_a_run_that_registers_nothing_ends_the_command_with_one(told, eyas):
    told += [change(3, "failed") + event("end", {"state": "failed", "reason": "x"})]
    assert eyas("--url", "http://127.0.0.1:1", "watch", "r1").exit_code == 1


def test_json_is_a_line_for_each_event(told, eyas):
    told += [change(3, "pending", "created") + event("log", {"lines": ["x"]}) + event("end", {"state": "failed", "reason": "x"})]
    result = eyas("--url", "http://127.0.0.1:1", "watch", "r1", "--json")
    first, last = map(json.loads, result.stdout.splitlines())
    assert (first["event"], first["target"], first["reason"]) == ("state", "pending", "created")
    assert (last, result.exit_code) == ({"event": "end", "state": "failed", "reason": "x"}, 1)


def test_why_a_stream_ends_is_said(told, eyas):
    told += [event("problem", {"detail": "this token was revoked"})]
    result = eyas("--url", "http://127.0.0.1:1", "watch", "r1")
    assert (result.exit_code, result.stderr) == (3, "eyas: this token was revoked\n")
    problem = {
        "type": "https://eyas.dev/problems/crowded",
        "title": "",
        "status": 429,
        "detail": "100 streams are open, which is the limit",
    }
    told += [httpx.Response(429, json=problem)]
    result = eyas("--url", "http://127.0.0.1:1", "watch", "r1")
    assert (result.exit_code, result.stderr) == (2, "eyas: crowded: 100 streams are open, which is the limit\n")
