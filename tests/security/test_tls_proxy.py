"""A platform behind a real TLS proxy: https for browsers, limits by the client's own address, headers of others without effect."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from http.cookies import SimpleCookie
from pathlib import Path

import httpx
import psutil
import pytest

from tests.servers.platform_process import PlatformProcess, until
from tests.servers.tls_proxy import ADDRESS, TlsProxy, nginx
from tests.support.platform_world import quick_spec

pytestmark = [pytest.mark.requirement("C-01"), pytest.mark.timeout(300)]

HSTS = "strict-transport-security"
YEAR = ["max-age=31536000"]
FORGED = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7", "X-Forwarded-Host": "evil.example", "Forwarded": "proto=https"}
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    nginx()
    folder: Path = tmp_path_factory.mktemp("behind-tls")
    (folder / "data").mkdir()
    # One unknown token empties the budget of its address.
    settings = {"EYAS_TRUSTED_PROXIES": f"{ADDRESS},10.0.0.0/8", "EYAS_FAILURE_RATE": "0.1"}
    with PlatformProcess(folder / "home", folder / "data", settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(platform: PlatformProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsProxy]:
    with TlsProxy(tmp_path_factory.mktemp("nginx"), str(platform.client.base_url)) as running:
        yield running


def first_token(platform: PlatformProcess) -> str:
    return (platform.home / "token").read_text()


def sign_in(client: httpx.Client, token: str, headers: Mapping[str, str] = {}) -> httpx.Response:
    return client.post("/login", data={"token": token, "next": "/"}, headers={**SAME_ORIGIN, **headers})


def unknown_token() -> str:
    return f"eyas_t{next(_numbers):016d}_{'0' * 64}"


def guess(client: httpx.Client, forwarded: str) -> int:
    """The status of a request with an unknown token that claims to come from an address."""
    headers = {"Authorization": f"Bearer {unknown_token()}", "X-Forwarded-For": forwarded}
    return client.get("/v1/whoami", headers=headers).status_code


def direct(platform: PlatformProcess, address: str) -> httpx.Client:
    return httpx.Client(base_url=platform.client.base_url, transport=httpx.HTTPTransport(local_address=address), timeout=30)


def test_through_the_proxy_the_session_is_of_https_alone(platform: PlatformProcess, proxy: TlsProxy) -> None:
    with proxy.client() as browser:
        answer = sign_in(browser, first_token(platform))
        assert answer.status_code == 303
        (cookie,) = (morsel for header in answer.headers.get_list("set-cookie") for morsel in SimpleCookie(header).values())
        assert cookie.key.startswith("__Host-")
        assert (cookie["secure"], cookie["httponly"], cookie["samesite"].lower()) == (True, True, "lax")
        assert (cookie["path"], cookie["domain"]) == ("/", "")
        page = browser.get("/")
        assert (page.status_code, page.url.scheme) == (200, "https")
        assert "Sign out" in page.text


def test_every_answer_over_https_has_hsts(platform: PlatformProcess, proxy: TlsProxy) -> None:
    token = {"Authorization": f"Bearer {first_token(platform)}"}
    with proxy.client() as browser:
        answers = [browser.get(path) for path in ("/login", "/", "/nowhere", "/static/nothing", "/healthz", "/v1/whoami")]
        answers += [browser.get("/v1/whoami", headers=token), sign_in(browser, "wrong")]
    for answer in answers:
        assert answer.headers.get_list(HSTS) == YEAR, answer.url


def test_forged_headers_of_another_peer_leave_it_http(platform: PlatformProcess, proxy: TlsProxy) -> None:
    with direct(platform, "127.0.0.1") as peer:
        answer = sign_in(peer, first_token(platform), FORGED)
        (cookie,) = (morsel for header in answer.headers.get_list("set-cookie") for morsel in SimpleCookie(header).values())
        assert answer.status_code == 303
        assert not cookie.key.startswith("__Host-")
        assert not cookie["secure"]
        for path in ("/login", "/healthz", "/v1/whoami"):
            assert HSTS not in peer.get(path, headers=FORGED).headers


def test_the_limit_of_unknown_tokens_counts_the_peer_and_no_forged_address(platform: PlatformProcess, proxy: TlsProxy) -> None:
    with direct(platform, "127.0.0.21") as peer:
        statuses = {guess(peer, f"203.0.113.{number}") for number in range(20)} | {guess(peer, "127.0.0.23")}
    assert statuses == {401, 429}
    with proxy.client("127.0.0.23") as named:
        assert guess(named, "203.0.113.1") == 401, "the address that was named has no part in it"


def test_through_the_proxy_the_limit_counts_the_client_and_no_forged_address(platform: PlatformProcess, proxy: TlsProxy) -> None:
    with proxy.client("127.0.0.31") as client:
        statuses = {guess(client, f"203.0.113.{number}, 10.0.0.{number}") for number in range(20)} | {guess(client, "127.0.0.33")}
    assert statuses == {401, 429}
    for other in ("127.0.0.32", "127.0.0.33"):
        with proxy.client(other) as client:
            assert guess(client, "127.0.0.31") == 401, "other clients of the proxy have budgets of their own"


def test_sign_ins_of_the_console_count_the_browser(platform: PlatformProcess, proxy: TlsProxy) -> None:
    token: str = platform.post("/v1/tokens", {"name": "guest", "role": "viewer"})["token"]
    with proxy.client("127.0.0.41") as browser:
        pages = [sign_in(browser, unknown_token(), {"X-Forwarded-For": f"203.0.113.{number}"}).text for number in range(20)]
    assert any("EYAS_FAILURE_RATE" in page for page in pages)
    with proxy.client("127.0.0.42") as browser:
        assert sign_in(browser, token).status_code == 303


def test_events_of_a_run_pass_the_proxy_while_it_runs(platform: PlatformProcess, proxy: TlsProxy) -> None:
    """The stage stands still until the first events have passed: a proxy that buffers would pass none."""
    run = platform.post("/v1/recommenders", quick_spec(platform.data))["run"]
    (stage,) = until("the stage etl", lambda: platform.children_with("pipelines.stages.etl"))
    stage.suspend()
    token = {"Authorization": f"Bearer {first_token(platform)}"}
    try:
        with proxy.client() as client, client.stream("GET", f"/v1/runs/{run}/stream", headers=token) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert stream.headers.get_list(HSTS) == YEAR
            lines = stream.iter_lines()
            assert "event: state" in lines
            assert stage.status() == psutil.STATUS_STOPPED
            stage.resume()
            assert "event: end" in lines
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            stage.resume()
