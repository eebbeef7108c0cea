"""Spec page: the current spec, its history with authors, and an editor that shows the effect of a change first."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from services.console.api import Api, ApiProblem, Json, at
from services.console.page import Pages
from services.console.render import onwards, page
from services.console.session import SubmittedForm, integer
from services.console.specs import DiffLine, changes, full_text, short
from shared.contracts.spec_lines import placed_faults
from shared.domain.segments import way

pages = Pages()

_PAGE = 25


@pages.page("/recommenders/{name}/spec")
async def spec(request: Request, api: Api) -> Response:
    name, query = request.path_params["name"], request.query_params
    recommender, listing = await api.all(
        api.get(at("recommenders", name)),
        api.get(at("recommenders", name, "specs"), limit=_PAGE, cursor=query.get("cursor")),
    )
    return page(
        request,
        "spec.html",
        name=name,
        place=way("recommenders", name),
        recommender=recommender,
        text=await run_in_threadpool(short, recommender["spec"]),
        full_text=await run_in_threadpool(full_text, recommender["spec"]),
        entries=listing["items"],
        next=listing["next"],
        compared=await _compared(api, name, query.get("from", ""), query.get("to", str(recommender["generation"]))),
    )


@pages.action("/recommenders/{name}/spec/check")
async def check(request: Request, api: Api, form: SubmittedForm) -> Response:
    return await _checked(request, api, request.path_params["name"], form)


@pages.action("/recommenders/{name}/spec/apply")
async def apply(request: Request, api: Api, form: SubmittedForm) -> Response:
    name = request.path_params["name"]
    generation = integer(form["generation"]) or 0
    run = form["run"] == "yes"
    try:
        made = await api.send("PUT", at("recommenders", name), _text(form), {"If-Match": f'"{generation}"'}, run=str(run).lower())
    except ApiProblem as refused:
        if refused.status != 422:
            raise
        return await _checked(request, api, name, form)
    if made["run"]:
        return onwards(way("runs", made["run"]), f"Spec {made['generation']} of {name} is applied, and its run is created.")
    same = made["generation"] == generation
    message = "Nothing was changed: the spec is the same." if same else f"Spec {made['generation']} is applied; no run was started."
    return onwards(way("recommenders", name, "spec"), message)


async def _checked(request: Request, api: Api, name: str, form: SubmittedForm) -> Response:
    recommender, text = await api.get(at("recommenders", name)), _text(form)
    errors: list[Json] = []
    valid: Json | None = None
    plan: Json | None = None
    detail = ""
    try:
        valid = await api.send("POST", at("recommenders", verb="validate"), text)
        if valid["spec"]["name"] != name:
            detail = f"name: expected '{name}', got '{valid['spec']['name']}': the name of a recommender cannot change"
            errors = [{"field": "name", "message": f"expected '{name}': the name of a recommender cannot change"}]
            valid = None
        else:
            plan = await api.send("POST", at("recommenders", verb="plan"), text)
    except ApiProblem as refused:
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
        generation=recommender["generation"],
        text=text,
        detail=detail,
        errors=await run_in_threadpool(placed_faults, text, [(error["field"], error["message"]) for error in errors]),
        valid=valid,
        plan=plan,
        compared=await run_in_threadpool(_changes, recommender, valid) if valid else None,
    )


async def _compared(api: Api, name: str, before: str, after: str) -> Json | None:
    if integer(before) is None or integer(after) is None:
        return None
    older, newer = await api.all(*(api.get(at("recommenders", name, "specs", generation)) for generation in (before, after)))
    return {"from": older, "to": newer, "lines": await run_in_threadpool(_changes, older, newer)}


def _changes(older: Json, newer: Json) -> list[DiffLine]:
    return changes(full_text(older["spec"]), full_text(newer["spec"]))


def _text(form: SubmittedForm) -> str:
    return form.values.get("spec", "").replace("\r\n", "\n").rstrip() + "\n"
