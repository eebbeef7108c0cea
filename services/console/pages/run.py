"""A run: its stages live, why it ended as it did, its data, features, metrics and gates, what came of it, and what can be asked of it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from services.console import tales
from services.console.api import Api, Json, Refused, at
from services.console.charts import Axis, Line, Point, timeline
from services.console.door import Form, integer
from services.console.page import Pages
from services.console.render import onwards, page
from services.console.through import Through
from services.console.words import moment, now
from shared.domain.run import STAGES
from shared.domain.segments import way

pages = Pages()

_LOG = 32_768
"""Bytes of a log that a page begins with."""
_EARLIER = 5
"""Runs by which it is told how long one takes."""
_EVENTS = 200


@pages.page("/runs/{id}")
async def run(request: Request, api: Api) -> Response:
    id = request.path_params["id"]
    found = await api.get(at("runs", id))
    stage = request.query_params.get("stage") or None
    stage = stage if stage in STAGES else None
    offset = integer(request.query_params.get("offset", ""))
    ended = found["state"] in tales.ENDED
    recent, gates, events, validation, features, evaluation, text = await api.all(
        api.get(at("recommenders", found["recommender"], "runs"), state="registered", limit=_EARLIER),
        _unless_unread(api, api.get(at("runs", id, "gates"))),
        api.get(at("runs", id, "events"), limit=_EVENTS),
        api.maybe(at("runs", id, "validation")),
        api.maybe(at("runs", id, "features")),
        api.maybe(at("runs", id, "evaluation")),
        _log(api, id, stage, offset),
    )
    earlier = [one for one in recent["items"] if one["id"] != id]
    rows = tales.stages(found, tales.usual(earlier, found["mode"]), now())
    asked = gates["gates"] if gates else [_bare(one) for one in found["gates"]]
    took = _took(found, events["items"])
    names, whole, sliced = tales.contenders(found["metrics"])
    return page(
        request,
        "run.html",
        every=None if ended else 2,
        run=found,
        lineage=_lineage(found),
        at=way("runs", id),
        said_of_it=tales.sentence(found, rows, asked, took),
        ended=ended,
        took=took,
        stages=rows,
        gates=asked,
        epochs=_epochs(found["progress"]),
        events=events,
        sections=[validation, *validation["sections"]] if validation else [],
        features=features,
        contenders=names,
        metrics=whole,
        slices=sliced,
        others=tales.others(found["metrics"]),
        intervals=_intervals(evaluation),
        log=text,
        chosen=stage,
        offset=offset,
        follows=not ended and offset is None,
        stream=way("runs", id, "log") + (f"?{urlencode({'stage': stage})}" if stage else ""),
        possible=tales.possible(found),
        from_stage=tales.retried_from(found),
    )


async def _unless_unread(api: Api, asked: Any) -> Json | None:
    """A run of a spec that this version of the platform can't read any more is shown without its open gates."""
    try:
        return await api.unless(404, asked)
    except Refused as refused:
        if refused.status in (409, 422, 500):
            return None
        raise


async def _log(api: Api, id: str, stage: str | None, offset: int | None) -> Json:
    where: dict[str, Any] = {"last": _LOG} if offset is None else {"offset": offset}
    try:
        found: Json = await api.get(at("runs", id, "logs"), stage=stage, **where)
    except Refused as refused:
        return {"text": "", "start": 0, "next": 0, "stage": stage, "attempt": None, "fault": str(refused)}
    return found | {"fault": ""}


def _bare(gate: Json) -> Json:
    empty = dict.fromkeys(("value", "against", "other", "needed", "apart"))
    return {"stage": "", "accepted": "", "metric": "", **empty, **gate}


def _took(found: Json, events: list[Json]) -> float | None:
    """From where it left the queue until it ended."""
    began = next((moment(one["at"]) for one in events if one["target"] in STAGES), None)
    ended = next((moment(one["at"]) for one in events if one["target"] in tales.ENDED), None)
    return (ended - began).total_seconds() if began and ended and found["state"] in tales.ENDED else None


def _epochs(progress: Json | None) -> Any:
    """The loss by epoch, while it is trained."""
    history = progress["history"] if progress else []
    if len(history) < 2:
        return None
    line = Line("loss", [Point(one["epoch"], one["loss"]) for one in history])
    return timeline([line], "loss by epoch", axis=Axis(unit="", clock=False, height=180))


def _intervals(evaluation: Json | None) -> dict[str, dict[str, list[float]]]:
    """By contender and metric, where the report tells how sure a figure is."""
    if evaluation is None:
        return {}
    report = evaluation["report"]
    models = report.get("models")
    found = {name: one.get("metrics", {}) for name, one in models.items() if isinstance(one, dict)} if isinstance(models, dict) else {}
    found["candidate"] = report
    return {
        name: {metric: said["interval"] for metric, said in figures.items() if isinstance(said, dict) and _pair(said.get("interval"))}
        for name, figures in found.items()
        if isinstance(figures, dict)
    }


def _pair(given: Any) -> bool:
    return isinstance(given, list) and len(given) == 2 and all(isinstance(one, int | float) for one in given)


def _lineage(found: Json) -> Json:
    """As far as it is known."""
    lineage: Json = {**dict.fromkeys(("spec_generation", "serving", "code", "seeds", "data")), **found["lineage"]}
    for name in ("seeds", "data"):
        lineage[name] = lineage[name] if isinstance(lineage[name], dict) else {}
    return lineage


@pages.page("/runs/{id}/log")
async def log(request: Request, api: Api) -> Response:
    """What a stage writes, as it writes it: the API's stream."""
    stage = request.query_params.get("stage")
    return Through(
        request, api.token, at("runs", request.path_params["id"], "logs", "stream"), urlencode({"stage": stage}) if stage else ""
    )


@pages.action("/runs/{id}/cancel")
async def cancel(request: Request, api: Api, form: Form) -> Response:
    id = request.path_params["id"]
    await api.post(at("runs", id, verb="cancel"), {"reason": form["reason"]}, once=form["once"])
    return onwards(way("runs", id), f"Run {id} was asked to end.")


@pages.action("/runs/{id}/retry")
async def retry(request: Request, api: Api, form: Form) -> Response:
    id = request.path_params["id"]
    wanted: Json = {"reason": form["reason"], "accept": form["accept"] == "yes"}
    if form["from"]:
        wanted["from"] = form["from"]
    made = await api.post(at("runs", id, verb="retry"), wanted, once=form["once"])
    return onwards(way("runs", made["id"]), f"This run goes on from where run {id} ended.")


@pages.action("/runs/{id}/prioritise")
async def prioritise(request: Request, api: Api, form: Form) -> Response:
    id, priority = request.path_params["id"], integer(form["priority"])
    wanted = {"priority": form["priority"] if priority is None else priority, "reason": form["reason"]}
    made = await api.post(at("runs", id, verb="prioritise"), wanted, once=form["once"])
    return onwards(way("runs", id), f"Its priority is {made['priority']} now.")
