"""Runs: started, looked at, cancelled; their logs and their history."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated, Literal

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
from shared.domain.machine import Request
from shared.domain.queue import HIGHEST, LOWEST, Turn
from shared.domain.retrainer import Mode
from shared.domain.run import ANSWERS, STAGES, RunStatus
from shared.launch import Terms, new_run, retry_run, rollout_id
from shared.ports import HistoryEntry, Recommender, Record, Version

room = Room("runs")

Limit = Annotated[int, Query(ge=1, le=200)]
Before = Annotated[str | None, Query(max_length=120, description="The id of the last row of the previous page.")]


Priority = Annotated[int, Field(ge=LOWEST, le=HIGHEST, description="Higher goes first among the runs that wait; 0 is usual.")]
State = Annotated[
    Literal["pending", "etl", "train", "evaluate", "export", "verify", "registered", "rejected", "failed", "cancelled"] | None, Query()
]
Dead = Annotated[bool | None, Query(description="Only runs that gave up (true), or only others (false).")]


class Start(BaseModel):
    model_config = ConfigDict(extra="forbid")

    mode: Mode = Field("full", description="`warm` starts from the serving version's weights.")
    reason: str = Field("", max_length=500)
    priority: Priority = 0
    fresh: bool = Field(False, description="Run every stage, though nothing may have changed since an earlier run published it.")


class Retry(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    stage: StageName | None = Field(
        None, alias="from", description="The first stage that runs again; the one that the run ended in if absent."
    )
    reason: str = Field("", max_length=500)


class Prioritise(BaseModel):
    model_config = ConfigDict(extra="forbid")

    priority: Priority
    reason: str = Field("", max_length=500, description="Goes into the history.")


class Log(BaseModel):
    text: str
    next: int = Field(description="The offset to go on from.")
    stage: str | None = Field(description="Null before the first stage.")
    attempt: str | None = Field(description="Null while the stage hasn't started.")


def make_run(parts: Parts, recommender: Recommender, mode: Mode, cause: str, terms: Terms) -> Record[RunStatus]:
    route = parts.routes.get(recommender.name)
    if mode == "warm" and route is None:
        raise Conflict(f"recommender '{recommender.name}' serves no version yet that a warm run could start from: start a full one")
    now = parts.clock.now()
    return new_run(recommender, new_id("r", now, secrets.randbits(30)), mode, cause, route.stable if route else None, now, terms)


def start_run(
    parts: Parts, who: Caller, recommender: Recommender, mode: Mode, cause: str, priority: int = 0, fresh: bool = False
) -> Record[RunStatus]:
    run = make_run(parts, recommender, mode, cause, Terms(who.name, priority, fresh))
    created = parts.runs.create(run, who.name)
    parts.wake()
    return created


@room.post("/v1/recommenders/{name}/runs", Role.OPERATOR, status_code=202)
def create_run(parts: With, who: Who, name: str, start: Start | None = None) -> RunView:
    wanted = start or Start()
    who.says(wanted.reason)
    cause = wanted.reason or f"asked by {who.name}"
    started = start_run(parts, who, parts.recommenders.get(name), wanted.mode, cause, wanted.priority, wanted.fresh)
    return run_view(parts, started)


@room.get("/v1/recommenders/{name}/runs", Role.VIEWER)
def list_runs(
    parts: With, name: str, limit: Limit = 50, before: Before = None, state: State = None, dead_letter: Dead = None
) -> Page[RunView]:
    """The newest first."""
    parts.recommenders.get(name)
    found: list[Record[RunStatus]] = []
    wanted = "failed" if dead_letter and state is None else state
    states = None if wanted is None else {wanted}
    while len(found) <= limit:  # one page of rows unless dead letters are told from others
        rows = parts.runs.list(name, states=states, limit=limit + 1, before=before)
        found += [one for one in rows if dead_letter is None or one.status.dead_letter == dead_letter]
        if len(rows) <= limit:
            break
        before = rows[-1].id
    turns = parts.turns() if any(one.status.state == "pending" for one in found) else {}
    items = [run_view(parts, one, turns) for one in found[:limit]]
    return Page(items=items, next=found[limit - 1].id if len(found) > limit else None)


@room.get("/v1/runs/{id}", Role.VIEWER)
def get_run(parts: With, who: Who, id: str) -> RunView:
    return run_view(parts, who.row("run", parts.runs, id))


@room.post("/v1/runs/{id}:cancel", Role.OPERATOR, status_code=202)
def cancel(parts: With, who: Who, id: str, why: Because = None) -> RunView:
    return run_view(parts, ask(parts, who, parts.runs, ANSWERS, "run", id, "cancel", why))


@room.post("/v1/runs/{id}:prioritise", Role.OPERATOR)
def prioritise(parts: With, who: Who, id: str, wanted: Prioritise) -> RunView:
    """Another place in the queue, for a run that hasn't begun."""
    record = who.row("run", parts.runs, id)
    if record.status.state != "pending" or record.intent is not None:
        raise Conflict(f"run {id} is {record.status.state} and no longer in the queue: its priority changes nothing now")
    who.says(wanted.reason)
    said = Request("prioritise", who.name, wanted.reason).said()
    entry = HistoryEntry(parts.clock.now(), "pending", "pending", f"priority {record.priority} -> {wanted.priority}, {said}", who.name)
    changed = parts.runs.prioritise(record, wanted.priority, entry)
    parts.wake()
    return run_view(parts, changed, parts.turns())


@room.post("/v1/runs/{id}:retry", Role.OPERATOR, status_code=202)
def retry(parts: With, who: Who, id: str, wanted: Retry | None = None) -> RunView:
    """A new run of the same spec that takes over what this one had published before the stage."""
    record = who.row("run", parts.runs, id)
    asked = wanted or Retry()
    who.says(asked.reason)
    now = parts.clock.now()
    cause = asked.reason or f"retry of {id}, asked by {who.name}"
    run = retry_run(record, asked.stage, new_id("r", now, secrets.randbits(30)), cause, now, by=who.name)
    created = parts.runs.create(run, who.name)
    parts.wake()
    return run_view(parts, created)


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
    attempt = status.attempt - (status.retry_at is not None)  # the one before, while the next one pauses
    return attempt_name(run, stage, attempt) if attempt and stage == _newest_stage(status) else None


def run_view(parts: Parts, record: Record[RunStatus], turns: Mapping[str, Turn] | None = None) -> RunView:
    if turns is None:
        turns = parts.turns() if record.status.state == "pending" else {}
    version = _registered(parts, record)
    if version is not None:
        return RunView.of(record, version.metrics, version.number, _rollout(parts, record.id))
    manifests = [parts.artifacts.manifest(done.attempt) for done in record.status.stages]
    numbers = {name: value for one in manifests if one is not None for name, value in one.metrics.items()}
    return RunView.of(record, numbers, None, None, turns.get(record.id))


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
