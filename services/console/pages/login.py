"""Sign-in with a token or at the identity provider, sign-out, and the choice of the theme."""

from __future__ import annotations

import hmac
import json
import secrets
from urllib.parse import quote, unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from services.console.api import Api, ApiProblem, at
from services.console.page import Pages
from services.console.render import THEME, THEMES, PageFault, fault, login_page, onwards
from services.console.session import (
    RejectedForm,
    SubmittedForm,
    can_be_token,
    cookie,
    delete_cookie,
    forget,
    form_of,
    inside,
    keep,
    set_cookie,
)
from shared.domain.errors import EyasError
from shared.ports import IdentityProvider

pages = Pages()

_SIGN_IN_SECONDS = 600


async def login(request: Request) -> Response:
    if request.method in ("GET", "HEAD"):
        return login_page(request, inside(request.query_params.get("next", "/")))
    try:
        form = await form_of(request, None)
    except RejectedForm as error:
        return fault(request, PageFault(403, "Form refused", str(error)))
    token, where = form["token"], inside(form["next"] or "/")
    if not can_be_token(token):
        return login_page(request, where, "This is not a token: a token is one line of letters and digits.")
    return await _entered(request, token, where)


async def sign_in(request: Request) -> Response:
    """Sends the browser to the identity provider. A cookie remembers what the answer must match."""
    provider: IdentityProvider | None = request.state.provider
    if provider is None:
        return fault(request, PageFault(404, "Not found", "This platform has no identity provider: sign in with a token."))
    values = {name: secrets.token_urlsafe(32) for name in ("state", "nonce", "verifier")}
    try:
        address = await run_in_threadpool(provider.authorization_url, **values)
    except EyasError as error:
        return login_page(request, "/", str(error), 503)
    values["next"] = inside(request.query_params.get("next", "/"))[:1000]
    response = RedirectResponse(address, 303, {"Cache-Control": "no-store"})
    set_cookie(request, response, _sign_in_cookie(request), quote(json.dumps(values)), _SIGN_IN_SECONDS)
    return response


async def callback(request: Request) -> Response:
    """Receives the browser from the identity provider."""
    provider: IdentityProvider | None = request.state.provider
    try:
        values = json.loads(unquote(request.cookies.get(_sign_in_cookie(request), "")))
        state, nonce, verifier, where = (str(values[name]) for name in ("state", "nonce", "verifier", "next"))
        if not f"{state}{nonce}{verifier}".isascii():
            raise ValueError("not a cookie of the console")
    except (ValueError, KeyError, TypeError):
        return login_page(request, "/", "This sign-in took too long, or began in another browser: sign in again.")
    if provider is None or not hmac.compare_digest(state.encode(), request.query_params.get("state", "").encode()):
        return login_page(request, where, "This is the answer to another sign-in: sign in again.")
    code = request.query_params.get("code", "")
    if not code:
        return login_page(request, where, "The identity provider refused the sign-in.")
    try:
        text = await provider.exchange(code, verifier)
    except EyasError as error:
        return login_page(request, where, str(error), error.status)
    response = await _entered(request, text, where, nonce)
    delete_cookie(request, response, _sign_in_cookie(request))
    return response


async def theme(request: Request) -> Response:
    try:
        form = await form_of(request, None)
    except RejectedForm as error:
        return fault(request, PageFault(403, "Form refused", str(error)))
    response = onwards(form["next"] or "/")
    if form["theme"] in THEMES:
        response.set_cookie(THEME, form["theme"], 365 * 86400, httponly=True, samesite="lax")
    else:
        response.delete_cookie(THEME)
    return response


pages.routes.append(Route("/login", login, methods=["GET", "POST"]))
pages.routes.append(Route("/login/provider", sign_in, methods=["GET"]))
pages.routes.append(Route("/login/callback", callback, methods=["GET"]))
pages.routes.append(Route("/theme", theme, methods=["POST"]))


@pages.action("/logout")
async def logout(request: Request, api: Api, form: SubmittedForm) -> Response:
    await api.ask("DELETE", at("sessions", "current"), {})
    response = onwards("/login")
    forget(request, response)
    return response


async def _entered(request: Request, credential: str, where: str, nonce: str | None = None) -> Response:
    """Starts a session and goes on to the page."""
    try:
        session = await Api(request.state.api, credential).post(at("sessions"), {"nonce": nonce})
    except ApiProblem as refused:
        is_token = nonce is None and refused.status == 401
        return login_page(request, where, "Unknown token." if is_token else refused.detail, refused.status if nonce else 401)
    response = onwards(where)
    keep(request, response, session["session"])
    return response


def _sign_in_cookie(request: Request) -> str:
    return f"{cookie(request)}-sign-in"
