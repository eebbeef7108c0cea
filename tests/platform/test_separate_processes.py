"""The platform in separate processes, as a cluster runs it: a Triton, a control plane and a gateway on shared folders."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.servers.platform_parts import Parts
from tests.servers.platform_process import checked, until
from tests.servers.postgres_server import GUARDED, PASSWORD, Server
from tests.support.platform_world import quick_spec
from tests.support.secret_files import write_secret


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    """Version 1 of `movies` serves."""
    running = Parts(tmp_path_factory.mktemp("parts"))
    try:
        first_version(running)
        assert any(part.shared_memory() for part in running.parts)
        yield running
    finally:
        codes = {part.name: part.stop() for part in running.parts}
    assert codes == {"gateway": 0, "control": 0, "triton-1": 0}
    assert [name for part in running.parts for name in part.shared_memory()] == []


def first_version(parts: Parts) -> None:
    with parts.client(parts.control) as control:
        until("the control plane is ready", lambda: control.get("/readyz").is_success)
        checked(control.post("/v1/recommenders", json=quick_spec(parts.data)))
        run = checked(control.get("/v1/recommenders/movies/runs"))["items"][0]["id"]  # the first one begins by itself
        rollout = f"{run}-rollout"

        def promoted() -> bool:
            for part in parts.parts:
                part.children()  # what they own in /dev/shm is looked for at the end
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
    answer = parts.wait_for_an_answer_of_the_model()
    assert answer["version"] == 1
    assert len(answer["items"]) == 5
    until("what is clicked in time is a hit", lambda: hits_of_a_click(parts) == 1)


def test_a_triton_that_died_is_given_back_its_versions(parts: Parts) -> None:
    before = parts.wait_for_an_answer_of_the_model()
    server = next(child for child in psutil.Process(parts.triton.process.pid).children() if "tritonserver" in child.name())
    server.kill()
    assert parts.recommend()["items"], "popular items at least, whatever Triton does"
    until("Triton was started again", lambda: "triton: restarted" in parts.triton.said())
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
            assert other.get("/readyz").json()["waiting"] == ["the process is shutting down"]
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
        command = [sys.executable, "-m", "services.triton.serve", "--home", str(tmp_path), "--plaintext", "--health", port]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "Address already in use" in ended.stderr


def test_of_two_control_planes_on_postgresql_the_other_one_goes_on_placing(tmp_path: Path, postgres: Server) -> None:
    """Its password comes by a file, and stands in no log."""
    if not postgres.execute(f"SELECT 1 FROM pg_roles WHERE rolname = '{GUARDED}'"):
        postgres.execute(f"CREATE ROLE {GUARDED} LOGIN PASSWORD '{PASSWORD}'")
    postgres.execute(f"CREATE DATABASE roles OWNER {GUARDED}")
    write_secret(tmp_path / "password", PASSWORD)
    parts = Parts(tmp_path, postgres.url("roles", GUARDED), EYAS_DATABASE_PASSWORD_FILE=str(tmp_path / "password"))
    try:
        parts.other.ready()
        first_version(parts)
        assert parts.wait_for_an_answer_of_the_model()["version"] == 1
        (leader,) = [process for process in (parts.control, parts.other) if "placement: finished recommender=movies" in process.said()]
        heir = parts.other if leader is parts.control else parts.control
        leader.process.kill()
        leader.process.wait()
        until("the other one places", lambda: "placement: finished recommender=movies versions=1" in heir.said(), 90)
        assert parts.triton.stop() == 0
        parts.triton.start()
        parts.triton.ready()
        assert parts.wait_for_an_answer_of_the_model()["version"] == 1
        assert not [part.name for part in parts.parts if PASSWORD in part.log.read_text()]
    finally:
        codes = {part.name: part.stop() for part in parts.parts if part.process.poll() is None}
    assert set(codes.values()) == {0}
