"""A recommender's spec: what is asked for now, who changed what and when, and a way to change it that shows first what that would do."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from services.console.api import Api, Json, Refused, at
from services.console.door import Form, integer
from services.console.page import Pages
from services.console.render import onwards, page
from services.console.specs import Changed, changes, placed, short, whole
from shared.domain.segments import way

pages = Pages()

_KEPT = 25


@pages.page("/recommenders/{name}/spec")
async def spec(request: Request, api: Api) -> Response:
    name, asked = request.path_params["name"], request.query_params
    one, found = await api.all(
        api.get(at("recommenders", name)),
        api.get(at("recommenders", name, "specs"), limit=_KEPT, cursor=asked.get("cursor")),
    )
    return page(
        request,
        "spec.html",
        name=name,
        place=way("recommenders", name),
        one=one,
        text=await run_in_threadpool(short, one["spec"]),
        whole=await run_in_threadpool(whole, one["spec"]),
        entries=found["items"],
        next=found["next"],
        compared=await _compared(api, name, asked.get("from", ""), asked.get("to", str(one["generation"]))),
    )


@pages.action("/recommenders/{name}/spec/check")
async def check(request: Request, api: Api, form: Form) -> Response:
    return await _checked(request, api, request.path_params["name"], form)


@pages.action("/recommenders/{name}/spec/apply")
async def apply(request: Request, api: Api, form: Form) -> Response:
    name = request.path_params["name"]
    seen = integer(form["generation"]) or 0
    run = form["run"] == "yes"
    try:
        made = await api.send("PUT", at("recommenders", name), _text(form), {"If-Match": f'"{seen}"'}, run=str(run).lower())
    except Refused as refused:
        if refused.status != 422:
            raise
        return await _checked(request, api, name, form)
    if made["run"]:
        return onwards(way("runs", made["run"]), f"Spec {made['generation']} of {name} is applied; its run is on its way.")
    same = made["generation"] == seen
    said = "Nothing was changed: the spec is the same." if same else f"Spec {made['generation']} is applied; no run was started."
    return onwards(way("recommenders", name, "spec"), said)


async def _checked(request: Request, api: Api, name: str, form: Form) -> Response:
    one, text = await api.get(at("recommenders", name)), _text(form)
    errors: list[Json] = []
    valid: Json | None = None
    plan: Json | None = None
    detail = ""
    try:
        valid = await api.send("POST", at("recommenders", verb="validate"), text)
        if valid["spec"]["name"] != name:
            detail = f"name: this is the spec of '{valid['spec']['name']}': {name} keeps its name"
            errors = [{"field": "name", "message": f"expected '{name}': a recommender keeps its name"}]
            valid = None
        else:
            plan = await api.send("POST", at("recommenders", verb="plan"), text)
    except Refused as refused:
        if refused.status not in (409, 413, 422):
            raise
        if valid is None:
            errors = list(refused.errors)
        detail = refused.detail
    return page(
        request,
        "spec_check.html",
        status=200 if valid else 422,
        name=name,
        place=way("recommenders", name),
        generation=one["generation"],
        text=text,
        detail=detail,
        errors=await run_in_threadpool(placed, text, errors),
        valid=valid,
        plan=plan,
        compared=await run_in_threadpool(_changes, one, valid) if valid else None,
    )


async def _compared(api: Api, name: str, before: str, after: str) -> Json | None:
    if integer(before) is None or integer(after) is None:
        return None
    one, other = await api.all(*(api.get(at("recommenders", name, "specs", one)) for one in (before, after)))
    return {"from": one, "to": other, "lines": await run_in_threadpool(_changes, one, other)}


def _changes(one: Json, other: Json) -> list[Changed]:
    return changes(whole(one["spec"]), whole(other["spec"]))


def _text(form: Form) -> str:
    return form.values.get("spec", "").replace("\r\n", "\n").rstrip() + "\n"
