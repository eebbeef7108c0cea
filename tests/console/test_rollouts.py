"""A rollout watched from 1% to promoted without a reload, and one that is rolled back and says why."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from pipelines.data.synthetic import World, write_ratings
from shared.domain.route import Route, choose
from tests.servers.platform_process import until
from tests.support.platform_world import spec

pytestmark = pytest.mark.requirement("C-01", "C-09")

USERS = 8000
"""So that 1% of them are some."""


@pytest.fixture(scope="package")
def pace(story):
    """A recommender whose first version serves."""
    folder = story.data / "pace"
    folder.mkdir()
    world = World.create(USERS, 40, seed=3)
    write_ratings(world.ratings(40_000, 1_700_000_000, 1_703_000_000, seed=4), folder / "ratings.parquet")
    world.write_items(folder / "movies.parquet")
    document = spec(folder, model={"family": "popularity"}, serve={"order": {"explore": {"rate": 0}}}) | {"name": "pace"}
    document["gates"] = [{"parity": 1e-4}]
    document["rollout"]["steps"] = ["1%", "50%"]
    document["rollout"]["analysis"] |= {"attribution": "200ms", "window": "200ms", "min_users": 30, "min_answers": 30}
    _register(story, document)
    until("it serves", lambda: (story.get("/v1/recommenders/pace")["serving"] or {}).get("stable") == 1)
    until("it answers", lambda: story.client.post("/v1/recommend/pace", json={"user": 1, "k": 1}).status_code == 200)
    return story


def _register(story, document):
    run = story.post("/v1/recommenders", document, run=False)["run"] or story.post("/v1/recommenders/pace/runs", {"mode": "full"})["id"]
    story.wait_for_run(run, "registered")
    return until("its rollout", lambda: story.get(f"/v1/runs/{run}")["rollout"])


def canary(pace, *steps):
    """A rollout of a new version, at its first step, and the number of the version."""
    document = pace.get("/v1/recommenders/pace")["spec"]
    document["rollout"]["steps"] = list(steps)
    rollout = _register(pace, document)
    pace.wait_for_rollout(rollout, "canary")
    return rollout, pace.get(f"/v1/rollouts/{rollout}")["version"]


@contextmanager
def crowd(pace, rollout, likes, goes_on=lambda weight: True) -> Iterator[None]:
    """Users of both variants who come until it is over. `likes`: of a version, whether the n-th of its users likes what is shown;
    `goes_on`: whether they come while the candidate has that weight."""
    ended, faults, pool = threading.Event(), [], ThreadPoolExecutor(6)

    def come() -> None:
        users = {weight: _split(rollout, weight) for weight in (0.01, 0.2, 0.5)}
        counts: dict[int, itertools.count[int]] = {}

        def visit(user: int) -> None:
            answer = pace.post("/v1/recommend/pace", {"user": user, "k": 3})
            if likes(answer["version"], next(counts.setdefault(answer["version"], itertools.count()))):
                event = {"recommender": "pace", "user": user, "item": answer["items"][0]["item"], "value": 5}
                pace.post("/v1/events", {"events": [event | {"request_id": answer["request_id"]}]})

        try:
            while not ended.is_set():
                serving = pace.get("/v1/recommenders/pace")["serving"]
                if serving["candidate"] is None or not goes_on(serving["weight"]):
                    ended.wait(0.05)
                    continue
                few, many = users[serving["weight"]]
                here, there = (1, 60) if serving["weight"] < 0.1 else (8, round(8 / serving["weight"]) - 8)
                list(pool.map(visit, [*itertools.islice(few, here), *itertools.islice(many, there)]))
        except Exception as error:
            faults.append(error)

    thread = threading.Thread(target=come, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30)
        pool.shutdown()
    assert not faults, faults


def _split(rollout, weight):
    """The candidate's users and the stable version's, each in a circle."""
    route = Route(1, 2, weight, rollout)
    parts = {"candidate": [], "stable": []}
    for user in range(1, USERS + 1):
        parts[choose(route, user)[1]].append(user)
    return itertools.cycle(parts["candidate"]), itertools.cycle(parts["stable"])


def test_a_rollout_is_watched_from_1_percent_to_promoted_then_one_that_earns_less_says_why(visitor, pace):
    stable = pace.get("/v1/recommenders/pace")["serving"]["stable"]
    first, better = canary(pace, "1%", "50%")
    someone = visitor()
    someone.go(f"/rollouts/{first}")
    page = someone.page
    page.evaluate("window.untouched = true")
    seen = set()

    def promoted():
        text = page.locator("#why").inner_text()
        seen.update(share for share in ("1 %", "50 %") if f"Version {better} serves {share} of the users" in text)
        return "promoted" in page.locator("#state").inner_text()

    with crowd(
        pace,
        first,
        lambda version, n: n % 5 != 0 if version == better else n % 3 == 0,
        goes_on=lambda weight: f"{weight * 100:.0f} %" in seen,  # no step is over before the open page has shown it
    ):
        until("the open page says promoted", promoted, seconds=120)
    assert seen == {"1 %", "50 %"}
    until("it says why", lambda: "excludes a loss above 10 %: promoted after" in page.locator("#explained").inner_text())
    assert f"more hits than version {stable}" in page.locator("#explained").inner_text()
    assert page.evaluate("window.untouched"), "it was never loaded anew"
    page.get_by_role("img", name=f"Lift of version {better} after each of").wait_for()
    assert someone.hurdles() == []
    for width in (400, 800, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert someone.misfits() == [], width

    second, worse = canary(pace, "20%")
    someone.go(f"/rollouts/{second}")
    with crowd(pace, second, lambda version, n: n % 10 == 0 if version == worse else n % 5 != 0):
        pace.wait_for_rollout(second, "rolled_back")
    until("the open page says so", lambda: "rolled back" in page.locator("#state").inner_text())
    one = pace.get(f"/v1/rollouts/{second}")
    report = one["reports"][-1]
    fewer = f"{-report['lift'] * 100:.0f} % fewer hits than version {better} in its canary at {report['weight'] * 100:g} %"
    explained = page.locator("#explained").inner_text()
    assert explained == f"Version {worse} earned {fewer}: rolled back after {report['candidate']['users']:,} users."
    assert one["reason"] in page.locator("#why").inner_text()
    assert one["reason"].startswith("the candidate earns fewer hits")
    page.get_by_text("Numbers of").click()
    assert page.locator("#all-looks tbody tr").count() == len(pace.get(f"/v1/rollouts/{second}/looks")["looks"])


def press(page, button, reason):
    """Opens what it stands on, says why, confirms."""
    page.get_by_text(f"{button}…", exact=True).click()
    form = page.locator("#deeds details[open]")
    form.get_by_label("Reason").fill(reason)
    form.get_by_role("button", name=button, exact=True).click()


def test_a_rollout_is_steered_by_each_of_its_buttons(visitor, pace):
    stable = pace.get("/v1/recommenders/pace")["serving"]["stable"]
    rollout, version = canary(pace, "20%", "50%")
    someone = visitor(color_scheme="dark")
    someone.go(f"/rollouts/{rollout}")
    page = someone.page
    for button, reason, state, told in (
        ("Pause", "lunch", "paused", ""),
        ("Resume", "back", "canary", ""),
        ("Skip to the next step", "we know it", "canary", f"Version {version} serves 50 % of the users"),
        ("Promote", "it is fine", "promoted", ""),
    ):
        press(page, button, reason)
        until(f"it is {state}", lambda state=state: state in page.locator("#state").inner_text())
        until("the page says so", lambda told=told: told in page.locator("#why").inner_text())
        until("the history says so", lambda reason=reason: reason in page.locator("#decisions").inner_text())
    assert someone.hurdles() == []
    press(page, "Roll back", "it was not")
    until("the version before serves", lambda: pace.get("/v1/recommenders/pace")["serving"]["stable"] == stable)
    page.goto(f"{someone.url}/rollouts/{rollout}")
    assert page.locator("#deeds .deed").count() == 0


@pytest.mark.requirement("C-05")
def test_a_rollout_is_aborted_and_its_version_is_rolled_out_again_from_its_own_page(visitor, pace):
    rollout, version = canary(pace, "20%")
    someone = visitor()
    someone.go(f"/rollouts/{rollout}")
    press(someone.page, "Abort", "no longer wanted")
    until("it is aborted", lambda: "aborted" in someone.page.locator("#state").inner_text())
    until("the history says so", lambda: "no longer wanted" in someone.page.locator("#decisions").inner_text())
    assert someone.page.locator("#deeds .deed").count() == 0

    page = someone.page
    someone.go(f"/recommenders/pace/versions/{version}")
    page.get_by_text("Roll out…", exact=True).click()
    assert someone.hurdles() == []
    page.locator("#roll-out").get_by_label("Reason").fill("it is wanted after all")
    page.get_by_role("button", name="Start the rollout", exact=True).click()
    assert f"The rollout of version {version} is created" in page.get_by_role("status").filter(has_text="is created").inner_text()
    again = page.url.rsplit("/", 1)[1]
    pace.wait_for_rollout(again, "canary")
    one = pace.get(f"/v1/rollouts/{again}")
    assert (one["version"], one["asked_by"], one["cause"], again != rollout) == (version, "owner", "it is wanted after all", True)
    until("the open page shows its canary", lambda: f"Version {version} serves 20 % of the users" in page.locator("#why").inner_text())
    assert "start by owner: it is wanted after all" in page.locator("#decisions").inner_text()
    someone.go(f"/recommenders/pace/versions/{version}")
    assert page.locator("#roll-out").count() == 0
    pace.post(f"/v1/rollouts/{again}:abort")
    until("the open page offers it again", lambda: page.locator("#roll-out").count() == 1)


def test_rollouts_can_be_read_without_scripts(visitor, pace):
    someone = visitor(java_script_enabled=False)
    someone.go("/recommenders/pace/rollouts")
    assert someone.page.get_by_role("row").count() >= 2
    someone.page.get_by_role("link", name="version 1").click()
    assert "Version 1 was promoted: the first version is promoted without a canary." in someone.page.locator("#explained").inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_list_keeps_nobody_out(visitor, pace, theme):
    someone = visitor(color_scheme=theme)
    someone.go("/recommenders/pace/rollouts")
    assert someone.hurdles() == []
