"""Rollouts: comparison of the versions, evidence over time, open conditions and decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from services.console.api import Api, Json, at
from services.console.charts import Axis, ChartLine, ChartPoint, EventMark, timeline
from services.console.formatting import DASH, moment, now, share
from services.console.page import Pages
from services.console.render import onwards, page
from services.console.rollout_summary import ENDED, name_of, needs, sentence
from services.console.session import SubmittedForm
from shared.domain.segments import way

pages = Pages()

_ROWS = 25
_EVENTS = 100


class _Verb(NamedTuple):
    button: str
    explanation: str
    done: str
    tone: str = ""


_VERBS = {
    "pause": _Verb("Pause", "All users keep their version until the rollout is resumed.", "paused"),
    "resume": _Verb("Resume", "The rollout continues; its current step starts again.", "resumed"),
    "skip": _Verb("Skip to the next step", "The rollout moves on without a verdict of this step.", "moved to the next step"),
    "promote": _Verb("Promote", "All users get this version now, without the evidence.", "promoted"),
    "abort": _Verb("Abort", "All users get the stable version again, and the rollout ends.", "aborted", "bad"),
}


@pages.page("/recommenders/{name}/rollouts")
async def rollouts(request: Request, api: Api) -> Response:
    name = request.path_params["name"]
    listing = await api.get(at("recommenders", name, "rollouts"), limit=_ROWS, cursor=request.query_params.get("cursor"))
    rows = [rollout | {"said": sentence(rollout), "where": _where(rollout)} for rollout in listing["items"]]
    every = 2 if any(row["state"] not in ENDED for row in rows) else 10
    return page(request, "rollouts.html", every=every, name=name, rows=rows, next=listing["next"])


@pages.page("/rollouts/{id}")
async def rollout(request: Request, api: Api) -> Response:
    id = request.path_params["id"]
    rollout, looks, events = await api.all(
        api.get(at("rollouts", id)), api.get(at("rollouts", id, "looks")), api.get(at("rollouts", id, "events"), limit=_EVENTS)
    )
    ended = rollout["state"] in ENDED
    context: dict[str, Any] = {
        "rollout": rollout,
        "ended": ended,
        "explained": sentence(rollout),
        "tone": {"promoted": "said", "rolled_back": "wrong", "paused": "hint"}.get(rollout["state"], "hint"),
        "needs": needs(rollout, now()),
        "steps": _steps(rollout),
        "report": rollout["reports"][-1] if rollout["reports"] else None,
        "variants": _variants(rollout),
        "looks": looks,
        "picture": picture(looks, rollout),
        "events": list(reversed(events["items"])),
        "more": events["next"],
        "verbs": {verb: _VERBS[verb] for verb in rollout["answers_to"] if verb in _VERBS},
        "back": await _can_go_back(api, rollout),
        "goal": name_of(rollout["plan"]["goal"]),
    }
    return page(request, "rollout.html", every=15 if ended else 2, **context)


@pages.action("/rollouts/{id}/{verb}")
async def steer(request: Request, api: Api, form: SubmittedForm) -> Response:
    id, verb = request.path_params["id"], request.path_params["verb"]
    if verb == "rollback":
        return await _rolled_back(api, id, form)
    await api.post(at("rollouts", id, verb=verb), {"reason": form["reason"]}, once=form["once"])
    done = _VERBS[verb].done if verb in _VERBS else verb
    return onwards(way("rollouts", id), f"Requested: the rollout will be {done} in a moment.")


async def _rolled_back(api: Api, id: str, form: SubmittedForm) -> Response:
    name = (await api.get(at("rollouts", id)))["recommender"]
    done = await api.post(at("recommenders", name, verb="rollback"), {"reason": form["reason"]}, once=form["once"])
    if done["rollout"] is not None:
        return onwards(way("rollouts", done["rollout"]), "The previous version is being loaded; then all users get it.")
    return onwards(way("rollouts", id), f"Version {done['stable']} serves all users again.")


async def _can_go_back(api: Api, rollout: Json) -> bool:
    """Returns whether the version of this rollout now serves all users."""
    if rollout["state"] != "promoted":
        return False
    recommender = await api.maybe(at("recommenders", rollout["recommender"]))
    serving = recommender["serving"] if recommender else None
    return serving is not None and serving["stable"] == rollout["version"] and serving["candidate"] is None and rollout["version"] > 1


def _where(rollout: Json) -> str:
    if rollout["kind"] == "rollback":
        return "rollback"
    return share(rollout["steps"][rollout["step"]]) if 0 <= rollout["step"] < len(rollout["steps"]) else DASH


def _steps(rollout: Json) -> list[Json]:
    """Steps with their states: passed, skipped, active, upcoming or not reached."""
    reports = {report["step"]: report for report in rollout["reports"]}
    steps = []
    ways = {"rolled_back": "failed", "canary": "running"}
    for number, step in enumerate(rollout["plan"]["steps"]):
        state = str(ways.get(rollout["state"], rollout["state"]))
        if number < rollout["step"] or (number == rollout["step"] and rollout["state"] == "promoted"):
            state = "passed" if number in reports and reports[number]["verdict"] == "pass" else "skipped"
        elif number > rollout["step"]:
            state = "not reached" if rollout["state"] in ENDED else "upcoming"
        steps.append(step | {"number": number, "state": state, "report": reports.get(number)})
    return steps


def _variants(rollout: Json) -> list[tuple[str, str, Any, Any]]:
    """Rows of the newest report: label, format, value of the stable version, value of the candidate."""
    if not rollout["reports"]:
        return []
    report = rollout["reports"][-1]
    both = report["stable"], report["candidate"]
    answered = report["stable_answers"], report["candidate_answers"]
    rows = [
        ("Users observed", "number", *_of(both, lambda side: side["users"])),
        ("Answers counted", "number", *_of(both, lambda side: side["answers"])),
        ("Hits", "number", *_of(both, lambda side: side["hits"])),
        ("Hit rate by user", "percent", *_of(both, lambda side: side["mean"] if side["users"] else None)),
        ("Conversion", "percent", *_of(both, lambda side: side["converted"] / side["users"] if side["users"] else None)),
    ]
    if None not in answered:
        rows += [
            ("Median latency", "span", *_of(answered, lambda side: side["p50"])),
            ("99th percentile of latency", "span", *_of(answered, lambda side: side["p99"])),
            ("Errors", "percent", *_of(answered, lambda side: side["errors"] / side["answers"] if side["answers"] else None)),
        ]
    return rows


def _of(both: tuple[Json, Json], measure: Callable[[Json], Any]) -> tuple[Any, Any]:
    return measure(both[0]), measure(both[1])


def picture(looks: Json, rollout: Json) -> Markup:
    """Chart of the lift with its bounds at each look, and the two decision levels."""
    bounded_looks = [look for look in looks["looks"] if look["lower"] is not None]
    if not bounded_looks:
        return Markup("")
    most = _widest(bounded_looks, looks["max_harm"])
    lines = [
        ChartLine(
            f"step at {share(weight)}",
            [ChartPoint(_x(look), look["lift"], max(look["lower"], -most), min(look["upper"], most)) for look in step_looks],
        )
        for weight, step_looks in _by_step(bounded_looks)
    ]
    newest = bounded_looks[-1]
    label = (
        f"Lift of version {rollout['version']} after each of {len(bounded_looks)} looks: at the last one {newest['lift']:+.1%}, "
        f"confidence interval {newest['lower']:+.1%} to {newest['upper']:+.1%}"
    )
    marks = [
        EventMark(_x(step_looks[0]), f"{share(weight)} of the users from here on", "busy", share(weight))
        for weight, step_looks in _by_step(bounded_looks)
    ]
    levels = [
        (0.0, "no difference: rolled back when the band is below"),
        (-looks["max_harm"], "largest accepted harm: promoted when the band is above"),
    ]
    return timeline(lines, label, marks, levels=levels, axis=Axis(title="lift", x_title="UTC", height=280))


def _widest(looks: Sequence[Json], harm: float) -> float:
    """Limit of the y axis: half of the bands fit, because the first bands are very wide."""
    bands = sorted(max(abs(look["lower"]), abs(look["upper"])) for look in looks)
    lifts = (1.2 * abs(look["lift"]) for look in looks)
    return float(max(bands[len(bands) // 2], 3 * harm, *lifts))


def _by_step(looks: Sequence[Json]) -> list[tuple[float, list[Json]]]:
    groups: list[tuple[float, list[Json]]] = []
    for look in looks:
        if not groups or groups[-1][1][0]["step"] != look["step"]:
            groups.append((look["weight"], []))
        groups[-1][1].append(look)
    return groups


def _x(look: Json) -> float:
    at: datetime = moment(look["at"])
    return at.timestamp()
