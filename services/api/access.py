"""Access control: each route declares the role that it needs, which is checked before anything else.

A handler module makes a `RoleRouter` and declares its routes:

    room = Room("runs")

    @room.post("/v1/runs/{id}:cancel", Role.OPERATOR, status_code=202)
    def cancel(parts: With, who: Who, id: str, why: Because = None) -> RunView: ...

Before the handler come the token (services/api/auth.py), the role and, if the path has a `{name}`, the token's scope. Without a `{name}`
the handler asks the caller: `who.row(...)` loads a row by its id, `who.enters(name)` is for a recommender that a body names,
`who.sees(name)` is for lists. What is outside its scope doesn't exist for a token.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Depends, HTTPException, Request, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from services.api.idempotency import HEADER, KeyReservation, once
from services.api.json_bodies import JsonRequest
from services.api.rate_limits import FREE, WRITE, RateLimits, RequestCost
from shared.domain.access import INCLUDES, Principal, Role, may
from shared.domain.errors import EyasError, Forbidden, Invalid, no_such
from shared.domain.ids import new_id
from shared.ports import Audited, Record, ResourceStore

log = logging.getLogger(__name__)

S = TypeVar("S")
P = TypeVar("P")
F = TypeVar("F", bound=Callable[..., Any])

ANYBODY: Literal["anybody"] = "anybody"
"""Needs no token: health alone."""
HOLDER: Literal["any token"] = "any token"

Need = Role | Literal["anybody", "any token"]

_ROLE = "x-eyas-role"
_AUDITED = "x-eyas-audited"
_REPEATABLE = "x-eyas-repeatable"
_SCOPED = "x-eyas-scoped"
_LIMITS = "x-eyas-limits"
_PRIVATE = "x-eyas-private"
_EMPTY = frozenset({b"", b"{}"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass
class Caller:
    """Principal of a request, and what the audit log records of the request beside its path."""

    principal: Principal
    again: Callable[[], Awaitable[Principal]]
    """Looks the token up again, for long requests; raises like the first lookup."""
    recommender: str | None = None
    detail: str = ""
    once: KeyReservation | None = None
    """Set for a request with an Idempotency-Key."""
    is_charged: bool = False
    """Whether the request has been charged to its budgets."""

    def fresh_id(self, prefix: str, now: datetime) -> str:
        """Returns a new id; a repeated request gets the same id and so finds what the first try made."""
        if self.once is None:
            return new_id(prefix, now, secrets.randbits(30))
        return new_id(prefix, self.once.at, self.once.entropy)

    @property
    def name(self) -> str:
        """Returns the actor for histories."""
        return self.principal.name

    def sees(self, recommender: str) -> bool:
        return self.principal.sees(recommender)

    def enters(self, recommender: str) -> None:
        """Sets the request's recommender; not found if the token doesn't see it."""
        if not self.sees(recommender):
            raise no_such("recommender", recommender)
        self.recommender = recommender

    def says(self, reason: str) -> None:
        """Keeps the caller's reason for the audit log."""
        self.detail = reason

    def row(self, kind: str, store: ResourceStore[S, P], id: str) -> Record[S, P]:
        """Loads a row by its id; not found if the token doesn't see its recommender."""
        record = store.get(id)
        if not self.sees(record.recommender):
            raise no_such(kind, id)
        self.recommender = record.recommender
        return record


def caller_of(scope: Scope) -> Caller:
    """Returns the caller that `Auth` has set: no request gets here without one."""
    caller: Caller = scope["state"]["caller"]
    return caller


def _who(request: Request) -> Caller:
    return caller_of(request.scope)


Who = Annotated[Caller, Depends(_who)]


class RoleRoute(APIRoute):
    """Route that can't be made without the role it needs."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **rest: Any) -> None:
        role = (rest.get("openapi_extra") or {}).get(_ROLE)
        if role is None:
            raise ValueError(f"{path}: no role is declared")
        self.need: Need = role if role in (ANYBODY, HOLDER) else Role(role)
        super().__init__(path, endpoint, **rest)
        self.verbs = frozenset(self.methods or ())
        self.repeatable: bool = rest["openapi_extra"].get(_REPEATABLE, False)
        self._takes_body = self.body_field is not None or "requestBody" in rest["openapi_extra"]
        self._queries = frozenset(
            parameter.alias for parameter in get_flat_params(self.dependant) if isinstance(parameter.field_info, params.Query)
        )
        self.audited: bool = not self.verbs <= _SAFE and rest["openapi_extra"].get(_AUDITED, True)
        self.scoped: bool = rest["openapi_extra"].get(_SCOPED, True)
        self.private: bool = rest["openapi_extra"].get(_PRIVATE, False)
        self.work = RequestCost(**rest["openapi_extra"].get(_LIMITS, asdict(FREE)))

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Rejects, before the handler, a body above the route's limit, strings that a database can't store, and a body where none is
        read."""
        handler = super().get_route_handler()

        async def checked(framework_request: Request) -> Response:
            request = JsonRequest(framework_request.scope, framework_request.receive)
            request.max_values = self.work.values
            size = len(await request.body())
            if size > self.work.bytes:
                raise HTTPException(413, f"the body has {size} bytes; this route accepts at most {self.work.bytes}")
            if not self._takes_body and (await request.body()).strip() not in _EMPTY:
                hint = f"; use query parameters: {', '.join(sorted(self._queries))}" if self._queries else ""
                raise Invalid(f"this route takes no body{hint}")
            if self.body_field is not None and not is_json(request.headers.get("content-type", "")) and await request.body():
                raise HTTPException(415, "the body's type is not JSON: send it with 'Content-Type: application/json'")
            if self.body_field is not None and size:
                await request.json()  # read here: the framework's own messages say little about the fault
            return await handler(request)

        return checked

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.need == ANYBODY or scope["method"] not in self.verbs:
            await super().handle(scope, receive, send)
            return
        caller = caller_of(scope)
        self._charge(caller, scope)
        if self.audited:
            await self._audited(scope, receive, send)
        else:
            self._check(caller, scope)
            await self._once(scope, receive, send)

    def _charge(self, caller: Caller, scope: Scope) -> None:
        """Runs before anything is written: a request above the rate leaves no entry in the audit log."""
        limits: RateLimits = scope["app"].state.door.limits
        if not caller.is_charged:
            limits.charge(self.work, caller.principal.token_id, scope["path_params"].get("name"), scope["state"].get("size", 0))
            caller.is_charged = True

    async def _audited(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stores the entry before anything is done, and its outcome before the answer leaves.

        A write whose entry can't be stored isn't done. A write whose outcome can't be stored has been done: its answer stays the same, and
        the entry's outcome stays unknown.
        """
        caller, parts = caller_of(scope), scope["app"].state.parts
        path = scope["path"]
        if self.private:
            id = scope["path_params"]["id"]
            path = f"{path.removesuffix(id)}{parts.keyed_hash(id)}"
        action, target = f"{scope['method']} {self.path_format}", quote(path, safe="/:", errors="replace")[:500]
        named = scope["path_params"].get("name")
        entry = Audited(parts.clock.now(), caller.name, caller.principal.token_id, action, target, _short(named))
        seq = await run_in_threadpool(parts.audit.begin, entry)
        ended = False

        async def end(status: int) -> None:
            nonlocal ended
            if ended:
                return
            ended = True
            try:
                about = _short(caller.recommender or named)
                await run_in_threadpool(parts.audit.end, seq, status, about, caller.detail.replace("\0", "")[:500])
            except EyasError as error:
                log.error("audit log: outcome not recorded entry=%d route=%s status=%d error=%s", seq, self.path_format, status, error)

        async def recording(message: Message) -> None:
            if message["type"] == "http.response.start":
                await end(message["status"])
            await send(message)

        try:
            self._check(caller, scope)
            await self._once(scope, receive, recording)
        except Exception as error:
            await end(_status(error))
            raise

    async def _once(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = Headers(scope=scope).get(HEADER) if scope["method"] == "POST" else None
        if key is None or not (self.repeatable or self.audited):
            await super().handle(scope, receive, send)
            return
        if not self.repeatable:
            raise Invalid(f"{HEADER}: this route takes none, because its answer has a secret that is not stored")
        door, caller = scope["app"].state.door, caller_of(scope)

        async def handle(first: KeyReservation, receive: Receive, send: Send) -> None:
            caller.once = first
            await super(RoleRoute, self).handle(scope, receive, send)

        await once(door.answers, door.clock, caller.principal.token_id, key, scope, receive, send, handle)

    def _check(self, caller: Caller, scope: Scope) -> None:
        if "\0" in scope["path"]:  # no name has one, and not every database takes it
            raise HTTPException(404)
        if b"%00" in scope["query_string"]:
            raise Invalid("query: NUL characters are not allowed")
        if isinstance(self.need, Role) and not may(caller.principal, self.need):
            enough = [role.value for role in Role if self.need in INCLUDES[role]]
            raise Forbidden(f"this route needs the role {' or '.join(enough)}; the token has {caller.principal.role.value}")
        if not self.scoped and caller.principal.recommenders is not None:
            raise Forbidden("this route covers all recommenders, but the token is scoped to some: use a token without a scope")
        name = scope["path_params"].get("name")
        if name is not None:
            caller.enters(name)
        self._refuse_typos(QueryParams(scope["query_string"]))

    def _refuse_typos(self, query: QueryParams) -> None:
        """Rejects unknown parameters: a misspelled filter must not return everything."""
        unknown = [name for name in query if name not in self._queries]
        if unknown:
            hint = f"use {', '.join(sorted(self._queries))}" if self._queries else "this route takes none"
            raise Invalid(f"unknown query parameter {unknown[0][:80]!r}; {hint}")


def is_json(kind: str) -> bool:
    kind = kind.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _status(error: Exception) -> int:
    if isinstance(error, HTTPException):
        return error.status_code
    return error.status if isinstance(error, EyasError) else 500


def _short(text: str | None) -> str | None:
    return None if text is None else text.replace("\0", "")[:100]


class RoleRouter:
    """Routes of a handler module. `audited=False` is for routes other than GET that change nothing, and for data. `private=True`: the
    audit log has a keyed hash in place of the path's `{id}`.

    `scoped=False` is for routes that concern all recommenders: a token that is scoped to some of them isn't enough. `work` is the limit of
    the body and the cost of a request (services/api/rate_limits.py).
    """

    def __init__(self, tag: str) -> None:
        self.router = APIRouter(tags=[tag], route_class=RoleRoute, generate_unique_id_function=lambda route: route.name)

    def get(self, path: str, need: Need, **rest: Any) -> Callable[[F], F]:
        return self._route("GET", path, need, **rest)

    def post(self, path: str, need: Need, **rest: Any) -> Callable[[F], F]:
        return self._route("POST", path, need, **rest)

    def create(self, path: str, need: Need, **rest: Any) -> Callable[[F], F]:
        """Adds a POST that takes an Idempotency-Key."""
        return self._route("POST", path, need, openapi_extra=rest.pop("openapi_extra", {}) | {_REPEATABLE: True}, **rest)

    def put(self, path: str, need: Need, **rest: Any) -> Callable[[F], F]:
        return self._route("PUT", path, need, **rest)

    def delete(self, path: str, need: Need, **rest: Any) -> Callable[[F], F]:
        return self._route("DELETE", path, need, **rest)

    def _route(
        self, method: str, path: str, need: Need, audited: bool = True, scoped: bool = True, private: bool = False, **rest: Any
    ) -> Callable[[F], F]:
        work = rest.pop("work", FREE if method == "GET" else WRITE)
        extra = (
            {**rest.pop("openapi_extra", {}), _ROLE: str(need)}
            | ({} if work == FREE else {_LIMITS: asdict(work)})
            | ({} if audited else {_AUDITED: False})
            | ({} if scoped else {_SCOPED: False})
            | ({_PRIVATE: True} if private else {})
        )
        return self.router.api_route(path, methods=[method], openapi_extra=extra, **rest)


@dataclass(frozen=True)
class Permission:
    """Row of the table in docs/access.md."""

    method: str
    path: str
    need: Need
    audited: bool
    scoped: bool

    def roles(self) -> tuple[Role, ...]:
        if not isinstance(self.need, Role):
            return tuple(Role)
        return tuple(role for role in Role if self.need in INCLUDES[role])


FRAMEWORK = ("/openapi.json",)
"""Made by FastAPI itself; any token may read it."""


def table(rooms: Iterable[RoleRouter]) -> tuple[Permission, ...]:
    permissions = [
        Permission(method, route.path_format, route.need, route.audited, route.scoped)
        for room in rooms
        for route in room.router.routes
        if isinstance(route, RoleRoute)
        for method in sorted(route.verbs)
    ]
    permissions += [Permission("GET", path, HOLDER, False, True) for path in FRAMEWORK]
    return tuple(sorted(permissions, key=lambda permission: (permission.path, permission.method)))
