"""Recommender page: the serving version, its hit rate, active work and the timeline."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from services.console import activity
from services.console.api import Api, Json, at
from services.console.charts import Axis, ChartLine, ChartPoint, timeline
from services.console.formatting import moment, now
from services.console.page import Pages
from services.console.render import PageFault, fault, onwards, page
from services.console.run_summary import ENDED
from services.console.session import SubmittedForm, integer
from services.console.status_badges import drawn, light, under_way
from shared.domain.segments import way

pages = Pages()

WINDOWS = {"hour": "1h", "day": "1d", "week": "7d", "all": None}
_POINTS = 60
_LINES = 40
_EVENTS = 200


@pages.page("/recommenders/{name}")
async def recommender(request: Request, api: Api) -> Response:
    name = request.path_params["name"]
    recommender = await api.get(at("recommenders", name))
    window = _window(request.query_params.get("window", ""), recommender)
    life, served, runs, rollouts, fired, specs, versions, drift, triggers, empty = await api.all(
        api.get(at("recommenders", name, "life"), window=WINDOWS[window], points=_POINTS),
        api.get(at("recommenders", name, "history"), limit=_LINES),
        api.get(at("recommenders", name, "runs"), limit=15),
        api.get(at("recommenders", name, "rollouts"), limit=15),
        api.get(at("recommenders", name, "triggers", "history"), limit=_LINES),
        api.get(at("recommenders", name, "specs"), limit=15),
        api.get(at("recommenders", name, "versions"), limit=25),
        api.get(at("recommenders", name, "drift")),
        api.get(at("recommenders", name, "triggers")),
        api.get(at("recommenders", name, "kpis", "empty")),
    )
    place = way("recommenders", name)
    ends = await _ends(api, runs["items"])
    events = activity.happened(place, served["items"], runs["items"], rollouts["items"], fired["items"], specs["items"], ends)
    since, until = _shown(life, events)
    events = activity.lettered(events, since, until)
    active = under_way("rollout", rollouts["items"]) + under_way("run", runs["items"])
    return page(
        request,
        "recommender.html",
        every=2 if active else 10,
        name=name,
        place=place,
        window=window,
        windows=list(WINDOWS),
        life=life,
        picture=_picture(name, life, events, served["items"], since, until),
        rows=_rows(life, served["items"]),
        now_serving=_serving(recommender, served["items"]),
        ids=recommender["ids"],
        earns=next(
            (line["last"] for line in life["versions"] if recommender["serving"] and line["version"] == recommender["serving"]["stable"]),
            None,
        ),
        events=events[:_LINES],
        active=active,
        newest_run=runs["items"][0] if runs["items"] else None,
        versions=versions["items"],
        light=light(drift),
        triggers=triggers,
        empty=empty,
    )


@pages.action("/recommenders/{name}/run")
async def start(request: Request, api: Api, form: SubmittedForm) -> Response:
    name = request.path_params["name"]
    if form["mode"] == "retrain":
        await api.post(at("recommenders", name, verb="retrain"), {"reason": form["reason"]}, form["once"])
        return onwards(way("recommenders", name), "A retraining is requested: it starts when no other run or rollout is active.")
    body = {"mode": form["mode"] or "full", "reason": form["reason"], "fresh": form["fresh"] == "yes"}
    made = await api.post(at("recommenders", name, "runs"), body, form["once"])
    return onwards(way("runs", made["id"]), f"Run {made['id']} of {name} is created.")


@pages.action("/recommenders/{name}/rollback")
async def roll_back(request: Request, api: Api, form: SubmittedForm) -> Response:
    name, to = request.path_params["name"], integer(form["to"])
    if form["to"] and to is None:
        return fault(request, PageFault(422, "Not valid", "Expected the version's number."))
    done = await api.post(at("recommenders", name, verb="rollback"), {"to": to, "reason": form["reason"]}, form["once"])
    if done["rollout"]:
        message = f"Rollout {done['rollout']} loads the version; then all users get it."
    else:
        message = f"Version {done['stable']} serves all users." + (
            f" Abort requested: {', '.join(done['aborted'])}." if done["aborted"] else ""
        )
    return onwards(way("recommenders", name), message)


@pages.action("/recommenders/{name}/delete")
async def delete(request: Request, api: Api, form: SubmittedForm) -> Response:
    name = request.path_params["name"]
    if form["typed"] != name:
        return fault(request, PageFault(422, "Not deleted", "The typed name is not the recommender's name; nothing was deleted."))
    await api.ask("DELETE", at("recommenders", name), {})
    return onwards("/", f"{name} is deleted.")


async def _ends(api: Api, runs: list[Json]) -> dict[str, str]:
    """End times of failed and cancelled runs, which only their history holds."""
    inside = [run["id"] for run in runs if run["state"] in ("failed", "cancelled")]
    histories = await api.all(*(api.get(at("runs", id, "events"), limit=_EVENTS) for id in inside))
    last = {id: history["items"][-1] for id, history in zip(inside, histories, strict=True) if history["items"]}
    return {id: event["at"] for id, event in last.items() if event["target"] in ENDED}


def _window(choice: str, recommender: Json) -> str:
    """The chosen window; by default all of a young recommender's time, else the last week."""
    if choice in WINDOWS:
        return choice
    return "all" if now() - moment(recommender["created_at"]) < timedelta(days=8) else "week"


def _shown(life: Json, events: list[activity.Event]) -> tuple[datetime, datetime]:
    """Time span of the chart: the answers, and events shortly after them."""
    since, until = moment(life["since"]), moment(life["until"])
    shortly = until + (until - since) / 4
    return since, max([until, *(event.at for event in events if event.at <= shortly)])


def _picture(name: str, life: Json, events: list[activity.Event], served: list[Json], since: datetime, until: datetime) -> Any:
    if not life["versions"]:
        return None
    all_points = [point for version in life["versions"] for point in version["points"]]
    lines = [
        ChartLine(
            f"version {version['version']}",
            [ChartPoint(_middle(point), point["hit_rate"], point["low"], point["high"]) for point in drawn(version["points"], all_points)],
            version["version"] - 1,
        )
        for version in life["versions"]
    ]
    summary = ", ".join(f"version {version['version']} last at {version['points'][-1]['hit_rate']:.1%}" for version in life["versions"])
    spanned = Axis(title="hit rate", x_title="UTC", span=(since.timestamp(), until.timestamp()))
    stretches = activity.canaries(served, since, until)
    return timeline(lines, f"Hit rate of {name} over time: {summary}", activity.marks(events), stretches, axis=spanned)


def _middle(point: Json) -> float:
    return float(moment(point["since"]).timestamp() + moment(point["until"]).timestamp()) / 2


def _rows(life: Json, served: list[Json]) -> list[Json]:
    """One row for each version of the chart, the newest first."""
    rows = []
    for version in reversed(life["versions"]):
        answers, hits = (sum(point[count] for point in version["points"]) for count in ("answers", "hits"))
        roles = [entry for entry in served if version["version"] in (entry["stable"], entry["candidate"])]
        rows.append(
            {
                "version": version["version"],
                "hue": (version["version"] - 1) % 8,
                "answers": answers,
                "rate": hits / answers if answers else None,
                "last": version["points"][-1],
                "since": roles[-1]["since"] if roles else None,
                "until": roles[0]["until"] if roles else None,
            }
        )
    return rows


def _serving(recommender: Json, served: list[Json]) -> Json | None:
    """Since when the stable version is stable, and who decided."""
    if recommender["serving"] is None:
        return None
    first = served[0] if served else None
    for entry in served:
        if entry["stable"] != recommender["serving"]["stable"]:
            break
        first = entry
    return {"route": recommender["serving"], "since": first["since"], "actor": first["actor"], "reason": first["reason"]} if first else None
