"""The platform in parts, as a cluster runs it: a Triton, a control plane and a gateway, each a process of its own on shared folders."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import psutil
import pytest

from tests.servers.platform_process import checked, leftovers, until
from tests.servers.postgres_server import GUARDED, PASSWORD, Server
from tests.support.platform_world import spec, write_world

TOKEN = "a-token-of-the-test-that-is-long-enough"


class Part:
    """One process; its log tells where it listens."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, **environment: str) -> None:
        self.name = name
        self.command = [sys.executable, "-m", *command]
        self.log = folder / f"{name}.log"
        self.environment = os.environ | environment
        self.start()

    def start(self) -> None:
        self._offset = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.log.read_text()[self._offset :]

    def ready(self) -> re.Match[str]:
        def probe() -> re.Match[str] | None:
            assert self.process.poll() is None, f"{self.name} ended:\n{self.said()}"
            return re.search(r"ready(?: as \w+ \S+ in [0-9.]+ s)?: (\S+)", self.said())

        return until(f"{self.name} is ready", probe, 180)

    def url(self) -> str:
        return self.ready()[1]

    def stop(self) -> int:
        children = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        _, alive = psutil.wait_procs(children, timeout=10)
        assert not alive, f"outlived {self.name}: {alive}"
        return code


class Parts:
    def __init__(self, folder: Path, database: str | None = None, tritons: int = 1, **more: str) -> None:
        """On a database of its own, there are two control planes, each with a home; several Tritons have a home each, below that of one."""
        self.data = folder / "data"
        home = folder / "home"
        write_world(self.data)
        (folder / "token").write_text(f"{TOKEN}\n")
        places = [free_ports(3) for _ in range(tritons)]
        self.tritons = []
        for number, (grpc, metrics, health) in enumerate(places, 1):
            own = home / "triton" / (f"127.0.0.1_{grpc}" if tritons > 1 else "")
            where = ["--home", str(own), "--grpc", str(grpc), "--metrics", str(metrics), "--health", str(health)]
            self.tritons.append(Part(f"triton-{number}", ["services.triton.serve", *where], folder))
        self.triton, self.healths = self.tritons[0], [f"http://127.0.0.1:{health}" for *_, health in places]
        shared = {
            "EYAS_HOME": str(home),
            "EYAS_DATABASE_URL": database or f"sqlite:///{home}/eyas.db",
            "EYAS_ARTIFACTS_URL": str(home / "artifacts"),
            "EYAS_TRITON_HOME": str(home / "triton"),
            **more,
            "EYAS_TRITON": ",".join(f"127.0.0.1:{grpc}" for grpc, *_ in places),
            "EYAS_TRITON_METRICS": ",".join(f"http://127.0.0.1:{metrics}/metrics" for _, metrics, _ in places),
            "EYAS_TOKEN_FILE": str(folder / "token"),
            "EYAS_DATA_ROOTS": str(self.data),
        }
        serve = ["services.cli.main", "serve", "--port", "0", "--metrics-port", "0", "--role"]
        self.control = Part("control", [*serve, "control"], folder, **shared, EYAS_REPLICA="control-1")
        self.gateway = Part("gateway", [*serve, "gateway"], folder, **shared, EYAS_REPLICA="gateway-1")
        self.parts: tuple[Part, ...] = (self.gateway, self.control, *self.tritons)
        if database:
            other = shared | {"EYAS_HOME": str(folder / "other")}
            self.other = Part("other", [*serve, "control"], folder, **other, EYAS_REPLICA="control-2")
            self.parts = (self.gateway, self.control, self.other, *self.tritons)

    def client(self, part: Part) -> httpx.Client:
        return httpx.Client(base_url=part.url(), headers={"Authorization": f"Bearer {TOKEN}"}, timeout=20)

    def recommend(self, user: int = 3) -> dict:
        with self.client(self.gateway) as client:
            return checked(client.post("/v1/recommend/movies", json={"user": user, "k": 5}))

    def wait_for_an_answer_of_the_model(self) -> dict:
        def probe() -> dict | None:
            with self.client(self.gateway) as client:
                answer = client.post("/v1/recommend/movies", json={"user": 3, "k": 5})
            if answer.status_code == 503:  # the gateway hasn't read the new route yet
                return None
            found: dict = checked(answer)
            return found if found["fallback"] is None else None

        return until("the model answers", probe)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return found


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    before = set(leftovers("eyas_"))
    running = Parts(tmp_path_factory.mktemp("parts"))
    yield running
    assert {part.name: part.stop() for part in running.parts} == {"gateway": 0, "control": 0, "triton-1": 0}
    assert set(leftovers("eyas_")) <= before


def first_version(parts: Parts) -> None:
    with parts.client(parts.control) as control:
        until("the control plane is ready", lambda: control.get("/readyz").is_success)
        checked(control.post("/v1/recommenders", json=spec(parts.data)))
        run = checked(control.get("/v1/recommenders/movies/runs"))["items"][0]["id"]  # the first one begins by itself
        rollout = f"{run}-rollout"

        def promoted() -> bool:
            state = checked(control.get(f"/v1/runs/{run}"))
            assert state["state"] not in ("rejected", "failed", "cancelled"), f"{state}\n{parts.control.said()}"
            found = control.get(f"/v1/rollouts/{rollout}")
            return found.is_success and found.json()["state"] == "promoted"

        until("the first version is promoted", promoted, 600)


def hits_of_a_click(parts: Parts) -> int:
    """On the first item of an answer. The spec's users click within half a second, which a busy machine may be too slow for."""
    answer = parts.recommend()
    event = {"recommender": "movies", "user": 3, "item": answer["items"][0]["item"], "value": 5, "request_id": answer["request_id"]}
    with parts.client(parts.gateway) as gateway:
        return int(checked(gateway.post("/v1/events", json={"events": [event]}))["hits"])


@pytest.mark.requirement("C-05")
def test_a_run_becomes_a_version_that_the_gateway_answers_with(parts: Parts) -> None:
    first_version(parts)
    answer = parts.wait_for_an_answer_of_the_model()
    assert answer["version"] == 1
    assert len(answer["items"]) == 5
    until("what is clicked in time is a hit", lambda: hits_of_a_click(parts) == 1)


def test_a_triton_that_died_is_given_back_its_versions(parts: Parts) -> None:
    before = parts.wait_for_an_answer_of_the_model()
    server = next(child for child in psutil.Process(parts.triton.process.pid).children() if "tritonserver" in child.name())
    server.kill()
    assert parts.recommend()["items"], "popular items at least, whatever Triton does"
    until("Triton was started again", lambda: "it was started again" in parts.triton.said())
    assert parts.wait_for_an_answer_of_the_model()["version"] == before["version"]


def test_a_triton_in_a_new_place_of_the_same_folder_is_found(parts: Parts) -> None:
    assert parts.triton.stop() == 0
    assert parts.recommend()["fallback"] == "scoring unavailable"
    parts.triton.start()
    parts.triton.ready()
    assert parts.wait_for_an_answer_of_the_model()["version"] == 1


def test_a_gateway_goes_on_without_its_control_plane_and_the_next_one_takes_over(parts: Parts) -> None:
    assert parts.control.stop() == 0
    assert parts.recommend()["fallback"] is None
    parts.control.start()
    with parts.client(parts.control) as control:
        until("the control plane is ready", lambda: control.get("/readyz").is_success)
        assert [one["version"] for one in checked(control.get("/v1/recommenders/movies/versions"))["items"]] == [1]
    assert parts.wait_for_an_answer_of_the_model()["version"] == 1


def test_a_gateway_that_is_asked_to_end_answers_as_not_ready_until_it_does(parts: Parts) -> None:
    before = parts.gateway.environment
    assert parts.gateway.stop() == 0
    try:
        parts.gateway.environment = before | {"EYAS_DRAIN": "10m"}
        parts.gateway.start()
        parts.wait_for_an_answer_of_the_model()
        with parts.client(parts.gateway) as kept, parts.client(parts.gateway) as other:
            assert "connection" not in kept.get("/readyz").headers
            parts.gateway.process.send_signal(signal.SIGTERM)
            until("it is not ready", lambda: other.get("/readyz").status_code == 503)
            assert other.get("/readyz").json()["waiting"] == ["it has been asked to end"]
            answer = kept.post("/v1/recommend/movies", json={"user": 3, "k": 5})
            assert checked(answer)["fallback"] is None
            assert answer.headers["connection"] == "close", "who kept a connection is to go elsewhere"
            assert other.get("/healthz").is_success, "it lives: nobody is to kill it"
        assert parts.gateway.stop() == 0, "who can't wait asks twice"
        parts.gateway.environment = before | {"EYAS_DRAIN": "500ms"}
        parts.gateway.start()
        parts.gateway.ready()
        assert parts.gateway.stop() == 0, "it ends by itself when the time is over"
    finally:
        parts.gateway.environment = before
        if parts.gateway.process.poll() is not None:
            parts.gateway.start()
    assert parts.wait_for_an_answer_of_the_model()["version"] == 1


def test_a_second_control_plane_on_the_same_file_is_refused(parts: Parts) -> None:
    second = subprocess.run(parts.control.command, env=parts.control.environment, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode != 0
    assert "is in use by another platform" in second.stderr + second.stdout


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "services.triton.serve", "--home", str(tmp_path), "--health", port]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "Address already in use" in ended.stderr


def test_of_two_control_planes_on_postgresql_the_other_one_goes_on_placing(tmp_path: Path, postgres: Server) -> None:
    """Its password comes by a file, and stands in no log."""
    if not postgres.execute(f"SELECT 1 FROM pg_roles WHERE rolname = '{GUARDED}'"):
        postgres.execute(f"CREATE ROLE {GUARDED} LOGIN PASSWORD '{PASSWORD}'")
    postgres.execute(f"CREATE DATABASE roles OWNER {GUARDED}")
    (tmp_path / "password").write_text(PASSWORD)
    parts = Parts(tmp_path, postgres.url("roles", GUARDED), EYAS_DATABASE_PASSWORD_FILE=str(tmp_path / "password"))
    try:
        parts.other.ready()
        first_version(parts)
        assert parts.wait_for_an_answer_of_the_model()["version"] == 1
        (leader,) = [one for one in (parts.control, parts.other) if "placed movies" in one.said()]
        heir = parts.other if leader is parts.control else parts.control
        leader.process.kill()
        leader.process.wait()
        until("the other one places", lambda: "placed movies: versions 1" in heir.said(), 90)
        assert parts.triton.stop() == 0
        parts.triton.start()
        parts.triton.ready()
        assert parts.wait_for_an_answer_of_the_model()["version"] == 1
        assert not [part.name for part in parts.parts if PASSWORD in part.log.read_text()]
    finally:
        codes = {part.name: part.stop() for part in parts.parts if part.process.poll() is None}
    assert set(codes.values()) == {0}
