"""Client and scheme of a request behind proxies, and HSTS: only headers of trusted peers count."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from services.wiring.proxies import behind_proxies

PROXIES = ("10.0.7.4", "10.244.0.0/16", "fd00::/8")
HSTS = "strict-transport-security"
HTTPS = ("x-forwarded-proto", "https")


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope)
    seen = {"client": (scope["client"] or ("",))[0], "scheme": request.url.scheme, "host": request.url.netloc}
    await JSONResponse(seen)(scope, receive, send)


def ask(peer: str, *headers: tuple[str, str], proxies: tuple[str, ...] = PROXIES) -> httpx.Response:
    async def answer() -> httpx.Response:
        transport = httpx.ASGITransport(behind_proxies(echo, proxies), client=(peer, 4711))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://eyas.example") as client:
            return await client.get("/", headers=list(headers))

    return asyncio.run(answer())


def forwarded(*hops: str) -> tuple[tuple[str, str], ...]:
    return tuple(("x-forwarded-for", hop) for hop in hops)


CHAINS = (
    # peer, X-Forwarded-For by header line, expected client
    ("10.0.7.4", ("203.0.113.7",), "203.0.113.7"),
    ("10.244.3.9", ("203.0.113.7:51234",), "203.0.113.7"),
    ("fd00::4", ("[2001:db8::7]:51234",), "2001:db8::7"),
    ("10.0.7.4", ("203.0.113.7, 10.244.3.9",), "203.0.113.7"),
    ("10.0.7.4", ("203.0.113.7", "10.244.3.9"), "203.0.113.7"),
    ("10.0.7.4", ("1.2.3.4, 203.0.113.7",), "203.0.113.7"),
    ("10.0.7.4", ("1.2.3.4", "203.0.113.7, 10.244.3.9"), "203.0.113.7"),
    ("10.0.7.4", ("10.244.0.1, 1.2.3.4, 203.0.113.7",), "203.0.113.7"),
    ("10.0.7.4", ("1.2.3.4, 203.0.113.7, fd00::5, 10.244.3.9",), "203.0.113.7"),
    ("10.0.7.4", (), "10.0.7.4"),
    ("10.0.7.4", ("",), "10.0.7.4"),
    ("203.0.113.9", ("1.2.3.4",), "203.0.113.9"),
    ("203.0.113.9", ("1.2.3.4, 10.0.7.4",), "203.0.113.9"),
)


def test_the_client_is_the_last_address_that_is_no_trusted_proxy(subtests: pytest.Subtests) -> None:
    for peer, hops, client in CHAINS:
        with subtests.test(peer=peer, hops=hops):
            assert ask(peer, *forwarded(*hops)).json()["client"] == client


def test_https_counts_from_a_trusted_peer_alone_and_its_answers_have_hsts(subtests: pytest.Subtests) -> None:
    for peer, header, scheme in (
        ("10.0.7.4", HTTPS, "https"),
        ("10.0.7.4", ("x-forwarded-proto", "http"), "http"),
        ("10.0.7.4", ("x-forwarded-proto", "https, http"), "http"),
        ("10.0.7.4", ("forwarded", "proto=https;for=1.2.3.4"), "http"),
        ("10.0.7.5", HTTPS, "http"),
    ):
        with subtests.test(peer=peer, header=header):
            answer = ask(peer, header)
            assert answer.json()["scheme"] == scheme
            assert answer.json()["client"] == peer
            assert answer.headers.get_list(HSTS) == (["max-age=31536000"] if scheme == "https" else [])


def test_the_host_is_that_of_the_request() -> None:
    assert ask("10.0.7.4", HTTPS, ("x-forwarded-host", "evil.example")).json()["host"] == "eyas.example"


def test_without_proxies_all_headers_are_ignored() -> None:
    for peer in ("127.0.0.1", "10.0.7.4"):
        answer = ask(peer, HTTPS, *forwarded("1.2.3.4"), proxies=())
        assert answer.json() == {"client": peer, "scheme": "http", "host": "eyas.example"}
        assert HSTS not in answer.headers
