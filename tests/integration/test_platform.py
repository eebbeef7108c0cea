"""The embedded platform as a process: it starts clean, ends clean, and survives what dies around it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.servers.platform_process import PlatformProcess, leftovers, until
from tests.support.platform_world import spec, write_world
from tests.support.torch_available import torchrec


def up(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Starts a platform that is expected to refuse."""
    command = [sys.executable, "-m", "services.cli.main", "up", "--home", str(home), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def refusal(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode not in (0, None)
    assert "Traceback" not in result.stderr
    return result.stderr.strip().splitlines()[-1]


@pytest.mark.requirement("C-09")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_cleanly_and_leaves_nothing(tmp_path: Path, how: signal.Signals) -> None:
    """PostgreSQL's are of a server of other tests: the platform starts none."""
    before = ours()
    with PlatformProcess(tmp_path / "home", tmp_path) as platform:
        assert any("tritonserver" in child.name() for child in platform.children())
        url = json.loads((tmp_path / "home/endpoint.json").read_text())["url"]
        assert f"the console: {url}/ (sign in with the token in {tmp_path / 'home/token'})" in platform.log
        assert platform.stop(how) == 0
    assert not (tmp_path / "home/endpoint.json").exists()
    assert ours() <= before


def ours() -> set[str]:
    return {name for name in leftovers("") if not name.startswith("PostgreSQL.")}


def test_a_second_platform_on_a_home_is_refused(tmp_path: Path) -> None:
    with PlatformProcess(tmp_path / "home", tmp_path) as platform:
        assert platform.process is not None
        said = refusal(up(tmp_path / "home"))
        assert str(tmp_path / "home") in said
        assert f"process {platform.process.pid}" in said
        assert platform.get("/readyz")


def test_a_port_that_was_asked_for_and_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refusal(up(tmp_path / "home", "--port", str(port)))
        assert f"port {port} for the API is not free" in said
        said = refusal(up(tmp_path / "home", "--port", "0", "--metrics-port", str(port)))
        assert f"port {port} for /metrics is not free" in said


def test_defaults_that_are_taken_give_way_to_free_ports(tmp_path: Path) -> None:
    """Two platforms without a word about ports: the second one can't have the defaults, whoever holds them."""
    with PlatformProcess(tmp_path / "a/home", tmp_path, ports=()) as one, PlatformProcess(tmp_path / "b/home", tmp_path, ports=()) as other:
        assert one.client.base_url != other.client.base_url
        assert one.metrics_url != other.metrics_url
        assert one.get("/readyz")
        assert other.get("/readyz")
        assert "is taken: using" in other.log


def test_a_home_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert "can't be written" in refusal(up(tmp_path / "file"))
    assert "can't be written" in refusal(up(tmp_path / "file" / "home"))


@pytest.mark.requirement("C-01")
def test_nothing_but_health_answers_without_the_token(tmp_path: Path) -> None:
    with PlatformProcess(tmp_path / "home", tmp_path) as platform:
        url = str(platform.client.base_url)
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert httpx.get(f"{url}/v1/recommenders").status_code == 401
        assert httpx.get(f"{url}/v1/recommenders", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert httpx.get(f"{url}/metrics").status_code in (401, 404)
        assert "eyas_reconcile_seconds" in httpx.get(platform.metrics_url).text
        assert (tmp_path / "home/token").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "home/token").read_text() not in platform.log
        assert {connection.laddr.ip for connection in _listening(platform)} <= {"127.0.0.1", "::ffff:127.0.0.1"}


def _listening(platform: PlatformProcess) -> list[psutil._common.pconn]:
    assert platform.process is not None
    processes = [psutil.Process(platform.process.pid), *platform.children()]
    return [c for one in processes for c in one.net_connections("tcp") if c.status == psutil.CONN_LISTEN]


def scored(platform: PlatformProcess) -> dict[str, Any]:
    """The model's own answer, once Triton has it and the time for it."""

    def answer() -> dict[str, Any] | None:
        found = platform.client.post("/v1/recommend/movies", json={"user": 1})
        return found.json() if found.is_success and found.json()["fallback"] is None else None

    return dict(until("the model answers", answer))


@pytest.mark.requirement("C-05", "C-09")
def test_killed_children_come_back(tmp_path: Path) -> None:
    """A stage that is killed is tried again; a tritonserver that is killed returns with its versions."""
    data = tmp_path / "data"
    write_world(data)
    with PlatformProcess(tmp_path / "home", data) as platform:
        run = platform.post("/v1/recommenders", spec(data, serve={"order": {"explore": {"rate": 0}}}))["run"]  # its answers are compared
        until("the training process", lambda: _kill(platform, "pipelines.stages.train"))
        found = platform.wait_for_run(run, "registered")
        assert found["stages"][1]["attempt"] == f"{run}-train-2"
        platform.wait_for_rollout(found["rollout"], "promoted")
        answer = scored(platform)
        assert _kill(platform, "bin/tritonserver")
        degraded = platform.post("/v1/recommend/movies", {"user": 1})
        assert degraded["items"]
        assert scored(platform)["items"] == answer["items"]


@pytest.mark.requirement("C-05")
def test_a_person_leads_a_rollout_and_no_request_fails(tmp_path: Path) -> None:
    """Pause, resume, promote, roll back, under traffic: what was asked happens, is written down, and nobody notices."""
    data = tmp_path / "data"
    write_world(data)
    with PlatformProcess(tmp_path / "home", data) as platform:
        first = platform.wait_for_run(platform.post("/v1/recommenders", spec(data))["run"], "registered")
        platform.wait_for_rollout(first["rollout"], "promoted")
        until("the first answer", lambda: platform.client.post("/v1/recommend/movies", json={"user": 1}).is_success)
        with Passers(platform) as passers:
            changed = spec(data, epochs=2)
            second = platform.wait_for_run(platform.post("/v1/recommenders", changed)["run"], "registered")
            rollout = second["rollout"]
            platform.wait_for_rollout(rollout, "canary")
            path = f"/v1/rollouts/{rollout}"
            platform.post(f"{path}:pause", {"reason": "lunch"})
            assert platform.wait_for_rollout(rollout, "paused")["reason"].endswith("lunch")
            assert platform.client.post(f"{path}:pause", json={}).status_code == 409
            platform.post(f"{path}:resume")
            platform.wait_for_rollout(rollout, "canary")
            platform.post(f"{path}:promote", {"reason": "looks good"})
            platform.wait_for_rollout(rollout, "promoted")
            until("users see version 2", lambda: passers.newest == 2)
            platform.post("/v1/recommenders/movies:rollback", {"reason": "second thoughts"})
            until("users see version 1", lambda: passers.newest == 1)
        assert passers.failures == []
        assert passers.answers > 100
        targets = [entry["target"] for entry in platform.get(f"{path}/events")["items"]]
        assert targets == ["pending", "loading", "canary", "paused", "canary", "promoted"]
        assert platform.get("/v1/recommenders/movies")["serving"]["stable"] == 1


class Passers:
    """Users who ask without a pause, on a thread."""

    def __init__(self, platform: PlatformProcess) -> None:
        self._platform = platform
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._pass_by)
        self.answers = 0
        self.newest = 0
        self.failures: list[str] = []

    def __enter__(self) -> Passers:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._leaving.set()
        self._thread.join()

    def _pass_by(self) -> None:
        with httpx.Client(base_url=self._platform.client.base_url, headers=self._platform.client.headers, timeout=20) as client:
            while not self._leaving.wait(0.005):
                answer = client.post("/v1/recommend/movies", json={"user": self.answers % 100 + 1})
                self.answers += 1
                if answer.is_success and answer.json()["fallback"] is None:
                    self.newest = answer.json()["version"]
                else:
                    self.failures.append(answer.text)


def test_a_cancelled_run_ends_its_process_and_one_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_world(data)
    with PlatformProcess(tmp_path / "home", data) as platform:
        run = platform.post("/v1/recommenders", spec(data, epochs=500))["run"]
        until("the training process", lambda: _stages(platform, "pipelines.stages.train"))
        platform.post(f"/v1/runs/{run}:cancel", {"reason": "wrong data"})
        assert platform.wait_for_run(run, "cancelled")["reason"].endswith("wrong data")
        until("no process is left", lambda: not _stages(platform, "pipelines.stages"))
        hurried = spec(data, epochs=500, resources={"train": {"timeout": "200ms"}})
        found = platform.wait_for_run(platform.post("/v1/recommenders", hurried)["run"], "failed")
        assert found["reason"].startswith("train, attempt 3: ran longer than 0.2 s; gave up")
        assert not _stages(platform, "pipelines.stages")


def _stages(platform: PlatformProcess, module: str) -> list[psutil.Process]:
    return [child for child in platform.children() if any(module in part for part in _command(child))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def _kill(platform: PlatformProcess, command: str) -> bool:
    for child in platform.children():
        try:
            if any(command in part for part in child.cmdline()) and "shim.py" not in " ".join(child.cmdline()):
                os.kill(child.pid, signal.SIGKILL)
                return True
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return False


@pytest.mark.requirement("G-24", "G-27")
def test_a_run_that_is_trained_by_two_processes_with_tables_by_row_is_registered_and_answers(tmp_path: Path) -> None:
    torchrec()
    data = tmp_path / "data"
    write_world(data)
    train = {"epochs": 2, "batch_size": 512, "processes": 2, "shard": "row", "optimizer": "adagrad"}
    model = {"framework": "torch", "params": {"layers": [16], "width": 8}, "train": train}
    with PlatformProcess(tmp_path / "home", data) as platform:
        found = platform.wait_for_run(platform.post("/v1/recommenders", spec(data, model=model))["run"], "registered")
        assert found["stages"][1]["attempt"].endswith("-train-1")
        platform.wait_for_rollout(found["rollout"], "promoted")
        assert scored(platform)["items"]
