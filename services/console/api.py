"""API client of the pages. It calls the API in the same process with the user's token, so a page has the rights of that token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from starlette.types import ASGIApp

from shared.domain.segments import segment, way

Json = dict[str, Any]
T = TypeVar("T")

_INSIDE = "http://console.internal"


class ApiProblem(Exception):
    """An error answer of the API, with its problem unchanged."""

    def __init__(self, status: int, detail: str, errors: tuple[Json, ...] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors


HERE = "here"
"""The gateway runs in this process."""
_PATIENCE = 10.0


class Api:
    """Requests of one page. `online` is the gateway's address, HERE, or None if the operator configured no gateway."""

    def __init__(self, app: ASGIApp, token: str, online: str | None = HERE) -> None:
        self.app = app
        self.token = token
        self.online = online

    async def get(self, path: str, **query: Any) -> Any:
        """`path` is made by `at` from names and ids; queries that are None are not sent."""
        return await self.ask("GET", path, query)

    async def maybe(self, path: str, **query: Any) -> Any:
        """Returns None after status 404."""
        return await self.unless(404, self.get(path, **query))

    async def post(self, path: str, body: Any = None, once: str | None = None, **query: Any) -> Any:
        """`once` is the idempotency key: equal keys act once."""
        return await self.ask("POST", path, query, body, {"Idempotency-Key": quote(once)} if once else {})

    async def send(self, method: str, path: str, text: str, headers: Mapping[str, str] | None = None, **query: Any) -> Any:
        """Sends a spec unchanged."""
        return await self.ask(method, path, query, None, {"Content-Type": "application/yaml", **(headers or {})}, text)

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        text: str | None = None,
    ) -> Any:
        params: list[tuple[str, str | int | float | bool | None]] = [
            (name.rstrip("_"), str(entry))
            for name, value in query.items()
            for entry in (value if isinstance(value, list | tuple) else [value])
            if entry is not None
        ]
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=_INSIDE) as client:
            sent = {"Authorization": f"Bearer {self.token}", **(headers or {})}
            answer = await client.request(method, path, params=params, json=body, content=text, headers=sent)
        if answer.status_code >= 400:
            raise _refused(answer)
        return answer.json() if answer.content else None

    async def answer(self, path: str, body: Any, **query: Any) -> Any:
        """Asks a gateway: in this process, or at the configured address."""
        if self.online == HERE:
            return await self.ask("POST", path, query, body)
        if self.online is None:
            raise ApiProblem(503, "this control plane has no address of a gateway: the operator sets EYAS_GATEWAY_URL")
        try:
            async with httpx.AsyncClient(base_url=self.online, timeout=_PATIENCE, trust_env=False) as client:
                answer = await client.post(path, params=query, json=body, headers={"Authorization": f"Bearer {self.token}"})
        except httpx.HTTPError as error:
            raise ApiProblem(503, f"the gateway at {self.online} (EYAS_GATEWAY_URL) does not answer: {type(error).__name__}") from None
        if answer.status_code == 401:  # the control plane knows the session: the user stays signed in
            raise ApiProblem(
                503, f"the gateway at {self.online} (EYAS_GATEWAY_URL) does not know this sign-in: does it run an older release?"
            )
        if answer.status_code != 200:
            raise _refused(answer)
        try:
            return answer.json()
        except ValueError:
            raise ApiProblem(503, f"the server at {self.online} (EYAS_GATEWAY_URL) is not a gateway") from None

    async def all(self, *awaitables: Awaitable[T]) -> list[T]:
        """Awaits all at once."""
        return list(await asyncio.gather(*awaitables))

    async def unless(self, status: int, awaitable: Awaitable[T]) -> T | None:
        try:
            return await awaitable
        except ApiProblem as refused:
            if refused.status == status:
                return None
            raise


def at(*parts: object, verb: str | None = None) -> str:
    """API path; each part is quoted and stays one segment."""
    path = way("v1", *parts)
    return path if verb is None else f"{path}:{segment(verb)}"


def _refused(answer: httpx.Response) -> ApiProblem:
    try:
        problem = answer.json()
        return ApiProblem(answer.status_code, str(problem["detail"]), tuple(problem.get("errors", ())))
    except (ValueError, KeyError, TypeError):
        return ApiProblem(answer.status_code, f"the API answered {answer.status_code} without a reason; see the platform's log")
