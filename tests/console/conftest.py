"""The console as people see it: a real Chromium over a platform that has lived a little.

`movies` has a version that serves and has earned hits; `empty` has been applied and never run. What a test changes beyond repair it
makes for itself, under another name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.servers.browser import Watched, browser, chromium
from tests.servers.platform_process import PlatformProcess, until
from tests.support.platform_world import Crowd, spec, write_world

PICTURES = "pictures.example"
"""The host of the pictures of items."""
PICKY = "picky"


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    """Of a module alone: what drives it has an event loop in this thread, beside which no other test could have one."""
    with browser() as running:
        yield running


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    chromium()
    folder = tmp_path_factory.mktemp("console")
    write_world(folder / "data")
    with PlatformProcess(folder / "home", folder / "data", settings={"EYAS_IMAGE_HOSTS": PICTURES}) as running:
        yield running


@pytest.fixture(scope="package")
def story(platform: PlatformProcess) -> PlatformProcess:
    platform.post("/v1/recommenders", spec(platform.data, model={"family": "popularity"}) | {"name": "empty"}, run=False)
    movies = spec(platform.data, epochs=2)
    movies["model"]["train"]["validation"] = 0.1
    platform.post("/v1/recommenders", movies)
    until("version 1 serves", lambda: (platform.get("/v1/recommenders/movies")["serving"] or {}).get("stable") == 1, seconds=240)
    until("it answers", lambda: platform.client.post("/v1/recommend/movies", json={"user": 1, "k": 1}).status_code == 200)
    Crowd(platform, lambda version: 0.6).come(60)
    return platform


@pytest.fixture(scope="package")
def rejected(story: PlatformProcess) -> str:
    """The id of a run that could prove nothing of what its spec asks: a popularity's."""
    gates = [{"metric": "auc", "min": 0.99}, {"parity": 1e-4}]
    story.post("/v1/recommenders", spec(story.data, model={"family": "popularity"}, gates=gates) | {"name": PICKY})
    run: str = story.get(f"/v1/recommenders/{PICKY}/runs")["items"][0]["id"]
    story.wait_for_run(run, "rejected")
    return run


@pytest.fixture
def visitor(chrome: Any, story: PlatformProcess) -> Iterator[Callable[..., Watched]]:
    """Makes visitors, signed in as the owner unless told otherwise; at the end none of them may have seen anything wrong."""
    made: list[Watched] = []

    def visit(token: str | None = "", **context: Any) -> Watched:
        one = Watched(chrome.new_context(**context), str(story.client.base_url).rstrip("/"))
        made.append(one)
        if token is not None:
            one.sign_in(token or (story.home / "token").read_text().strip())
        return one

    yield visit
    for one in made:
        one.context.close()
        one.check()
