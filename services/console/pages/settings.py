"""Settings: identity, tokens, audit log and storage. All but the identity need the role admin."""

from __future__ import annotations

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from services.console.api import Api, ApiProblem, Json, at
from services.console.page import Pages
from services.console.render import onwards, page
from services.console.session import SubmittedForm

pages = Pages()

_ROWS = 25
_LIVES = {"12h": "12 hours", "30d": "30 days", "90d": "90 days", "365d": "1 year", "never": "no expiry"}
_ROLES = {
    "client": "for applications: asks for recommendations, sends events",
    "viewer": "reads everything but tokens and the audit log",
    "operator": "also changes recommenders, runs, rollouts and versions",
    "admin": "everything",
}
_FILTERS = ("actor", "recommender", "action")
_TIMES = ("since", "until")


@pages.page("/settings")
async def settings(request: Request, api: Api) -> Response:
    return await _tokens(request, api)


@pages.action("/settings/tokens")
async def make(request: Request, api: Api, form: SubmittedForm) -> Response:
    """Shows the new token once: no address, cookie, log or cache keeps the secret."""
    names = form["recommenders"].replace(",", " ").split()
    life = form["expires_in"]
    new = {"name": form["name"], "role": form["role"], "recommenders": names or None, "expires_in": None if life == "never" else life}
    try:
        made = await api.post("/v1/tokens", new)
    except ApiProblem as refused:
        if refused.status not in (403, 409, 422):
            raise
        return await _tokens(request, api, refused, form.values)
    return page(request, "token.html", about=made["about"], secret=made["token"])


@pages.action("/settings/tokens/{id}/revoke")
async def revoke(request: Request, api: Api, form: SubmittedForm) -> Response:
    gone = await api.ask("DELETE", at("tokens", request.path_params["id"]), {})
    return onwards("/settings", f"The token of {gone['name']} is revoked: it is refused from now on.")


@pages.page("/settings/audit")
async def audit(request: Request, api: Api) -> Response:
    form_values = {name: request.query_params.get(name, "").strip() for name in (*_FILTERS, *_TIMES)}
    filters = {name: form_values[name] or None for name in _FILTERS} | {name: _utc(form_values[name]) for name in _TIMES}
    listing: Json = {"items": [], "next": None}
    refused = None
    if request.state.who.may("admin"):
        try:
            listing = await api.get("/v1/audit", limit=_ROWS, cursor=request.query_params.get("cursor") or None, **filters)
        except ApiProblem as error:
            if error.status not in (400, 422):
                raise
            refused = error
    return page(
        request,
        "audit.html",
        every=None,
        rows=listing["items"],
        next=listing["next"],
        form_values=form_values,
        refused=refused,
        moment=_moment,
    )


@pages.page("/settings/storage")
async def storage(request: Request, api: Api) -> Response:
    return _storage(request)


@pages.action("/settings/storage/look")
async def look(request: Request, api: Api, form: SubmittedForm) -> Response:
    return _storage(request, done=await api.post("/v1/gc", once=form["once"] or None, dry_run="true"))


@pages.action("/settings/storage/collect")
async def collect(request: Request, api: Api, form: SubmittedForm) -> Response:
    return _storage(request, done=await api.post("/v1/gc", once=form["once"] or None))


@pages.action("/settings/storage/forget")
async def forget(request: Request, api: Api, form: SubmittedForm) -> Response:
    """Shows what was deleted, and never the id again."""
    try:
        forgotten = await api.ask("DELETE", at("users", form["user"].strip()), {"recommender": form["recommender"].strip() or None})
    except ApiProblem as refused:
        if refused.status not in (403, 404, 422):
            raise
        return _storage(request, status=refused.status, refused=refused)
    return _storage(request, forgotten=forgotten["recommenders"])


def _storage(request: Request, **facts: Any) -> Response:
    return page(request, "storage.html", **({"done": None, "refused": None, "forgotten": ()} | facts))


async def _tokens(request: Request, api: Api, refused: ApiProblem | None = None, form_values: dict[str, str] | None = None) -> Response:
    me = await api.get("/v1/whoami")
    listing: Json = {"items": [], "next": None}
    if request.state.who.may("admin"):
        listing = await api.get("/v1/tokens", limit=_ROWS, cursor=request.query_params.get("cursor"))
    context: dict[str, Any] = {"me": me, "rows": listing["items"], "next": listing["next"], "roles": _ROLES, "lives": _LIVES}
    filled = {"name": "", "role": "viewer", "recommenders": "", "expires_in": "90d"} | (form_values or {})
    return page(request, "settings.html", status=refused.status if refused else 200, refused=refused, form_values=filled, **context)


def _moment(text: str) -> str:
    """Returns the text if a `datetime-local` field can show it, else an empty string: browsers warn of other values."""
    return text if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?", text) else ""


def _utc(text: str) -> str | None:
    """Adds the zone UTC, because a `datetime-local` field sends none."""
    return f"{text}Z" if text and not text.endswith("Z") and "+" not in text else text or None
