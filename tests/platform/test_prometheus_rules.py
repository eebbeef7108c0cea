"""A real Prometheus scrapes a running platform and works its rules: each can be worked, and one that should alert begins to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.rollout_world import NAME, World
from shared.domain.route import Route
from tests.servers.alerting import RULES, Prometheus, faster
from tests.servers.platform_process import PlatformProcess, until
from tests.support.alert_rules import rules
from tests.support.broken_models import not_a_number_of_real_items


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[tuple[PlatformProcess, World]]:
    home = tmp_path / "platform" / "home"
    world = World(home, 100, {})
    world.serve(Route(world.version()))
    with PlatformProcess(home, home) as running:
        yield running, world
    world.close()


@pytest.mark.requirement("C-06")
def test_a_real_prometheus_works_every_rule_and_sees_answers_go_out_without_scores(
    platform: tuple[PlatformProcess, World], tmp_path: Path
) -> None:
    running, world = platform

    def asked() -> str | None:
        found = running.client.post(f"/v1/recommend/{NAME}", json={"user": 1})
        return str(found.json()["fallback"]) if found.is_success else None

    until("the first answer of its own", lambda: asked() == "None")
    quick = tmp_path / "rules.yaml"
    quick.write_text(every_second(RULES.read_text()))
    with Prometheus(tmp_path / "prometheus", [running.metrics_url], quick) as prometheus:
        until("each rule was worked once", lambda: all(one["health"] != "unknown" for one in prometheus.rules()))
        until(
            "recorded", lambda: asked() and prometheus.series("eyas:recommend_requests:rate5m") == [recorded("recommend_requests:rate5m")]
        )
        assert {one["name"] for one in prometheus.rules()} == {*rules("record"), *rules("alert")}
        assert [one for one in prometheus.rules() if one["health"] != "ok"] == []
        until("no alert: some rules were worked before anything was scraped", lambda: prometheus.alerts() == {})
        world.serve(Route(world.version(not_a_number_of_real_items())))
        until("answers without scores", lambda: asked() == "scoring unavailable")
        until("the alert, and no other, is on its way", lambda: asked() and prometheus.alerts() == {"EyasTritonUnhealthy": "pending"})


@pytest.mark.requirement("C-06")
def test_a_real_prometheus_alerts_on_requests_that_the_control_plane_fails_and_not_on_those_that_it_refuses(
    platform: tuple[PlatformProcess, World], tmp_path: Path
) -> None:
    """Windows of an hour take a minute. The database is moved away and back."""
    running, _ = platform
    quick = tmp_path / "rules.yaml"
    quick.write_text(every_second(faster(RULES.read_text(), 60)))
    with Prometheus(tmp_path / "prometheus", [running.metrics_url], quick) as prometheus:

        def statuses() -> set[int]:
            return {running.client.get(path).status_code for path in ("/v1/recommenders", "/v1/runs/none", "/readyz")}

        def objectives(expression: str) -> set[str]:
            return {series["slo"] for series in prometheus.series(expression)}

        both = {"control_errors", "control_slow"}
        until("requests are recorded", lambda: statuses() == {200, 404} and objectives("eyas:slo_requests:rate5m > 0") == both)
        assert prometheus.series('eyas_api_requests_total{outcome="error"}'), "the series starts before the first error"
        assert prometheus.series('eyas_recommend_requests_total{outcome="error"}'), "the series starts before the first error"
        until(
            "requests that are refused",
            lambda: statuses() and prometheus.series('rate(eyas_api_requests_total{outcome="refused"}[5s]) > 0'),
        )
        until("burn rates", lambda: statuses() and objectives("eyas:slo_burn:rate1h") >= both)
        assert objectives("eyas:slo_misses:rate5m > 0") == set()
        assert [name for name in prometheus.alerts() if "Budget" in name or name.endswith("Unavailable")] == []
        assert {series["part"] for series in prometheus.series("eyas_ready == 1")} == {"control", "gateway"}

        home = tmp_path / "platform/home"
        files, away = list(home.glob("eyas.db*")), tmp_path / "away"
        away.mkdir()
        for file in files:
            file.rename(away / file.name)
        alert = "EyasControlErrorBudgetBurnsFast"
        until("the alert", lambda: statuses() == {503} and prometheus.alerts().get(alert) == "firing")
        assert objectives("eyas:slo_misses:rate5m > 0") == {"control_errors"}
        until("the platform is not ready", lambda: prometheus.series("eyas_ready == 1") == [])
        for file in files:
            (away / file.name).rename(file)
        until("the platform is ready", lambda: statuses() == {200, 404} and len(prometheus.series("eyas_ready == 1")) == 2)
        until("the alert ends", lambda: statuses() and alert not in prometheus.alerts())


def every_second(rules: str) -> str:
    return re.sub(r"interval: \w+", "interval: 1s", rules)


def recorded(name: str) -> dict[str, str]:
    return {"__name__": f"eyas:{name}", "recommender": NAME}
