"""What a rollout comes to, in one sentence, and what it still waits for: of what the API says of it."""

from __future__ import annotations

from datetime import datetime

from services.console.api import Json
from services.console.words import moment, percent, share, span, users
from shared.domain.rollout import MACHINE

ENDED = MACHINE.ends
_NAMES = {"hit_rate": "hits", "conversion": "conversions"}


def name_of(goal: str) -> str:
    return _NAMES.get(goal, goal)


def sentence(one: Json) -> str:
    """Why it is where it is, with the numbers that decided."""
    if one["kind"] == "rollback":
        said = f"{_back(one['state'])} version {one['version']}: {one['reason']}"
    else:
        said = _BY_STATE[one["state"]](one) if one["state"] in _BY_STATE else f"Version {one['version']}: {one['reason']}"
    return f"{said.rstrip('. :')}."


def _back(state: str) -> str:
    return {"promoted": "Everybody went back to", "aborted": "Nobody went back to", "rolled_back": "There was no way back to"}.get(
        state, "Everybody is going back to"
    )


def _rolled_back(one: Json) -> str:
    version, report = one["version"], _newest(one)
    if report is None or report["reason"] != one["reason"]:  # it wasn't the users who decided
        return f"Version {version} was rolled back: {one['reason']}"
    after = f"rolled back after {users(report['candidate']['users'])}"
    goal = next(check for check in report["checks"] if check["name"] == "goal")
    broken = [check["name"].replace("_", " ") for check in report["checks"] if check["verdict"] == "fail" and check["name"] != "goal"]
    if broken:
        return f"Version {version} broke its guardrail of {' and '.join(broken)} in its canary at {_at(report)}: {after}"
    if goal["verdict"] == "fail" and report["lift"] is not None:
        return f"Version {version} earned {_lift(report['lift'], one)} than {_other(one)} in its canary at {_at(report)}: {after}"
    return f"Version {version} was rolled back: {one['reason']}"


def _promoted(one: Json) -> str:
    version, report = one["version"], _newest(one)
    if report is None:
        return f"Version {version} was promoted: {one['reason']}"
    if report["reason"] != one["reason"]:
        return f"Version {version} was promoted by hand, before the evidence was in: {one['reason']}"
    harm = share(one["plan"]["max_harm"])
    earned = "" if report["lift"] is None else f"earned {_lift(report['lift'], one)} than {_other(one)}, and "
    return f"Version {version} {earned}surely doesn't lose more than {harm}: promoted after {users(report['candidate']['users'])}"


def _canary(one: Json) -> str:
    weight = share(one["steps"][one["step"]])
    return f"Version {one['version']} answers {weight} of the users beside {_other(one)}; {one['reason'] or 'nothing is known of it yet'}"


def _paused(one: Json) -> str:
    place = f" at {share(one['steps'][one['step']])}" if one["step"] >= 0 else ""
    return f"Version {one['version']} waits{place} for somebody to decide: {one['reason']}"


def _aborted(one: Json) -> str:
    return f"The rollout of version {one['version']} was ended by hand: {one['reason']}"


_BY_STATE = {"rolled_back": _rolled_back, "promoted": _promoted, "canary": _canary, "paused": _paused, "aborted": _aborted}


def needs(one: Json, now: datetime) -> list[str]:
    """What is missing until this step is decided, the most wanting first."""
    if one["state"] != "canary" or not 0 <= one["step"] < len(one["plan"]["steps"]):
        return []
    step = one["plan"]["steps"][one["step"]]
    report = next((found for found in one["reports"] if found["step"] == one["step"]), None)
    if report is None:
        found = ["the first look at what its users do"]
    else:
        found = [*_missing(report, step), *_unsure(report, one)]
        begun = moment(report["since"])
        if begun is not None and step["min"] > (now - begun).total_seconds():
            found.append(f"{span(step['min'] - (now - begun).total_seconds())} more, which this step lasts at least")
    until = moment(one["deadline"])
    if until is not None:
        left = (until - now).total_seconds()
        found.append(f"{span(left)} are left; without a verdict it pauses then" if left > 0 else "its time is over: the next look decides")
    return found


def _missing(report: Json, step: Json) -> list[str]:
    found = []
    users = step["min_users"] - min(report["stable"]["users"], report["candidate"]["users"])
    if users > 0:
        found.append(f"{users:,} more users in the smaller variant, whose time to react is over ({step['min_users']:,} are wanted)")
    both = report["stable_answers"], report["candidate_answers"]
    answers = step["min_answers"] - min(side["answers"] if side else 0 for side in both)
    if None not in both and answers > 0:
        found.append(f"{answers:,} more answers in the smaller variant")
    return found


def _unsure(report: Json, one: Json) -> list[str]:
    found = []
    last = one["step"] == len(one["steps"]) - 1
    if last and report["lower"] is not None and report["lower"] <= -one["plan"]["max_harm"]:
        harm = share(one["plan"]["max_harm"])
        found.append(f"certainty that it doesn't lose more than {harm}: it could still be {percent(-report['lower'])} (lower bound)")
    checks = [check for check in report["checks"] if check["name"] not in ("goal", "split") and check["verdict"] == "inconclusive"]
    return found + [f"the guardrail of {check['name'].replace('_', ' ')}: {check['reason']}" for check in checks]


def _newest(one: Json) -> Json | None:
    found: Json | None = one["reports"][-1] if one["reports"] else None
    return found


def _lift(lift: float, one: Json) -> str:
    what = name_of(one["plan"]["goal"])
    return f"{percent(abs(lift), 0 if abs(lift) >= 0.1 else 1)} {'more' if lift >= 0 else 'fewer'} {what}"


def _other(one: Json) -> str:
    return f"version {one['against']}" if one["against"] is not None else "the stable version"


def _at(report: Json) -> str:
    return share(report["weight"])
