"""Every question of every dashboard, put to a real Prometheus that has watched a platform live: runs, a shadow, a canary, drift, users."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import polars as pl
import pytest

from benchmarks.rollout_world import NAME as BROKEN
from benchmarks.rollout_world import World
from shared.domain.route import Route
from tests.servers.alerting import RULES, faster
from tests.servers.platform_parts import triton_part
from tests.servers.platform_process import PlatformProcess, until
from tests.servers.ports import free_ports
from tests.servers.prometheus_process import Daemon, program
from tests.servers.triton_certificates import Authority
from tests.support.broken_models import not_a_number_of_real_items
from tests.support.dashboards import Asked, asked, choices
from tests.support.platform_world import USERS, spec, write_world
from tests.support.promql import TRITON

EMPTY: Mapping[str, str] = {
    "pipelines: Dead letters (A)": "no run gives up: that takes three attempts with pauses between them",
    "platform: Rejected by a limit (A)": "nobody asks for more than a limit allows",
    "platform: Old events (A)": "no event is 400 days old",
    "platform: Old events (B)": "no event is 400 days old",
    "platform: Overdue versions (A)": "no user is forgotten",
    "platform: Lost impressions (A)": "the database is never away for long enough",
    "serving: Unusable indexes (A)": "none is damaged",
    "serving: GPU use (A)": "this Triton has no GPU",
    "serving: GPU use (B)": "this Triton has no GPU",
}
"""Questions that a healthy platform has no answer to, and why."""

SLOW: Mapping[str, str] = {
    "platform: Failed passes (A)": "a pass may wait too long for the database",
    "serving: Errors (A)": "a request may not be answered in time",
    "serving: Unfiltered (A)": "the event log may take more than two seconds",
}
"""Questions that a healthy platform answers only if its machine is slow at some moment, and why."""


class Prometheus(Daemon):
    """Looks every second, at the platform and at its Triton, as on a cluster. The rules' windows of an hour take a minute."""

    def __init__(self, folder: Path, targets: Mapping[str, str]) -> None:
        folder.mkdir()
        rules = folder / "rules.yaml"
        rules.write_text(re.sub(r"interval: \w+", "interval: 1s", faster(RULES.read_text(), 60)))
        jobs = [{"job_name": name, "static_configs": [{"targets": [urlsplit(url).netloc]}]} for name, url in targets.items()]
        every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config = {"global": every, "rule_files": [str(rules)], "scrape_configs": jobs}
        super().__init__(program("prometheus", "prometheus"), folder, config, f"--storage.tsdb.path={folder / 'data'}")
        self._began = time.time()

    def answers(self, question: str) -> bool:
        """With a number, at any time since it began; a question that it doesn't understand is an error."""
        found = self._get("query_range", query=question, start=self._began, end=time.time(), step="1s")
        return any(math.isfinite(float(value)) for series in found["result"] for _, value in series["values"])

    def choices(self, metric: str, label: str) -> list[str]:
        return list(self._get(f"label/{label}/values", **{"match[]": metric}))

    def _get(self, what: str, **parameters: Any) -> Any:
        return self._http.get(f"/api/v1/{what}", params=parameters).raise_for_status().json()["data"]


class Users:
    """Half of them click on what they are shown first, and now and then buy it; one wants nothing that there is, and one likes films."""

    def __init__(self, platform: PlatformProcess, data: Path) -> None:
        self._platform = platform
        self._random = random.Random(7)
        self._all = pl.read_parquet(data / "movies.parquet")["movieId"].to_list()

    def come(self, count: int = 5) -> None:
        events: list[dict[str, Any]] = []
        self._platform.post("/v1/recommend/movies", {"user": self._random.randint(1, USERS), "exclude": self._all})
        self._platform.post(f"/v1/recommend/{BROKEN}", {"user": 1})
        for _ in range(count):
            user = self._random.randint(1, USERS)
            body = {"user": user, "k": 5, "context": {"country": self._random.choice(["de", "ch"])}}
            answer = self._platform.post("/v1/recommend/movies", body)
            if self._random.random() < 0.5:
                said = {"kind": "purchase", "revenue": 3.5} if self._random.random() < 0.2 else {"kind": "click"}
                event = {"recommender": "movies", "user": user, "item": answer["items"][0]["item"], "request_id": answer["request_id"]}
                events.append({**event, **said, "id": f"e{answer['request_id']}"})
        if events:
            self._platform.post("/v1/events", {"events": [*events, events[0], {**events[0], "value": 1}]})


def specified(data: Path) -> dict[str, Any]:
    made = spec(
        data,
        features=[{"categorify": ["userId", "movieId"]}, {"normalise": ["age"]}],
        model={"family": "gbm", "params": {"library": "lightgbm", "trees": 5, "width": 8}},
        serve={"order": {"explore": {"rate": 0}}, "context": {"country": "text"}, "deadlines": {"features": "2s"}},
        monitor={"slices": {"germany": "user.country == 'de'"}},
        retrain={"on": [{"new_events": 120}, {"drift": {"psi": 50, "min_events": 100}}], "cooldown": "1h"},
    )
    made["data"]["users"] = {"uri": str(data / "users.parquet"), "key": "userId"}
    made["rollout"] |= {"shadow": {"for": "2s", "min_answers": 5}, "steps": ["50%"]}
    return made


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[tuple[PlatformProcess, World, str]]:
    """With a Triton of its own, as in a cluster: an embedded one exports no metrics."""
    data, home = tmp_path / "data", tmp_path / "platform/home"
    write_world(data)
    pl.DataFrame({"userId": range(1, USERS + 1), "age": [20.0 + user % 50 for user in range(USERS)]}).write_parquet(data / "users.parquet")
    world = World(home, 100, {})
    world.serve(Route(world.version()))
    authority, ports = Authority.create(tmp_path / "certificates"), free_ports(3)
    triton = triton_part("triton", tmp_path, home / "triton", ports, authority.server())
    settings = {"EYAS_TRITON": f"127.0.0.1:{ports[0]}", "EYAS_TRITON_TLS": str(authority.client().folder)}
    try:
        triton.ready()
        with PlatformProcess(home, data, settings=settings) as running:
            yield running, world, f"http://127.0.0.1:{ports[1]}/metrics"
    finally:
        triton.stop()
    world.close()


def what_a_few_do(platform: PlatformProcess, data: Path) -> None:
    """Somebody without a good token, those who know better of a film and of a user, somebody whose data isn't there."""
    assert httpx.get(f"{platform.client.base_url}/v1/recommenders", headers={"Authorization": "Bearer wrong"}).status_code == 401
    platform.post(f"/v1/items/{BROKEN}", {"items": [{"item": 1, "available": True}]})
    checked = platform.client.put("/v1/features/movies/users", json={"rows": [{"key": 1, "values": {"age": 31.0}}]})
    assert checked.is_success, checked.text
    lost = spec(data, name="lost")
    (data / "ratings.parquet").rename(data / "away.parquet")
    run = platform.post("/v1/recommenders", lost)["run"]
    platform.wait_for_run(run, "failed")


@pytest.mark.requirement("C-08")
def test_a_prometheus_that_has_watched_a_platform_live_answers_every_question(
    platform: tuple[PlatformProcess, World, str], tmp_path: Path
) -> None:
    running, world, triton = platform
    exported = {line.split("{")[0] for line in httpx.get(triton).text.splitlines()}
    assert set(TRITON) <= exported, "Triton calls them otherwise"
    with Prometheus(tmp_path / "prometheus", {"eyas": running.metrics_url, "triton": triton}) as prometheus:
        data = tmp_path / "data"
        live(running, world, prometheus, data)
        users, questions = Users(running, data), asked()

        def unanswered() -> set[str]:
            users.come()
            return {str(one) for one in questions if not prometheus.answers(one.question)}

        until("all questions that can be answered are", lambda: unanswered() <= EMPTY.keys() | SLOW.keys())
        assert unanswered() >= EMPTY.keys(), "it is answered: take it off the list"
        assert SLOW.keys() <= {str(question) for question in questions}
        for metric, label in choices():
            assert set(prometheus.choices(metric, label)) == {"movies", BROKEN}
        caught(prometheus, questions[0])


def live(running: PlatformProcess, world: World, prometheus: Prometheus, data: Path) -> None:
    """A first version, users who come, a retraining by what they do, its shadow and canary, and its end by a person."""
    first = running.post("/v1/recommenders", specified(data))["run"]
    running.wait_for_rollout(running.wait_for_run(first, "registered")["rollout"], "promoted")
    until("its first answer", lambda: running.client.post("/v1/recommend/movies", json={"user": 1}).is_success)
    users = Users(running, data)

    def after_users(what: str, question: str) -> None:
        until(what, lambda: users.come() or prometheus.answers(question), 120)

    after_users("drift is measured", "eyas_drift")
    after_users("the candidate has shown what it earns", "eyas_rollout_lift")
    (rollout,) = running.get("/v1/recommenders/movies/rollouts", state="canary")["items"]
    running.post(f"/v1/rollouts/{rollout['id']}:promote", {"reason": "seen enough"})
    world.serve(Route(world.version(not_a_number_of_real_items())))
    until("answers without scores", lambda: running.post(f"/v1/recommend/{BROKEN}", {"user": 1})["fallback"] == "scoring unavailable")
    what_a_few_do(running, data)
    after_users("it has ended", 'eyas_rollouts_total{recommender="movies", state="promoted"} > 1')


def caught(prometheus: Prometheus, one: Asked) -> None:
    """What this test would say of a metric that nobody exports, and of a question that is none."""
    assert prometheus.answers(one.question)
    misspelt = one.question.replace("eyas_", "eyas_x", 1)
    assert misspelt != one.question and not prometheus.answers(misspelt)
    with pytest.raises(httpx.HTTPStatusError, match="400"):
        prometheus.answers(f"({one.question}")
