"""A catalogue in a living platform: from an upsert over HTTP to the answers, over a kill -9. Its stages and its Triton are fakes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.security.platform import NAME, TOKEN, spec
from tests.servers.platform_process import checked, until

FILTERED = {"filter": [{"available": True}, "age_rating <= user.age"], "attributes": {"age_rating": "number"}}


class Platform:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.home.mkdir(exist_ok=True)
        (self.home / "url").unlink(missing_ok=True)
        with (self.home / "log").open("ab") as log:
            command = [sys.executable, "-m", "tests.security.platform", "--home", str(self.home)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        until("the platform listens", self._listens)

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.home / "log").read_text()
        place = self.home / "url"
        if not place.exists() or not place.read_text():
            return False
        self.client = httpx.Client(base_url=place.read_text(), headers={"Authorization": f"Bearer {TOKEN}"}, timeout=20)
        return True

    def kill(self) -> None:
        assert self.process is not None
        self.client.close()
        self.process.kill()
        self.process.wait(30)

    def ask(self, **more: Any) -> httpx.Response:
        return self.client.post(f"/v1/recommend/{NAME}", json={"user": 99, **more})

    def shown(self, **more: Any) -> list[int]:
        return [one["item"] for one in checked(self.ask(**more))["items"]]


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    made = Platform(tmp_path / "platform")
    try:
        made.start()
        until("it recommends", lambda: made.ask().status_code == 200)
        yield made
    finally:
        made.kill()


@pytest.mark.requirement("G-02")
def test_what_is_put_shows_in_answers_and_so_it_does_after_a_kill(platform: Platform) -> None:
    assert platform.shown() == [50, 40, 30, 20, 10]
    lines = [{"item": item, "attributes": {"age_rating": age}} for item, age in ((10, 0), (20, 6), (30, 12), (40, 16))]
    answer = platform.client.put(
        f"/v1/items/{NAME}", content="\n".join(map(json.dumps, lines)), headers={"Content-Type": "application/x-ndjson"}
    )
    assert checked(answer) == {"accepted": 4, "changed": 4}
    document = {**spec(platform.home / "data"), "serve": FILTERED}
    checked(platform.client.put(f"/v1/recommenders/{NAME}?run=false", json=document))
    until("the filter is in force", lambda: platform.shown(context={"age": 12}) == [30, 20, 10])
    assert checked(platform.ask())["fallback"] == "nothing left"
    refused = platform.ask(context={"age": "12"})
    assert (refused.status_code, "as serve.context says" in refused.text) == (200, False)
    checked(platform.client.post(f"/v1/items/{NAME}", json={"items": [{"item": 20, "available": False}]}))
    assert platform.client.delete(f"/v1/items/{NAME}/10").status_code == 204
    until("the changes show", lambda: platform.shown(context={"age": 18}) == [40, 30])

    platform.kill()
    platform.start()
    first = until("it recommends again", lambda: platform.shown(context={"age": 18}) if platform.ask().status_code == 200 else None)
    assert first == [40, 30]


def test_a_spec_whose_filter_is_wrong_is_refused_with_its_place(platform: Platform) -> None:
    document = {**spec(platform.home / "data"), "serve": {"filter": ["age_rating = 3"]}}
    refused = platform.client.put(f"/v1/recommenders/{NAME}", json=document)
    assert refused.status_code == 422
    assert (
        "serve.filter.0: 'age_rating = 3', column 12: '=' is not a sign of the filter language: write == to compare"
        in refused.json()["detail"]
    )
