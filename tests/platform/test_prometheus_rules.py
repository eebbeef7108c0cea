"""A real Prometheus scrapes a running platform and works its rules: each can be worked, and one that should alert begins to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.rollout_world import NAME, World
from shared.domain.route import Route
from tests.servers.alerting import RULES, Prometheus
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
    quick.write_text(RULES.read_text().replace("interval: 2m", "interval: 1s"))
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


def recorded(name: str) -> dict[str, str]:
    return {"__name__": f"eyas:{name}", "recommender": NAME}
