"""The command line's client comes again when the platform says when to."""

from __future__ import annotations

import httpx
import pytest

from demo.client import ApiError
from demo.client import Client as DemoClient
from services.cli import client as cli
from services.cli.client import LONGEST_WAIT, RETRIES, Client
from services.cli.faults import ReportedError

pytestmark = pytest.mark.requirement("U-13")


class Busy:
    """Refuses with 429 so many times, and then answers."""

    def __init__(self, times, retry_after="2"):
        self.left = times
        self.headers = {} if retry_after is None else {"Retry-After": retry_after}
        self.bodies = []

    def __call__(self, request):
        self.bodies.append(request.content)
        self.left -= 1
        if self.left >= 0:
            return httpx.Response(429, json={"type": "x/rate-limited", "title": "t", "detail": "wait"}, headers=self.headers)
        return httpx.Response(200, json={"ok": True})


@pytest.fixture
def waits(monkeypatch):
    found = []
    monkeypatch.setattr(cli.time, "sleep", found.append)
    return found


def cli_client(busy):
    return Client("http://127.0.0.1:1", "t", httpx.MockTransport(busy))


def demo_client(busy):
    made = DemoClient("http://127.0.0.1:1", "t")
    made._http = httpx.Client(base_url="http://127.0.0.1:1", transport=httpx.MockTransport(busy))
    return made


POSTS = {
    "eyas": (cli_client, lambda client: client.post("/v1/x", {"a": 1}), ReportedError),
    "the demo": (demo_client, lambda client: client._call("POST", "/v1/x", json={"a": 1}), ApiError),
}


@pytest.mark.parametrize("who", POSTS)
def test_it_waits_as_long_as_it_is_told_and_sends_the_same_again(waits, who):
    make, post, _ = POSTS[who]
    busy = Busy(2)
    assert post(make(busy)) == {"ok": True}
    assert waits == [2, 2]
    assert len(set(busy.bodies)) == 1


@pytest.mark.parametrize("who", POSTS)
def test_it_gives_up_after_some_tries_and_waits_for_no_hour(waits, who):
    make, post, error = POSTS[who]
    with pytest.raises(error, match="wait"):
        post(make(Busy(100, "3600")))
    assert waits == [LONGEST_WAIT] * RETRIES


@pytest.mark.parametrize("who", POSTS)
def test_without_a_time_it_does_not_come_again(waits, who):
    make, post, error = POSTS[who]
    with pytest.raises(error, match="wait"):
        post(make(Busy(1, None)))
    assert waits == []
