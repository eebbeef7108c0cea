"""Summary sentence of a rollout, and its open conditions, from the API's data."""

from __future__ import annotations

from datetime import datetime

from services.console.api import Json
from services.console.formatting import moment, percent, share, span, users
from shared.domain.rollout import MACHINE

ENDED = MACHINE.ends
_NAMES = {"hit_rate": "hits", "conversion": "conversions"}


def name_of(goal: str) -> str:
    return _NAMES.get(goal, goal)


def sentence(rollout: Json) -> str:
    """State of a rollout with the numbers behind it."""
    if rollout["kind"] == "rollback":
        text = f"{_back(rollout['state'])} version {rollout['version']}: {rollout['reason']}"
    else:
        text = (
            _BY_STATE[rollout["state"]](rollout) if rollout["state"] in _BY_STATE else f"Version {rollout['version']}: {rollout['reason']}"
        )
    return f"{text.rstrip('. :')}."


def _back(state: str) -> str:
    words = {"promoted": "All users are back on", "aborted": "Aborted rollback to", "rolled_back": "Failed rollback to"}
    return words.get(state, "Rolling all users back to")


def _rolled_back(rollout: Json) -> str:
    version, report = rollout["version"], _newest(rollout)
    if report is None or report["reason"] != rollout["reason"]:  # the rollback was not decided by the step analysis
        return f"Version {version} was rolled back: {rollout['reason']}"
    after = f"rolled back after {users(report['candidate']['users'])}"
    goal = next(check for check in report["checks"] if check["name"] == "goal")
    broken = [check["name"].replace("_", " ") for check in report["checks"] if check["verdict"] == "fail" and check["name"] != "goal"]
    if broken:
        return f"Version {version} broke the guardrail {' and '.join(broken)} in its canary at {_at(report)}: {after}"
    if goal["verdict"] == "fail" and report["lift"] is not None:
        return f"Version {version} earned {_lift(report['lift'], rollout)} than {_other(rollout)} in its canary at {_at(report)}: {after}"
    return f"Version {version} was rolled back: {rollout['reason']}"


def _promoted(rollout: Json) -> str:
    version, report = rollout["version"], _newest(rollout)
    if report is None:
        return f"Version {version} was promoted: {rollout['reason']}"
    if report["reason"] != rollout["reason"]:
        return f"Version {version} was promoted by hand, without the evidence: {rollout['reason']}"
    harm = share(rollout["plan"]["max_harm"])
    earned = "" if report["lift"] is None else f"earned {_lift(report['lift'], rollout)} than {_other(rollout)} and "
    return f"Version {version} {earned}excludes a loss above {harm}: promoted after {users(report['candidate']['users'])}"


def _canary(rollout: Json) -> str:
    weight, reason = share(rollout["steps"][rollout["step"]]), rollout["reason"] or "no look yet"
    return f"Version {rollout['version']} serves {weight} of the users beside {_other(rollout)}; {reason}"


def _paused(rollout: Json) -> str:
    place = f" at {share(rollout['steps'][rollout['step']])}" if rollout["step"] >= 0 else ""
    return f"Version {rollout['version']} is paused{place} and waits for a decision: {rollout['reason']}"


def _aborted(rollout: Json) -> str:
    return f"The rollout of version {rollout['version']} was aborted: {rollout['reason']}"


_BY_STATE = {"rolled_back": _rolled_back, "promoted": _promoted, "canary": _canary, "paused": _paused, "aborted": _aborted}


def needs(rollout: Json, now: datetime) -> list[str]:
    """Open conditions of the current step."""
    if rollout["state"] != "canary" or not 0 <= rollout["step"] < len(rollout["plan"]["steps"]):
        return []
    step = rollout["plan"]["steps"][rollout["step"]]
    report = next((step_report for step_report in rollout["reports"] if step_report["step"] == rollout["step"]), None)
    if report is None:
        missing = ["the first look"]
    else:
        missing = [*_missing(report, step), *_unsure(report, rollout)]
        begun = moment(report["since"])
        if begun is not None and step["min"] > (now - begun).total_seconds():
            missing.append(f"{span(step['min'] - (now - begun).total_seconds())} more: the shortest duration of this step")
    until = moment(rollout["deadline"])
    if until is not None:
        left = (until - now).total_seconds()
        missing.append(
            f"{span(left)} left; then the rollout pauses without a verdict" if left > 0 else "deadline passed: the next look decides"
        )
    return missing


def _missing(report: Json, step: Json) -> list[str]:
    missing = []
    users = step["min_users"] - min(report["stable"]["users"], report["candidate"]["users"])
    if users > 0:
        missing.append(f"{users:,} more users with a closed attribution window in the smaller variant (of {step['min_users']:,})")
    both = report["stable_answers"], report["candidate_answers"]
    answers = step["min_answers"] - min(side["answers"] if side else 0 for side in both)
    if None not in both and answers > 0:
        missing.append(f"{answers:,} more answers in the smaller variant")
    return missing


def _unsure(report: Json, rollout: Json) -> list[str]:
    doubts = []
    last = rollout["step"] == len(rollout["steps"]) - 1
    if last and report["lower"] is not None and report["lower"] <= -rollout["plan"]["max_harm"]:
        harm = share(rollout["plan"]["max_harm"])
        doubts.append(f"evidence against a loss above {harm}: the loss could still be {percent(-report['lower'])} (lower bound)")
    checks = [check for check in report["checks"] if check["name"] not in ("goal", "split") and check["verdict"] == "inconclusive"]
    return doubts + [f"the guardrail {check['name'].replace('_', ' ')}: {check['reason']}" for check in checks]


def _newest(rollout: Json) -> Json | None:
    report: Json | None = rollout["reports"][-1] if rollout["reports"] else None
    return report


def _lift(lift: float, rollout: Json) -> str:
    goal = name_of(rollout["plan"]["goal"])
    return f"{percent(abs(lift), 0 if abs(lift) >= 0.1 else 1)} {'more' if lift >= 0 else 'fewer'} {goal}"


def _other(rollout: Json) -> str:
    return f"version {rollout['against']}" if rollout["against"] is not None else "the stable version"


def _at(report: Json) -> str:
    return share(report["weight"])
