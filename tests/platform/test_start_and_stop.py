"""The embedded platform starts on free ports, refuses what it can't use, and ends without a trace."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.servers.platform_process import PlatformProcess


@pytest.mark.requirement("C-09")
def test_two_platforms_on_default_ports_run_side_by_side_and_stop_cleanly(tmp_path: Path) -> None:
    """The second one can't have the default ports, whoever holds them. Either signal stops a platform."""
    first, second = tmp_path / "a", tmp_path / "b"
    with PlatformProcess(first / "home", first, ports=()) as one, PlatformProcess(second / "home", second, ports=()) as other:
        assert one.client.base_url != other.client.base_url
        assert one.metrics_url != other.metrics_url
        assert one.get("/readyz")
        assert other.get("/readyz")
        assert "port: taken, using another service=" in other.log
        for platform, how in ((one, signal.SIGTERM), (other, signal.SIGINT)):
            assert any("tritonserver" in child.name() for child in platform.children())
            url = json.loads((platform.home / "endpoint.json").read_text())["url"]
            assert f"console: sign in with the token url={url} token_file={platform.home / 'token'}" in platform.log
            assert platform.stop(how) == 0
            assert not (platform.home / "endpoint.json").exists()
            assert platform.shared_memory() == set()


def test_a_second_platform_on_a_home_is_refused(platform: PlatformProcess) -> None:
    assert platform.process is not None
    said = refusal(up(platform.home))
    assert str(platform.home) in said
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


def test_a_home_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert "can't be written" in refusal(up(tmp_path / "file"))
    assert "can't be written" in refusal(up(tmp_path / "file" / "home"))


@pytest.mark.requirement("C-01")
def test_nothing_but_health_answers_without_the_token(platform: PlatformProcess) -> None:
    url = str(platform.client.base_url)
    assert httpx.get(f"{url}/healthz").status_code == 200
    assert httpx.get(f"{url}/v1/recommenders").status_code == 401
    assert httpx.get(f"{url}/v1/recommenders", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert httpx.get(f"{url}/metrics").status_code in (401, 404)
    assert "eyas_reconcile_seconds" in httpx.get(platform.metrics_url).text
    assert (platform.home / "token").stat().st_mode & 0o777 == 0o600
    assert (platform.home / "token").read_text() not in platform.log
    assert {address for address, _ in platform.listening()} <= {"127.0.0.1", "::ffff:127.0.0.1"}


def up(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Starts a platform that is expected to refuse."""
    command = [sys.executable, "-m", "services.cli.main", "up", "--home", str(home), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def refusal(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode not in (0, None)
    assert "Traceback" not in result.stderr
    return result.stderr.strip().splitlines()[-1]
