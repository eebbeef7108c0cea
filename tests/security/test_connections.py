"""Slow, big and many connections to a real platform: each costs a bounded amount, and users of the platform go on."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.servers.platform_process import PlatformProcess, until

pytestmark = pytest.mark.requirement("C-01")

CONNECTIONS = 48
SCRAPERS = 64
MIB = 1 << 20


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    folder: Path = tmp_path_factory.mktemp("connections")
    (folder / "data").mkdir()
    with PlatformProcess(folder / "home", folder / "data", settings={"EYAS_CONNECTIONS": str(CONNECTIONS)}) as running:
        yield running


class Sockets:
    """Raw connections, closed at the end of a test."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").split("/")[0].split(":")
        self._address = host, int(port)
        self.all: list[socket.socket] = []

    def open(self, text: str = "") -> socket.socket:
        found = socket.create_connection(self._address, timeout=20)
        self.all.append(found)
        found.sendall(text.encode())
        return found

    def close(self) -> None:
        for one in self.all:
            one.close()
        self.all.clear()


@pytest.fixture
def api(platform: PlatformProcess) -> Iterator[Sockets]:
    found = Sockets(str(platform.client.base_url))
    yield found
    found.close()
    until("the API has only its own client", lambda: gauge(platform, "eyas_http_connections", "api") <= 2)


@pytest.fixture
def scrapers(platform: PlatformProcess) -> Iterator[Sockets]:
    found = Sockets(platform.metrics_url)
    yield found
    found.close()


def answer(connection: socket.socket) -> str:
    """All that comes until the server closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65_536):
            found += piece
    return found.decode()


def status(connection: socket.socket) -> int:
    """Of the next answer; the connection stays open."""
    found = http.client.HTTPResponse(connection)
    found.begin()
    found.read()
    return found.status


def metrics(platform: PlatformProcess) -> str:
    return httpx.get(platform.metrics_url, timeout=20).text


def gauge(platform: PlatformProcess, name: str, port: str) -> float:
    found = re.search(rf'^{name}{{port="{port}"}} (\S+)$', metrics(platform), re.MULTILINE)
    return float(found[1]) if found else 0.0


def closed(platform: PlatformProcess, reason: str, port: str = "api") -> float:
    found = re.search(rf'^eyas_http_connections_closed_total{{port="{port}",reason="{reason}"}} (\S+)$', metrics(platform), re.MULTILINE)
    assert found, reason
    return float(found[1])


def resident(platform: PlatformProcess) -> int:
    assert platform.process is not None
    found: int = psutil.Process(platform.process.pid).memory_info().rss
    return found


def threads(platform: PlatformProcess) -> int:
    assert platform.process is not None
    found: int = psutil.Process(platform.process.pid).num_threads()
    return found


def test_headers_without_end_are_refused_and_not_kept(platform, api):
    before, refused = resident(platform), closed(platform, "headers")
    for _ in range(4):
        connection = api.open("GET /v1/recommenders HTTP/1.1\r\nHost: x\r\nX-Big: ")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 60 * MIB:
                sent += connection.send(b"a" * 65_536)
        assert sent < 16 * MIB  # what two kernels buffer: the server has read less than 1 MiB
    assert closed(platform, "headers") == refused + 4
    assert resident(platform) - before < 16 * MIB
    assert platform.client.get("/v1/recommenders").status_code == 200


@pytest.mark.parametrize(
    ("text", "status", "kind"),
    [
        (f"GET /v1/recommenders HTTP/1.1\r\nHost: x\r\nX-Big: {'a' * 65_536}\r\n\r\n", 431, "headers-too-large"),
        ("GET /v1/recommenders HTTP/1.1\r\n" + "".join(f"X-{n}: 1\r\n" for n in range(101)) + "\r\n", 431, "headers-too-large"),
        (f"GET /v1/recommenders?name={'a' * 8192} HTTP/1.1\r\nHost: x\r\n\r\n", 414, "address-too-long"),
    ],
)
@pytest.mark.parametrize("port", ["api", "scrapers"])
def test_a_head_beyond_a_limit_is_a_problem_on_both_ports(request, port, text, status, kind):
    sockets: Sockets = request.getfixturevalue(port)
    found = answer(sockets.open(text))
    assert found.startswith(f"HTTP/1.1 {status} ")
    assert f"problems/{kind}" in found


def test_half_requests_are_closed_at_their_deadline(platform, api):
    silent = [api.open() for _ in range(10)]
    half = [api.open("GET /v1/recommenders HTTP/1.1\r\nHost: x\r\n") for _ in range(10)]
    slow = api.open(f"POST /v1/recommenders HTTP/1.1\r\nAuthorization: {token(platform)}\r\nContent-Length: 10\r\n\r\nhalf")
    for connection in silent:
        assert answer(connection) == ""
    for connection in half:
        assert answer(connection).startswith("HTTP/1.1 408 ")
    assert gauge(platform, "eyas_http_connections", "api") <= 2  # the client of the test, and the body that has 30 s more
    slow.settimeout(0.1)
    with pytest.raises(TimeoutError):
        slow.recv(1)
    slow.close()
    until("the connection is closed", lambda: gauge(platform, "eyas_http_connections", "api") <= 1)
    assert "unexpected error" not in platform.log


def test_the_body_of_a_request_without_a_token_is_not_read(platform, api):
    before, ended = resident(platform), closed(platform, "unread body")
    connection = api.open("POST /v1/recommenders HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
    assert status(connection) == 401  # before a byte of it has come
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 200 * MIB:
            sent += connection.send(b"a" * 65_536)
    assert sent < 16 * MIB
    assert closed(platform, "unread body") == ended + 1
    assert resident(platform) - before < 16 * MIB


def test_strangers_beyond_the_limit_make_room_and_established_clients_stay(platform, api):
    headers = f"Authorization: {token(platform)}\r\nHost: x\r\n"
    established = [api.open(f"GET /v1/recommenders HTTP/1.1\r\n{headers}\r\n") for _ in range(CONNECTIONS - 10)]
    for connection in established:
        assert status(connection) == 200
    evicted, full = closed(platform, "evicted"), closed(platform, "full")
    strangers = [api.open("GET /v1") for _ in range(60)]
    until("strangers are closed", lambda: closed(platform, "evicted") >= evicted + 50)
    for connection in strangers[:40]:
        assert answer(connection) == ""
    more = [api.open(f"GET /v1/recommenders HTTP/1.1\r\n{headers}\r\n") for _ in range(9)]
    for connection in more:
        assert status(connection) == 200
    late = [answer(api.open("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")) for _ in range(3)]
    assert any(one.startswith("HTTP/1.1 503 ") and "\r\nretry-after: 1\r\n" in one.lower() for one in late), late
    assert closed(platform, "full") > full
    assert gauge(platform, "eyas_http_connections", "api") <= gauge(platform, "eyas_http_connections_limit", "api") == CONNECTIONS
    for connection in established:
        connection.sendall(f"GET /v1/recommenders HTTP/1.1\r\n{headers}\r\n".encode())
        assert status(connection) == 200
    api.close()
    until("the log says that it is over", lambda: "below the limit again port=api" in platform.log, 30)
    lines = [line for line in platform.log.splitlines() if "port=api" in line]
    assert [("near the limit" in line, "below the limit again" in line) for line in lines] == [(True, False), (False, True)], lines


def test_slow_scrapers_cost_no_threads_and_keep_nobody_from_the_metrics(platform, scrapers):
    before = threads(platform)
    for _ in range(300):
        scrapers.open("GET /metrics HTTP/1.1\r\nHost: x\r\n")
    assert "eyas_http_connections" in metrics(platform)
    assert threads(platform) <= before + 4  # a pool that grows with its first use; not one for each connection
    until("the gauge is within the limit", lambda: gauge(platform, "eyas_http_connections", "metrics") <= SCRAPERS)
    assert answer(scrapers.all[0]) == ""  # the oldest made room
    assert answer(scrapers.all[-1]).startswith("HTTP/1.1 408 ")


def test_without_file_descriptors_the_log_says_so_and_clients_go_on(platform, api):
    assert platform.process is not None
    pid = platform.process.pid
    soft, hard = limits = psutil.Process(pid).rlimit(psutil.RLIMIT_NOFILE)
    assert soft == min(hard, 65_536)
    headers = f"Authorization: {token(platform)}\r\nHost: x\r\n"
    established = api.open(f"GET /v1/recommenders HTTP/1.1\r\n{headers}\r\n")
    assert status(established) == 200
    try:
        psutil.Process(pid).rlimit(psutil.RLIMIT_NOFILE, (highest_descriptor(pid) + 1, hard))
        end = time.monotonic() + 20
        while "file descriptors: none left" not in platform.log and time.monotonic() < end:
            api.open("GET /v1")
            time.sleep(0.02)
        assert "file descriptors: none left" in platform.log
        established.sendall(f"GET /v1/recommenders HTTP/1.1\r\n{headers}\r\n".encode())
        assert status(established) == 200
    finally:
        psutil.Process(pid).rlimit(psutil.RLIMIT_NOFILE, limits)
    until("the log says that it is over", lambda: "file descriptors: free again" in platform.log, 30)
    assert platform.log.count("file descriptors: none left") == 1


def highest_descriptor(pid: int) -> int:
    return max(int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir())


def token(platform: PlatformProcess) -> str:
    found: str = platform.client.headers["Authorization"]
    return found
