"""Who may use which route: said where the route is made, checked before anything else is done with the request.

A handler module makes a `Room` and declares each route with the role that it needs:

    room = Room("runs")

    @room.post("/v1/runs/{id}:cancel", Role.OPERATOR, status_code=202)
    def cancel(parts: With, who: Who, id: str, why: Because = None) -> RunView: ...

What stands between a request and a handler: the token (services/api/auth.py), the role, and, where the path has a `{name}`, the
token's scope. Where it hasn't, the handler asks the caller: `who.row(...)` loads a row by its id, `who.enters(name)` is for a
recommender that a body names, `who.sees(name)` is for lists. What a token doesn't see doesn't exist for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from shared.domain.access import INCLUDES, Principal, Role, may
from shared.domain.errors import Forbidden, no_such
from shared.ports import Record, ResourceStore

S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])

ANYBODY: Literal["anybody"] = "anybody"
"""No token is needed: health alone."""
HOLDER: Literal["any token"] = "any token"

Need = Role | Literal["anybody", "any token"]

_ROLE = "x-eyas-role"
_AUDITED = "x-eyas-audited"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass
class Caller:
    """The principal of one request, and what the audit log is to know of the request beside its path."""

    principal: Principal
    recommender: str | None = None

    @property
    def name(self) -> str:
        """For histories: who did it."""
        return self.principal.name

    def sees(self, recommender: str) -> bool:
        return self.principal.sees(recommender)

    def enters(self, recommender: str) -> None:
        """The request is about this recommender; one that the token doesn't see doesn't exist."""
        if not self.sees(recommender):
            raise no_such("recommender", recommender)
        self.recommender = recommender

    def row(self, what: str, store: ResourceStore[S], id: str) -> Record[S]:
        """A row by its id; of a recommender that the token doesn't see, it doesn't exist."""
        record = store.get(id)
        if not self.sees(record.recommender):
            raise no_such(what, id)
        self.recommender = record.recommender
        return record


def caller_of(scope: Scope) -> Caller:
    """Put there by the door: without it nothing gets this far."""
    found: Caller = scope["state"]["caller"]
    return found


def _who(request: Request) -> Caller:
    return caller_of(request.scope)


Who = Annotated[Caller, Depends(_who)]


class Guarded(APIRoute):
    """A route that knows its need, and can't be made without one."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **rest: Any) -> None:
        said = (rest.get("openapi_extra") or {}).get(_ROLE)
        if said is None:
            raise ValueError(f"{path}: no role is declared")
        self.need: Need = said if said in (ANYBODY, HOLDER) else Role(said)
        super().__init__(path, endpoint, **rest)
        self.verbs = frozenset(self.methods or ())
        self.audited: bool = not self.verbs <= _SAFE and rest["openapi_extra"].get(_AUDITED, True)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.need != ANYBODY and scope["method"] in self.verbs:
            self._check(caller_of(scope), scope)
        await super().handle(scope, receive, send)

    def _check(self, caller: Caller, scope: Scope) -> None:
        if isinstance(self.need, Role) and not may(caller.principal, self.need):
            enough = [role.value for role in Role if self.need in INCLUDES[role]]
            raise Forbidden(f"this needs the role {' or '.join(enough)}; the token has {caller.principal.role.value}")
        name = scope["path_params"].get("name")
        if name is not None:
            caller.enters(name)


class Room:
    """The routes of one handler module. `audited=False` is for what changes nothing although it isn't a GET, and for data."""

    def __init__(self, tag: str) -> None:
        self.router = APIRouter(tags=[tag], route_class=Guarded)

    def get(self, path: str, need: Need, **rest: Any) -> Callable[[F], F]:
        return self._route("GET", path, need, True, rest)

    def post(self, path: str, need: Need, audited: bool = True, **rest: Any) -> Callable[[F], F]:
        return self._route("POST", path, need, audited, rest)

    def put(self, path: str, need: Need, audited: bool = True, **rest: Any) -> Callable[[F], F]:
        return self._route("PUT", path, need, audited, rest)

    def patch(self, path: str, need: Need, audited: bool = True, **rest: Any) -> Callable[[F], F]:
        return self._route("PATCH", path, need, audited, rest)

    def delete(self, path: str, need: Need, audited: bool = True, **rest: Any) -> Callable[[F], F]:
        return self._route("DELETE", path, need, audited, rest)

    def _route(self, method: str, path: str, need: Need, audited: bool, rest: dict[str, Any]) -> Callable[[F], F]:
        extra = {**rest.pop("openapi_extra", {}), _ROLE: str(need)} | ({} if audited else {_AUDITED: False})
        return self.router.api_route(path, methods=[method], openapi_extra=extra, **rest)


@dataclass(frozen=True)
class Permission:
    """One row of the table in docs/access.md."""

    method: str
    path: str
    need: Need
    audited: bool

    def roles(self) -> tuple[Role, ...]:
        if not isinstance(self.need, Role):
            return tuple(Role)
        return tuple(role for role in Role if self.need in INCLUDES[role])


FRAMEWORK = ("/docs", "/docs/oauth2-redirect", "/openapi.json", "/redoc")
"""Made by FastAPI itself: closed by the door, open to any token."""


def table(rooms: Iterable[Room]) -> tuple[Permission, ...]:
    found = [
        Permission(method, route.path, route.need, route.audited)
        for room in rooms
        for route in room.router.routes
        if isinstance(route, Guarded)
        for method in sorted(route.verbs)
    ]
    found += [Permission("GET", path, HOLDER, False) for path in FRAMEWORK]
    return tuple(sorted(found, key=lambda one: (one.path, one.method)))
