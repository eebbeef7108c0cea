"""Summary of a run from the API's data: sentence, stages, remaining time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from services.console.formatting import moment, plain, span
from shared.domain.metric import is_detail
from shared.domain.run import MACHINE, STAGES

Json = dict[str, Any]

ENDED = MACHINE.ends
_CONTENDERS = ("candidate", "serving", "baseline", "popularity")
_THEIRS = tuple(f"{name}." for name in _CONTENDERS)


@dataclass(frozen=True)
class UsualDuration:
    """Median duration of a stage in `runs` earlier runs."""

    seconds: float
    runs: int


@dataclass(frozen=True)
class Row:
    """Stage of a run as the page shows it."""

    name: str
    state: str
    attempt: str = ""
    number: int = 0
    seconds: float | None = None
    usual: UsualDuration | None = None
    share: float | None = None
    why: str = ""
    reused: bool = False
    log: bool = False
    """Whether the stage can have a log."""


def usual(runs: Sequence[Json], mode: str) -> dict[str, UsualDuration]:
    """Durations by stage, from runs of the same mode if there are any. Reused stages do not count."""
    same = [run for run in runs if run["mode"] == mode] or list(runs)
    by_stage: dict[str, UsualDuration] = {}
    for stage in STAGES:
        took = [seconds_of(entry) for run in same for entry in run["stages"] if entry["stage"] == stage and not entry["reused"]]
        if took:
            by_stage[stage] = UsualDuration(statistics.median(took), len(took))
    if "train" in by_stage:  # best estimate before the first refit
        by_stage.setdefault("refit", by_stage["train"])
    return by_stage


def seconds_of(stage: Json) -> float:
    took: timedelta = moment(stage["ended_at"]) - moment(stage["started_at"])
    return took.total_seconds()


def stages(run: Json, usual_by_stage: dict[str, UsualDuration], now: datetime) -> list[Row]:
    done = {entry["stage"]: entry for entry in run["stages"]}
    planned = _planned(run)
    ended_in = planned[min(len(done), len(planned) - 1)]
    rows = []
    for name in planned:
        usually = usual_by_stage.get(name)
        if name in done:
            entry = done[name]
            took = None if entry["reused"] else seconds_of(entry)
            state = "reused" if entry["reused"] else "done"
            last = entry["attempt"].rsplit("-", 1)[-1]
            number = int(last) if last.isascii() and last.isdecimal() else 0
            rows.append(Row(name, state, entry["attempt"], number, took, usually, 1.0, entry["why"], entry["reused"], True))
        elif run["state"] == name:
            began = moment(run["attempt_since"])
            took = (now - began).total_seconds() if began else None
            state = "paused" if run["retry_at"] else "running"
            rows.append(Row(name, state, "", run["attempt"], took, usually, share(run["progress"]), run["why"], False, True))
        elif run["state"] in ("failed", "cancelled") and name == ended_in and run["attempt"]:
            rows.append(Row(name, run["state"], "", run["attempt"], None, usually, None, "", False, True))
        else:
            rows.append(Row(name, "not reached" if run["state"] in ENDED else "waiting", usual=usually))
    return rows


def share(progress: Json | None) -> float | None:
    """Progress of a stage from epochs and steps; None if unknown."""
    if progress is None or not progress["epochs"]:
        return None
    inside: float = progress["step"] / progress["steps"] if progress["steps"] else 0.0
    finished_epochs: int = max(progress["epoch"], 1) - 1
    epochs: int = progress["epochs"]
    return min(1.0, (finished_epochs + min(inside, 1.0)) / epochs)


def left(run: Json, rows: Sequence[Row]) -> float | None:
    """Remaining seconds of a run; None if no earlier run gives an estimate."""
    total = 0.0
    for row in rows:
        if row.state in ("done", "reused"):
            continue
        seconds_left = run["progress"]["seconds_left"] if row.state == "running" and run["progress"] else None
        if seconds_left is not None:
            total += seconds_left
        elif row.usual is None:
            return None
        else:
            total += max(0.0, row.usual.seconds - (row.seconds or 0.0)) if row.state == "running" else row.usual.seconds
    return total


def sentence(run: Json, rows: Sequence[Row], gates: Sequence[Json], took: float | None) -> str:
    """Summary of a run's state and reason."""
    state, reason = run["state"], run["reason"].rstrip(".")
    if run["asked"] and state not in ENDED:
        return f"Pending request: {run['asked']}."
    if state == "registered":
        after = f" after {span(took)}" if took is not None else ""
        passed = sum(gate["verdict"] == "pass" for gate in gates)
        detail = f"{passed} of {len(gates)} gates passed" if gates and passed < len(gates) else reason or "all gates passed"
        return f"Registered as version {run['version']}{after}: {detail}."
    if state == "rejected":
        return f"Rejected{_refused(gates)}: {reason}."
    if state == "failed":
        more = " It is a dead letter: retry it, or start a new run." if run["dead_letter"] else ""
        detail = next((reason.removeprefix(f"{row.name}: ") for row in rows if row.state == "failed"), reason)
        return f"Failed{_where(rows)}: {detail or 'no reason was given'}.{more}"
    if state == "cancelled":
        return f"Cancelled{_where(rows)}: {reason or 'no reason was given'}."
    time = _time(left(run, rows), rows)
    if state == "pending":
        place = f" at position {run['position']} in the queue" if run["position"] else ""
        return f"Pending{place}: {reason or 'waits in the queue'}. {time}"
    if run["retry_at"]:
        return f"{state.capitalize()} pauses before attempt {run['attempt']}: {reason}. {time}"
    return f"{state.capitalize()} is running{_epoch(run['progress'])}{_attempt(run)}. {time}"


def _refused(gates: Sequence[Json]) -> str:
    judged_gates = [gate for gate in gates if gate["verdict"] not in ("open", "not asked")]
    refused = [gate for gate in judged_gates if gate["verdict"] != "pass" and not gate["accepted"]]
    if not refused:
        return ""
    verdicts = {gate["verdict"] for gate in refused}
    word = {"fail": "failed", "error": "had an error"}.get(next(iter(verdicts)), "inconclusive") if len(verdicts) == 1 else "did not pass"
    return f" after {refused[0]['stage']}: {len(refused)} of {len(judged_gates)} checked gates {word}"


def _where(rows: Sequence[Row]) -> str:
    stage = next((row.name for row in rows if row.state in ("failed", "cancelled")), None)
    return f" in {stage}" if stage else ""


def _epoch(progress: Json | None) -> str:
    return f", epoch {progress['epoch']} of {progress['epochs']}" if progress else ""


def _attempt(run: Json) -> str:
    return f" (attempt {run['attempt']}: {run['reason']})" if run["attempt"] > 1 and run["reason"] else ""


def _time(seconds: float | None, rows: Sequence[Row]) -> str:
    if seconds is None:
        return "The remaining time is not known: there is no earlier run."
    run_count = max((row.usual.runs for row in rows if row.usual), default=0)
    by = f", based on {run_count} earlier run{'' if run_count == 1 else 's'}" if run_count else ", by its own estimate"
    return f"About {span(round(seconds)) if seconds >= 1 else 'a second'} of work left{by}."


def contenders(metrics: dict[str, float]) -> tuple[list[str], list[tuple[str, list[float | None]]], list[tuple[str, list[float | None]]]]:
    """Contenders with metrics, then rows of overall metrics, then rows of slices; without standard errors and other details."""
    names = [name for name in _CONTENDERS if any(key.startswith(f"{name}.") for key in metrics)]
    keys = dict.fromkeys(key.split(".", 1)[1] for key in metrics if key.startswith(_THEIRS) and not is_detail(key))
    rows = [(key, [metrics.get(f"{name}.{key}") for name in names]) for key in keys]
    return names, [row for row in rows if "{" not in row[0]], [row for row in rows if "{" in row[0]]


def others(metrics: dict[str, float]) -> list[tuple[str, float]]:
    """Metrics of no contender: rows, seconds, sizes."""
    return [(key, value) for key, value in metrics.items() if not key.startswith(_THEIRS)]


def possible(run: Json) -> list[str]:
    """Stages from which the run can be retried."""
    if run["state"] not in ENDED or run["state"] == "registered":
        return []
    return list(_planned(run)[: len(run["stages"]) + 1])


def _planned(run: Json) -> Sequence[str]:
    planned: Sequence[str] = run.get("planned_stages", STAGES)
    return planned


def retried_from(run: Json) -> str:
    """First stage of a retry if the request names none."""
    at = len(run["stages"]) - (run["state"] == "rejected")
    planned = _planned(run)
    stage: str = planned[max(0, min(at, len(planned) - 1))]
    return stage


def place(run: Json) -> str:
    return plain(run["state"]) + (f" at position {run['position']}" if run["position"] else "")
