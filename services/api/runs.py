"""Runs: started, looked at, cancelled; their logs and their history."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from services.api.access import Caller, Room, Who
from services.api.asking import Because, ask
from services.api.parts import Parts, With
from services.api.views import EventView, Page, RunView
from shared.contracts.stage import StageName
from shared.domain.access import Role
from shared.domain.errors import Conflict, Damaged, NotFound
from shared.domain.ids import attempt_name, new_id
from shared.domain.retrainer import Mode
from shared.domain.run import ANSWERS, STAGES, RunStatus
from shared.launch import new_run, rollout_id
from shared.ports import Recommender, Record, Version

room = Room("runs")

Limit = Annotated[int, Query(ge=1, le=200)]
Before = Annotated[str | None, Query(max_length=120, description="The id of the last row of the previous page.")]


class Start(BaseModel):
    model_config = ConfigDict(extra="forbid")

    mode: Mode = Field("full", description="`warm` starts from the serving version's weights.")
    reason: str = Field("", max_length=500)


class Log(BaseModel):
    text: str
    next: int = Field(description="The offset to go on from.")
    stage: str | None = Field(description="Null before the first stage.")
    attempt: str | None = Field(description="Null while the stage hasn't started.")


def start_run(parts: Parts, who: Caller, recommender: Recommender, mode: Mode, cause: str) -> Record[RunStatus]:
    route = parts.routes.get(recommender.name)
    if mode == "warm" and route is None:
        raise Conflict(f"recommender '{recommender.name}' serves no version yet that a warm run could start from: start a full one")
    now = parts.clock.now()
    run = new_run(recommender, new_id("r", now, secrets.randbits(30)), mode, cause, route.stable if route else None, now)
    created = parts.runs.create(run, who.name)
    parts.wake()
    return created


@room.post("/v1/recommenders/{name}/runs", Role.OPERATOR, status_code=202)
def create_run(parts: With, who: Who, name: str, start: Start | None = None) -> RunView:
    wanted = start or Start()
    who.says(wanted.reason)
    started = start_run(parts, who, parts.recommenders.get(name), wanted.mode, wanted.reason or f"asked by {who.name}")
    return _view(parts, started)


@room.get("/v1/recommenders/{name}/runs", Role.VIEWER)
def list_runs(parts: With, name: str, limit: Limit = 50, before: Before = None) -> Page[RunView]:
    """The newest first."""
    parts.recommenders.get(name)
    found = parts.runs.list(name, limit=limit + 1, before=before)
    return Page(items=[_view(parts, one) for one in found[:limit]], next=found[limit - 1].id if len(found) > limit else None)


@room.get("/v1/runs/{id}", Role.VIEWER)
def get_run(parts: With, who: Who, id: str) -> RunView:
    return _view(parts, who.row("run", parts.runs, id))


@room.post("/v1/runs/{id}:cancel", Role.OPERATOR, status_code=202)
def cancel(parts: With, who: Who, id: str, why: Because = None) -> RunView:
    return _view(parts, ask(parts, who, parts.runs, ANSWERS, "run", id, "cancel", why))


@room.get("/v1/runs/{id}/events", Role.VIEWER)
def run_events(parts: With, who: Who, id: str) -> Page[EventView]:
    """Every change of state: when, why, by whom."""
    who.row("run", parts.runs, id)
    return EventView.page(parts.runs.history(id))


@room.get("/v1/runs/{id}/logs", Role.VIEWER)
def run_logs(
    parts: With,
    who: Who,
    id: str,
    stage: Annotated[StageName | None, Query(description="The one under way, or the last one, when absent.")] = None,
    offset: Annotated[int, Query(ge=0, lt=2**63)] = 0,
) -> Log:
    """What a stage has written from a byte offset on, of its newest attempt."""
    status = who.row("run", parts.runs, id).status
    chosen = stage or _newest_stage(status)
    attempt = _attempt(id, status, chosen) if chosen else None
    if attempt is None:
        return Log(text="", next=offset, stage=chosen, attempt=None)
    text, following = parts.executor.log(attempt, offset)
    return Log(text=text, next=following, stage=chosen, attempt=attempt)


def _newest_stage(status: RunStatus) -> str | None:
    """The stage under way; of a run that has ended, the one that it ended in."""
    if status.state in STAGES:
        return status.state
    if status.state in ("failed", "cancelled") and status.attempt:
        return STAGES[len(status.stages)]
    return status.stages[-1].stage if status.stages else None


def _attempt(run: str, status: RunStatus, stage: str) -> str | None:
    done = next((one.attempt for one in status.stages if one.stage == stage), None)
    if done is not None:
        return done
    return attempt_name(run, stage, status.attempt) if stage == _newest_stage(status) else None


def _view(parts: Parts, record: Record[RunStatus]) -> RunView:
    version = _registered(parts, record)
    if version is not None:
        return RunView.of(record, version.metrics, version.number, _rollout(parts, record.id))
    manifests = [parts.artifacts.manifest(done.attempt) for done in record.status.stages]
    numbers = {name: value for one in manifests if one is not None for name, value in one.metrics.items()}
    return RunView.of(record, numbers, None, None)


def _registered(parts: Parts, record: Record[RunStatus]) -> Version | None:
    try:
        return parts.registry.of_run(record.id) if record.status.state in ("verify", "registered") else None
    except Damaged:  # the version's own page says so; the run is shown without it
        return None


def _rollout(parts: Parts, run: str) -> str | None:
    try:
        return parts.rollouts.get(rollout_id(run)).id
    except NotFound:
        return None
