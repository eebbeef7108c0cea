"""Run page: live stages, outcome with reason, data, features, metrics, gates, and actions."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from services.console import run_charts, run_summary
from services.console.api import Api, ApiProblem, Json, at
from services.console.formatting import moment, now
from services.console.page import Pages
from services.console.render import onwards, page
from services.console.session import SubmittedForm, integer
from services.console.stream_proxy import StreamProxy
from shared.domain.run import STAGES
from shared.domain.segments import way

pages = Pages()

_LOG = 32_768
"""Bytes of a log that the page loads first."""
_EARLIER = 5
"""Number of earlier runs for the usual duration of a stage."""
_EVENTS = 200
_CONTENDERS = {"candidate": "this run", "serving": "serving version"}


@pages.page("/runs/{id}")
async def run(request: Request, api: Api) -> Response:
    id = request.path_params["id"]
    run = await api.get(at("runs", id))
    stage = request.query_params.get("stage") or None
    stage = stage if stage in STAGES else None
    offset = integer(request.query_params.get("offset", ""))
    ended = run["state"] in run_summary.ENDED
    recent, gates, events, validation, features, evaluation, training, text = await api.all(
        api.get(at("recommenders", run["recommender"], "runs"), state="registered", limit=_EARLIER),
        _unless_unread(api, api.get(at("runs", id, "gates"))),
        api.get(at("runs", id, "events"), limit=_EVENTS),
        api.maybe(at("runs", id, "validation")),
        api.maybe(at("runs", id, "features")),
        api.maybe(at("runs", id, "evaluation")),
        api.maybe(at("runs", id, "training")),
        _log(api, id, stage, offset),
    )
    earlier = [earlier_run for earlier_run in recent["items"] if earlier_run["id"] != id]
    rows = run_summary.stages(run, run_summary.usual(earlier, run["mode"]), now())
    gate_rows = gates["gates"] if gates else [_bare(gate) for gate in run["gates"]]
    took = _took(run, events["items"])
    names, overall, sliced = run_summary.contenders(run["metrics"])
    bounds = _intervals(evaluation)
    return page(
        request,
        "run.html",
        every=None if ended else 2,
        run=run,
        lineage=_lineage(run),
        at=way("runs", id),
        summary=run_summary.sentence(run, rows, gate_rows, took),
        ended=ended,
        took=took,
        stages=rows,
        gates=gate_rows,
        training=training,
        losses=run_charts.losses([("loss", training)]),
        looks=sorted({name for epoch in training["epochs"] for name in epoch["validation"]}) if training else [],
        events=events,
        sections=[validation, *validation["sections"]] if validation else [],
        features=features,
        contenders=names,
        metrics=overall,
        slices=sliced,
        others=run_summary.others(run["metrics"]),
        intervals=bounds,
        plots=run_charts.metric_plots(
            {
                metric: [
                    run_charts.interval(_CONTENDERS.get(name, name), run["metrics"], f"{name}.{metric}", bounds.get(name, {}).get(metric))
                    for name in names
                ]
                for metric, _ in overall
            }
        ),
        names=[_CONTENDERS.get(name, name) for name in names],
        log=text,
        chosen=stage,
        offset=offset,
        follows=not ended and offset is None,
        stream=way("runs", id, "log") + (f"?{urlencode({'stage': stage})}" if stage else ""),
        possible=run_summary.possible(run),
        from_stage=run_summary.retried_from(run),
    )


async def _unless_unread(api: Api, awaitable: Any) -> Json | None:
    """Returns None if this platform version cannot read the run's spec: the page then shows no open gates."""
    try:
        return await api.unless(404, awaitable)
    except ApiProblem as refused:
        if refused.status in (409, 422, 500):
            return None
        raise


async def _log(api: Api, id: str, stage: str | None, offset: int | None) -> Json:
    where: dict[str, Any] = {"last": _LOG} if offset is None else {"offset": offset}
    try:
        chunk: Json = await api.get(at("runs", id, "logs"), stage=stage, **where)
    except ApiProblem as refused:
        return {"text": "", "start": 0, "next": 0, "stage": stage, "attempt": None, "fault": str(refused)}
    return chunk | {"fault": ""}


def _bare(gate: Json) -> Json:
    empty = dict.fromkeys(("value", "against", "other", "needed", "apart"))
    return {"stage": "", "accepted": "", "metric": "", **empty, **gate}


def _took(run: Json, events: list[Json]) -> float | None:
    """Seconds from leaving the queue to the end."""
    began = next((moment(event["at"]) for event in events if event["target"] in STAGES), None)
    ended = next((moment(event["at"]) for event in events if event["target"] in run_summary.ENDED), None)
    return (ended - began).total_seconds() if began and ended and run["state"] in run_summary.ENDED else None


def _intervals(evaluation: Json | None) -> dict[str, dict[str, list[float]]]:
    """Confidence intervals by contender and metric."""
    if evaluation is None:
        return {}
    report = evaluation["report"]
    models = report.get("models")
    by_contender = (
        {name: model.get("metrics", {}) for name, model in models.items() if isinstance(model, dict)} if isinstance(models, dict) else {}
    )
    by_contender["candidate"] = report
    return {
        name: {
            metric: figure["interval"] for metric, figure in figures.items() if isinstance(figure, dict) and _pair(figure.get("interval"))
        }
        for name, figures in by_contender.items()
        if isinstance(figures, dict)
    }


def _pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(bound, int | float) for bound in value)


def _lineage(run: Json) -> Json:
    """Lineage with None for unknown fields."""
    lineage: Json = {**dict.fromkeys(("spec_generation", "serving", "code", "seeds", "data")), **run["lineage"]}
    for name in ("seeds", "data"):
        lineage[name] = lineage[name] if isinstance(lineage[name], dict) else {}
    return lineage


@pages.page("/runs/{id}/log")
async def log(request: Request, api: Api) -> Response:
    """Streams a stage's log from the API."""
    stage = request.query_params.get("stage")
    return StreamProxy(
        request, api.token, at("runs", request.path_params["id"], "logs", "stream"), urlencode({"stage": stage}) if stage else ""
    )


@pages.action("/runs/{id}/cancel")
async def cancel(request: Request, api: Api, form: SubmittedForm) -> Response:
    id = request.path_params["id"]
    await api.post(at("runs", id, verb="cancel"), {"reason": form["reason"]}, once=form["once"])
    return onwards(way("runs", id), f"Cancellation of run {id} is requested.")


@pages.action("/runs/{id}/retry")
async def retry(request: Request, api: Api, form: SubmittedForm) -> Response:
    id = request.path_params["id"]
    wanted: Json = {"reason": form["reason"], "accept": form["accept"] == "yes"}
    if form["from"]:
        wanted["from"] = form["from"]
    made = await api.post(at("runs", id, verb="retry"), wanted, once=form["once"])
    return onwards(way("runs", made["id"]), f"This run continues run {id}.")


@pages.action("/runs/{id}/prioritise")
async def prioritise(request: Request, api: Api, form: SubmittedForm) -> Response:
    id, priority = request.path_params["id"], integer(form["priority"])
    wanted = {"priority": form["priority"] if priority is None else priority, "reason": form["reason"]}
    made = await api.post(at("runs", id, verb="prioritise"), wanted, once=form["once"])
    return onwards(way("runs", id), f"The priority is now {made['priority']}.")
