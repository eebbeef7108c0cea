"""From users who stop liking what they are shown to the first stage of a retraining: platform, Prometheus, Alertmanager, webhook.

All of it is real and on loopback: the embedded platform with its Triton, Debian's Prometheus over its /metrics with the chart's rules, and
Debian's Alertmanager configured as docs/how-to/alertmanager.yaml. The rules look at hours and days; here every window, offset and `for` of
the file is divided by `--faster`, and nothing else of it is changed. The time of each hop is known by Prometheus' samples, by the records
of Alertmanager and of the platform, and by reading /metrics up to fifty times a second.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import httpx

from benchmarks.harness import Fields, Outcome, Row, benchmark, scratch, until
from benchmarks.rollout_world import NAME, World
from shared.contracts.spec import RecommenderSpec
from shared.domain.route import Route
from shared.testing.threads import Threads
from tests.servers.alerting import RULES, Alertmanager, Prometheus, faster
from tests.servers.platform_process import PlatformProcess
from tests.support.platform_world import USERS, spec, write_world

ALERT = "EyasHitRateFell"
BEFORE, AFTER = 0.9, 0.2
"""How likely a user likes the first item of an answer."""
FALLEN = 0.8
"""Of what was usual: the rule's own bound."""
ENOUGH = 150
PATIENCE = 240.0

HOPS = {
    "told": "users stop liking: /metrics says a fifth less",
    "scraped": "Prometheus has scraped it",
    "recorded": "the rule has recorded it",
    "pending": "the alert is pending",
    "firing": "it fires",
    "alertmanager": "Alertmanager has it",
    "webhook": "POST /v1/alerts",
    "run": "a run is created",
    "stage": "its first stage starts",
}


@dataclass(frozen=True)
class Pace:
    faster: int = 3600
    scrape: str = "250ms"
    evaluation: str = "250ms"
    group_wait: str = "0s"
    visits: float = 40.0
    """A second, at most."""
    window: str = "60s"
    """Of the newest answers, on which the exported hit rate rests."""


@dataclass
class Chain:
    """When an alert arrived at each component, in seconds of the machine's clock, and the run that the alert started."""

    moments: dict[str, float] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)

    def seconds(self) -> dict[str, float]:
        """Returns the seconds of each hop since the hop before it."""
        return {later: self.moments[later] - self.moments[earlier] for earlier, later in pairwise(("fall", *HOPS))}


class Users(Threads):
    """They come one after the other, ask, and like what stands first, or not."""

    def __init__(self, platform: PlatformProcess, visits: float) -> None:
        super().__init__(self._visit_all)
        self._platform, self._gap = platform, 1 / visits
        self._random = random.Random(7)  # noqa: S311
        self.likes = BEFORE
        self.answers = 0
        self.fault: Exception | None = None

    def _visit_all(self) -> None:
        try:
            while not self.over.wait(self._gap):
                self._visit()
        except Exception as error:
            self.fault = error

    def _visit(self) -> None:
        user = self._random.randint(1, USERS)
        answer = self._platform.post(f"/v1/recommend/{NAME}", {"user": user, "k": 5})
        self.answers += 1
        if self._random.random() < self.likes:
            event = {"recommender": NAME, "user": user, "item": answer["items"][0]["item"], "request_id": answer["request_id"]}
            self._platform.post("/v1/events", {"events": [event]})


def chain(folder: Path, pace: Pace) -> Chain:
    """Once, in a folder of its own."""
    home, data = folder / "platform" / "home", folder / "data"
    write_world(data)
    world = World(home, USERS + 1, {})
    world.put_spec(RecommenderSpec.model_validate(watched(data, pace)))
    world.serve(Route(world.version()))
    world.close()
    rules = folder / "rules.yaml"
    rules.write_text(faster(RULES.read_text(), pace.faster))
    with PlatformProcess(home, data) as platform:
        made = platform.post("/v1/tokens", {"name": "alertmanager", "role": "operator", "recommenders": None, "expires_in": "1h"})
        until("the first answer", lambda: platform.client.post(f"/v1/recommend/{NAME}", json={"user": 1}).is_success)
        api = str(platform.client.base_url)
        with (
            Users(platform, pace.visits) as users,
            Alertmanager(folder / "alertmanager", api, made["token"], pace.group_wait, "1h") as alertmanager,
        ):
            until("answers enough for a hit rate", lambda: users.answers >= ENOUGH, PATIENCE)
            metrics = [platform.metrics_url]
            with Prometheus(folder / "prometheus", metrics, rules, alertmanager.url, pace.scrape, pace.evaluation) as prometheus:
                return _watched(platform, users, prometheus, alertmanager, pace)


def watched(data: Path, pace: Pace) -> dict[str, Any]:
    """Retrained by that alert alone: the trigger on the hit rate is there for its window, over which the hit rate is exported."""
    quiet = {"hit_rate": "-90%", "window": pace.window, "min_answers": 1_000_000}
    return spec(data, name=NAME, retrain={"on": [{"alert": {"names": [ALERT]}}, {"kpi": quiet}], "mode": "full", "cooldown": "1m"})


def _watched(platform: PlatformProcess, users: Users, prometheus: Prometheus, alertmanager: Alertmanager, pace: Pace) -> Chain:
    usual = "eyas:hit_rate:usual1h > 0 and eyas:hit_rate:avg1h > 0.9 * eyas:hit_rate:usual1h"
    until("a day's hit rate, a day ago", lambda: prometheus.series(usual), PATIENCE)
    assert platform.get("/v1/runs", recommender=NAME)["items"] == [], "a retraining began before anything had changed"
    (*_, (_, before)) = prometheus.samples("eyas:hit_rate:usual1h")
    result = Chain()
    users.likes = AFTER
    moments = result.moments
    moments["fall"] = time.time()

    def look() -> bool:
        """Reads one source after the other, so that it costs the platform little."""
        assert users.fault is None, users.fault
        if "told" not in moments:
            if _hit_rate(platform) < FALLEN * before:
                moments["told"] = time.time()
            return False
        if "alertmanager" not in moments:
            if (received := alertmanager.told(ALERT)) is not None:
                moments["alertmanager"] = received.timestamp()
            return False
        runs = platform.get("/v1/runs", recommender=NAME)["items"]
        result.run = runs[0] if runs else {}
        return bool(runs and runs[0]["stages"] and runs[0]["stages"][0]["started_at"])

    until("the first stage of a retraining", look, PATIENCE)
    for state in ("pending", "firing"):
        moments[state] = prometheus.samples(f'ALERTS{{alertname="{ALERT}",alertstate="{state}"}}')[0][0]
    usual_then = (value for at, value in prometheus.samples("eyas:hit_rate:usual1h") if moments["fall"] <= at <= moments["pending"])
    bound = FALLEN * max(usual_then)  # the rule compares with what is usual at its own moment, which is not what it was before the fall
    for hop, selector in (("scraped", f'eyas_hit_rate{{recommender="{NAME}"}}'), ("recorded", "eyas:hit_rate:ratio")):
        moments[hop] = next(at for at, value in prometheus.samples(selector) if at > moments["fall"] and value < bound)
    moments["told"] = min(moments["told"], moments["scraped"])
    moments["webhook"] = min(at for at in _deliveries(platform) if at >= moments["firing"])
    moments["run"] = _unix(result.run["created_at"])
    moments["stage"] = _unix(result.run["stages"][0]["started_at"])
    return result


def _hit_rate(platform: PlatformProcess) -> float:
    """The hit rate by /metrics."""
    text = httpx.get(platform.metrics_url, trust_env=False, timeout=10).text
    (value,) = re.findall(rf'^eyas_hit_rate\{{recommender="{NAME}",version="1"\}} (\S+)', text, re.MULTILINE)
    return float(value)


def _deliveries(platform: PlatformProcess) -> Iterator[float]:
    """When the webhook was called, by the audit log."""
    for entry in platform.get("/v1/audit", action="POST /v1/alerts")["items"]:
        yield _unix(entry["at"])


def _unix(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


@benchmark("alerting")
def alerting(
    runs: int = 3,
    faster: Annotated[int, "by what the rules' windows are divided"] = 3600,
    scrape: Annotated[str, "Prometheus' scrape_interval"] = "250ms",
    evaluation: Annotated[str, "its evaluation_interval"] = "250ms",
    group_wait: Annotated[str, "Alertmanager's"] = "0s",
) -> Iterator[Outcome]:
    pace = Pace(faster, scrape, evaluation, group_wait)
    yield Fields(pace=asdict(pace))
    chains = []
    for _ in range(runs):
        with scratch() as folder:
            chains.append(chain(folder, pace).seconds())
    case = f"{faster:,} times as fast"
    for hop, label in HOPS.items():
        yield Row(case, "eyas", label, "s", [seconds[hop] for seconds in chains])
    yield Row(case, "eyas", "all of it", "s", [sum(seconds.values()) for seconds in chains])


if __name__ == "__main__":
    alerting()
