"""Decorators of pages and buttons: sign-in, form checks and errors of the API.

@page("/runs/{id}")
async def run(request: Request, api: Api) -> Response: ...

@action("/runs/{id}/cancel")
async def cancel(request: Request, api: Api, form: Form) -> Response: ..."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from services.console import render
from services.console.api import Api, ApiProblem, Json, at
from services.console.render import LIVE, PageFault, fault
from services.console.session import RejectedForm, SubmittedForm, forget, form_of, keep, session_of

Shown = Callable[[Request, Api], Awaitable[Response]]
Done = Callable[[Request, Api, SubmittedForm], Awaitable[Response]]

_RANK = {"client": 0, "viewer": 1, "operator": 2, "admin": 3}
_TITLES = {403: "Not permitted", 404: "Not found", 409: "Conflict", 412: "Changed in the meantime", 422: "Not valid", 503: "Not available"}


@dataclass(frozen=True)
class Who:
    """The signed-in user. Used only to hide buttons: the API checks each action."""

    name: str
    role: str
    recommenders: tuple[str, ...] | None

    @classmethod
    def of(cls, identity: Json) -> Who:
        scope = identity.get("recommenders")
        return cls(identity["name"], identity["role"], None if scope is None else tuple(scope))

    def may(self, role: str) -> bool:
        return self.role != "client" and _RANK[self.role] >= _RANK[role]


class Pages:
    """Routes of a module."""

    def __init__(self) -> None:
        self.routes: list[BaseRoute] = []

    def page(self, path: str) -> Callable[[Shown], Shown]:
        def made(shown: Shown) -> Shown:
            async def endpoint(request: Request) -> Response:
                return await _entered(request, lambda api: shown(request, api))

            self.routes.append(Route(path, endpoint, methods=["GET"], name=shown.__name__))
            return shown

        return made

    def action(self, path: str) -> Callable[[Done], Done]:
        """Registers a POST route that accepts only forms of the console."""

        def made(done: Done) -> Done:
            async def endpoint(request: Request) -> Response:
                async def handle_form(api: Api) -> Response:
                    try:
                        form = request.state.form = await form_of(request, api.token)
                    except RejectedForm as error:
                        return fault(request, PageFault(403, "Form refused", str(error)))
                    return await done(request, api, form)

                return await _entered(request, handle_form)

            self.routes.append(Route(path, endpoint, methods=["POST"], name=done.__name__))
            return done

        return made


async def _entered(request: Request, then: Callable[[Api], Awaitable[Response]]) -> Response:
    session = session_of(request)
    if session is None:
        return await _to_door(request)
    api = Api(request.state.api, session, request.state.online)
    try:
        try:
            identity = await api.get("/v1/whoami")
        except ApiProblem as refused:
            if refused.status != 403:
                raise
            return _without_role(request, refused)
        request.state.who = Who.of(identity)
        response = await then(api)
        if datetime.fromisoformat(identity["renewable_at"]) <= datetime.now(UTC):
            await _renew(request, response, api)
        return response
    except ApiProblem as refused:
        if refused.status == 401:
            response = await _to_door(request)
            forget(request, response)
            return response
        return fault(request, PageFault(refused.status, _TITLES.get(refused.status, "Refused"), refused.detail, refused.errors))


def _without_role(request: Request, refused: ApiProblem) -> Response:
    """The user's groups have lost their role: ends the sign-in, so that another user can sign in."""
    response = render.login_page(request, "/", refused.detail, 403)
    forget(request, response)
    return response


async def _renew(request: Request, response: Response, api: Api) -> None:
    """Sets the cookie to the session's new secret. Without it the secret in use stays valid."""
    try:
        renewed = await api.post(at("sessions", "current", verb="renew"))
    except ApiProblem:
        return
    if renewed["session"] is not None:
        keep(request, response, renewed["session"])


async def _to_door(request: Request) -> Response:
    if request.method != "GET" or request.headers.get(LIVE) is not None:
        return fault(request, PageFault(401, "Signed out", "Sign in again; nothing was done.", unsaved_text=await _typed(request)))
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return render.onwards("/login" if path == "/" else f"/login?next={quote(path, safe='/')}")


async def _typed(request: Request) -> str:
    """Text of a spec form that arrived without a valid sign-in, so that the text is not lost."""
    if request.method != "POST":
        return ""
    try:
        form: SubmittedForm = request.state.form if hasattr(request.state, "form") else await form_of(request, None)
    except RejectedForm:
        return ""
    return form.values.get("spec", "")
