"""A client whose platform is a function, and pauses that take no time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from eyas_client import AsyncClient, Client

TOKEN = "eyas_t0123456789abcdef_secret"
URL = "http://platform.test"
Handler = Callable[[httpx.Request], httpx.Response]


def problem(status: int, kind: str = "unavailable", detail: str = "the database is away", **headers: str) -> httpx.Response:
    document = {"type": f"https://eyas.dev/problems/{kind}", "title": kind.capitalize(), "status": status, "detail": detail}
    return httpx.Response(status, json=document, headers=headers)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that clients make, in seconds; the clock moves by them."""
    recorded: list[float] = []

    async def pause(seconds: float) -> None:
        recorded.append(seconds)

    monkeypatch.setattr("eyas_client.client.time.sleep", recorded.append)
    monkeypatch.setattr("eyas_client.client.asyncio.sleep", pause)
    monkeypatch.setattr("eyas_client.waiting.time.monotonic", lambda: sum(recorded))
    return recorded


@pytest.fixture
def connect(pauses: list[float]) -> Callable[..., Client]:
    def make(handler: Handler, **options: Any) -> Client:
        return Client(URL, TOKEN, transport=httpx.MockTransport(handler), **options)

    return make


@pytest.fixture
def connect_async(pauses: list[float]) -> Callable[..., AsyncClient]:
    def make(handler: Handler, **options: Any) -> AsyncClient:
        return AsyncClient(URL, TOKEN, transport=httpx.MockTransport(handler), **options)

    return make
