"""`Client` and `AsyncClient`: the connection to a platform, which performs the steps of operations."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Generator
from contextlib import closing
from typing import Any, TypeVar

import httpx
from pydantic import SecretStr

from eyas_client.errors import EyasError
from eyas_client.operation import Action, Async, Outcome, Pause, Request, Steps, Sync
from eyas_client.platform import Platform
from eyas_client.retries import pause_before_retry
from eyas_client.session import Session, find_session

T = TypeVar("T")

RETRIES = 5


class _Bearer(httpx.Auth):
    """Adds the token when a request is sent, so that no other object has it."""

    def __init__(self, token: SecretStr) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
        yield request


def _options(session: Session, timeout: float) -> dict[str, Any]:
    return {
        "base_url": session.url,
        "auth": _Bearer(session.token),
        "timeout": httpx.Timeout(timeout, connect=min(timeout, 5)),
        "trust_env": not session.is_local,  # proxies and certificates of the environment are for other machines
    }


def _arguments(request: Request[Any]) -> dict[str, Any]:
    return {
        "method": request.method, "url": request.path, "params": request.query, "content": request.body, "headers": request.headers(),
    }  # fmt: skip


class Client(Platform[Sync]):
    """Client of one platform, for one or more threads. Without arguments it finds the address and the token in EYAS_URL and EYAS_TOKEN,
    or in the home of a platform on this machine (`home`, EYAS_HOME, `var/eyas`)."""

    def __init__(
        self,
        url: str | None = None,
        token: str | SecretStr | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        timeout: float = 30,
        retries: int = RETRIES,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        session = find_session(url, token, home)
        super().__init__(self._complete)
        self.url = session.url
        self._retries = retries
        self._http = httpx.Client(**_options(session, timeout), transport=transport)

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _complete(self, steps: Steps[T]) -> T:
        outcome: Outcome = None
        with closing(iter(steps)) as generator:
            try:
                while True:
                    outcome = self._perform(generator.send(outcome))
            except StopIteration as end:
                answer: T = end.value
        return answer

    def _perform(self, action: Action) -> Outcome:
        if isinstance(action, Pause):
            time.sleep(action.seconds)
            return None
        attempt = 0
        while True:
            outcome = self._send(action)
            pause = pause_before_retry(action, outcome, attempt, self._retries)
            if pause is None:
                return outcome
            time.sleep(pause)
            attempt += 1

    def _send(self, request: Request[Any]) -> Outcome:
        try:
            return self._http.request(**_arguments(request))
        except httpx.HTTPError as error:
            return error
        except httpx.InvalidURL as error:
            raise EyasError(f"{self.url}: {error}") from None


class AsyncClient(Platform[Async]):
    """The same client for asyncio: each method returns a coroutine."""

    def __init__(
        self,
        url: str | None = None,
        token: str | SecretStr | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        timeout: float = 30,
        retries: int = RETRIES,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        session = find_session(url, token, home)
        super().__init__(self._complete)
        self.url = session.url
        self._retries = retries
        self._http = httpx.AsyncClient(**_options(session, timeout), transport=transport)

    def __repr__(self) -> str:
        return f"AsyncClient({self.url!r})"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def _complete(self, steps: Steps[T]) -> T:
        outcome: Outcome = None
        with closing(iter(steps)) as generator:
            try:
                while True:
                    outcome = await self._perform(generator.send(outcome))
            except StopIteration as end:
                answer: T = end.value
        return answer

    async def _perform(self, action: Action) -> Outcome:
        if isinstance(action, Pause):
            await asyncio.sleep(action.seconds)
            return None
        attempt = 0
        while True:
            outcome = await self._send(action)
            pause = pause_before_retry(action, outcome, attempt, self._retries)
            if pause is None:
                return outcome
            await asyncio.sleep(pause)
            attempt += 1

    async def _send(self, request: Request[Any]) -> Outcome:
        try:
            return await self._http.request(**_arguments(request))
        except httpx.HTTPError as error:
            return error
        except httpx.InvalidURL as error:
            raise EyasError(f"{self.url}: {error}") from None
