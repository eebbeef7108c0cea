"""A real Alertmanager delivers to a live API, configured as docs/how-to/alertmanager.yaml is."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
import yaml
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.api.app import create_app
from services.api.credentials import Credentials
from services.api.dependencies import AuthConfig, ControlParts
from services.control.model_lineage import ModelLineages
from services.control.retrainers import Retrainers
from services.store.audit import SqlAudit
from services.store.engine import open_engine, sqlite_url
from services.store.idempotency import SqlIdempotency
from services.store.migrate import upgrade
from services.store.sessions import SqlSessions
from services.store.tokens import SqlTokens
from shared.domain.access import Role, Token, digest, token_text
from shared.ports import RunRecord
from tests.servers.alerting import EXAMPLE, Alertmanager
from tests.servers.platform_process import until
from tests.servers.prometheus_process import program
from tests.support.alert_rules import rules
from tests.support.forgotten import forgotten_users
from tests.support.simulated_platform import NAME, NOW, Plane, World

pytestmark = pytest.mark.requirement("C-03")

LABELS = {"alertname": "EyasHitRateFell", "recommender": NAME}
FIRST = f"{NAME}-retrain-1"


@dataclass
class Listening:
    """Passes on, and keeps what the webhook answered."""

    app: ASGIApp
    answers: list[tuple[int, Any]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, body = 0, b""

        async def noting(message: Message) -> None:
            nonlocal status, body
            status, body = message.get("status", status), body + message.get("body", b"")
            if message["type"] == "http.response.body" and scope["path"] == "/v1/alerts":
                self.answers.append((status, json.loads(body)))
            await send(message)

        await self.app(scope, receive, noting)

    def outcomes(self) -> list[str]:
        return [one["outcome"] for status, answer in self.answers if status == 200 for one in answer["alerts"]]


@dataclass
class Live:
    """The control plane over a database: its API on a port, its loop ticked by the test. Version 1 serves."""

    world: World
    plane: Plane
    door: Listening
    url: str
    token: str

    def runs(self) -> list[RunRecord]:
        return [one for one in self.world.runs.list(NAME) if one.id != "r1"]

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.world.round(self.plane)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    url = sqlite_url(tmp_path / "eyas.db")
    engine = open_engine(url)
    upgrade(engine)
    engine.dispose()
    world = World(tmp_path / "world", url)
    world.apply(retrain={"on": [{"alert": {"names": ["EyasHitRateFell"]}}], "cooldown": "10s"})
    plane = world.plane()
    plane.ensure()
    world.start_run("r1")
    world.until(plane, "registered")
    world.hero = ("rollout", "r1-rollout")
    world.until(plane, "promoted")
    world.hero = ("retrainer", NAME)
    text = token_text("alerts", os.urandom(32))
    tokens = SqlTokens(world.engine)
    tokens.add(Token("alerts", "alertmanager", digest(text), Role.OPERATOR, None, NOW, "ada"))
    sessions = SqlSessions(world.engine)
    credentials = Credentials("the first token", tokens, sessions, world.clock)
    auth = AuthConfig(world.clock, credentials, sessions, SqlIdempotency(world.engine), list)
    door = Listening(create_app(auth, parts(world, tokens), None))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(door, log_config=None, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield Live(world, plane, door, f"http://127.0.0.1:{listener.getsockname()[1]}", text)
        server.should_exit = True
        thread.join()
    world.close()


def parts(world: World, tokens: SqlTokens) -> ControlParts:
    lines = ModelLineages(world.registry, world.runs, world.routes, forgotten_users(world.engine))
    stores = (world.retrainers, world.runs, world.rollouts, world.recommenders, world.routes)
    look = Retrainers(*stores, world.signals, lines, world.clock).look
    unused: Any = SimpleNamespace()
    return ControlParts(
        recommenders=world.recommenders,
        runs=world.runs,
        rollouts=world.rollouts,
        retrainers=world.retrainers,
        registry=world.registry,
        routes=world.routes,
        catalogue=unused,
        executor=world.executor,
        artifacts=world.artifacts,
        server=world.server,
        clock=world.clock,
        ids=unused,
        days=unused,
        tokens=tokens,
        audit=SqlAudit(world.engine),
        drift=unused,
        liked=unused,
        kpis=unused,
        series=unused,
        empty=unused,
        life=unused,
        lately=unused,
        collect=unused,
        turns=unused,
        features=unused,
        plan=unused,
        watch=look,
        past=unused,
        forget=unused,
        keyed_hash=unused,
        stage_faults=lambda spec: {},
        check_place=lambda place: None,
        read_file=unused,
        place_fault=lambda place: None,
        table_header=lambda place: None,
        table_changed_at=lambda place: None,
        wake=lambda: None,
    )


def test_the_example_is_a_configuration_of_alerts_that_are_there_and_holds_no_secret() -> None:
    checked = subprocess.run(
        [program("prometheus-alertmanager", "amtool"), "check-config", str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    config = yaml.safe_load(EXAMPLE.read_text())
    (webhook,) = next(one for one in config["receivers"] if one["name"] == "eyas")["webhook_configs"]
    url = urlsplit(webhook["url"])
    assert (url.path, url.query, url.username, url.password) == ("/v1/alerts", "", None, None)
    assert webhook["http_config"] == {"authorization": {"credentials_file": "/etc/alertmanager/eyas-token"}}
    wanted = [
        one for part in (config["route"]["routes"], config["inhibit_rules"]) for rule in part for key in rule for one in matched(rule, key)
    ]
    alerts = rules("alert")
    assert len(wanted) > 5
    assert [one for one in wanted if not any(re.fullmatch(one, name) for name in alerts)] == []


def matched(rule: dict[str, Any], key: str) -> list[str]:
    """Names of alerts, each alternative by itself."""
    found = [re.fullmatch(r'alertname=~?"([^"]+)"', one) for one in rule[key]] if key.endswith("matchers") else []
    return [name for one in found if one for name in one[1].split("|")]


def alert(began: datetime, ends: datetime) -> dict[str, Any]:
    return {
        "labels": LABELS,
        "annotations": {"summary": "hit rate below 2%"},
        "startsAt": began.isoformat(),
        "endsAt": ends.isoformat(),
    }


def test_a_firing_starts_one_retraining_however_often_it_is_delivered(live: Live, tmp_path: Path) -> None:
    door, hour = live.door, timedelta(hours=1)
    began = datetime.now(UTC) - timedelta(minutes=1)

    def delivered_again(outcome: str) -> None:
        before = door.outcomes().count(outcome)
        until(f"two more answers '{outcome}'", lambda: door.outcomes().count(outcome) >= before + 2)

    with Alertmanager(tmp_path / "alertmanager", live.url, live.token) as alertmanager:
        alertmanager.post(alert(began, began + hour))
        until("the alert is delivered", lambda: "asked" in door.outcomes())
        delivered_again("asked")
        live.world.until(live.plane, "retraining", "retrainer")
        (run,) = live.runs()
        assert (run.id, run.spec.cause) == (FIRST, "alert by alertmanager: EyasHitRateFell: hit rate below 2%")
        assert live.world.retrainers.history(NAME)[-1].actor == "alertmanager"
        delivered_again("taken already")
        live.world.until(live.plane, "cooling")
        live.world.until(live.plane, "watching")
        delivered_again("taken already")
        live.rounds(3)
        assert [one.id for one in live.runs()] == [FIRST]

        alertmanager.post(alert(began, datetime.now(UTC) - timedelta(seconds=1)))
        until("it is resolved", lambda: "resolved" in door.outcomes())
        live.rounds(3)
        assert [one.id for one in live.runs()] == [FIRST]

        again = datetime.now(UTC)
        alertmanager.post(alert(again, again + hour))
        before = door.outcomes().count("asked")
        until("another firing is delivered", lambda: door.outcomes().count("asked") > before)
        live.world.until(live.plane, "retraining", "retrainer")
        assert [one.id for one in live.runs()] == [f"{NAME}-retrain-2", FIRST]
    assert set(door.outcomes()) == {"asked", "taken already", "resolved"}
    assert {status for status, _ in door.answers} == {200}


def test_a_wrong_token_is_refused_and_alertmanager_says_so(live: Live, tmp_path: Path) -> None:
    began = datetime.now(UTC)
    with Alertmanager(tmp_path / "alertmanager", live.url, live.token[:-1] + "x") as alertmanager:
        alertmanager.post(alert(began, began + timedelta(hours=1)))
        until("Alertmanager counts a failure", lambda: alertmanager.failures() > 0)
    live.rounds(3)
    assert live.runs() == []
    assert {status for status, _ in live.door.answers} == {401}
