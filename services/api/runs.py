"""Runs: started, listed, cancelled, retried; their logs and reports."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from fastapi import Depends, Query, Response
from fastapi import Request as HttpRequest
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from services.api.access import Caller, RoleRouter, Who
from services.api.dependencies import ControlParts, With
from services.api.etags import NOT_MODIFIED, Expected, tagged
from services.api.paging import Page, Pages, Paging
from services.api.rate_limits import RUN
from services.api.state_requests import Because, ask
from services.api.views import EventView, RunView
from shared.contracts import trials
from shared.contracts.plans import auto_rule
from shared.contracts.progress import Progress
from shared.contracts.stage import StageName
from shared.contracts.strict import read
from shared.contracts.trials import RunReport
from shared.contracts.validation_report import REPORT, Report
from shared.domain.access import Role
from shared.domain.errors import Conflict, Damaged, EyasError, Invalid, Malformed, NotFound
from shared.domain.ids import attempt_name, new_id
from shared.domain.machine import Request
from shared.domain.queue import HIGHEST, LOWEST, AdmissionDecision
from shared.domain.run import ANSWERS, STAGES, works
from shared.domain.warm_or_full import KNOWS_FORGOTTEN, Mode, RequestedMode, choose
from shared.ports import HistoryEntry, Recommender, RunRecord, Version
from shared.run_factory import RunTerms, collected_basis, new_run, retry_run, rollout_id, stages_of

room = RoleRouter("runs")

_PIECES = 100

Priority = Annotated[int, Field(ge=LOWEST, le=HIGHEST, description="Priority in the queue: higher values go first; 0 by default.")]
State = Literal["pending", "etl", "train", "evaluate", "refit", "export", "verify", "registered", "rejected", "failed", "cancelled"]
States = Annotated[list[State] | None, Query(alias="state", description="Only runs in these states.")]
Dead = Annotated[bool | None, Query(description="Only dead letters (true), or only other runs (false).")]
Since = Annotated[AwareDatetime | None, Query(description="Only runs created at this time or later.")]
Until = Annotated[AwareDatetime | None, Query(description="Only runs created before this time.")]


@dataclass(frozen=True)
class Filters:
    states: frozenset[str] | None
    dead_letter: bool | None
    since: datetime | None
    until: datetime | None


def _filters(states: States = None, dead_letter: Dead = None, since: Since = None, until: Until = None) -> Filters:
    return Filters(None if states is None else frozenset(states), dead_letter, since, until)


Filtered = Annotated[Filters, Depends(_filters)]


class Start(BaseModel):
    model_config = ConfigDict(extra="forbid")

    mode: RequestedMode = Field(
        "full", description="Mode: `warm` starts from the serving version's weights; `auto` chooses by the spec's `retrain.auto`."
    )
    reason: str = Field("", max_length=500)
    priority: Priority = 0
    fresh: bool = Field(False, description="Run every stage, without stage reuse.")


class Retry(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    stage: StageName | None = Field(
        None, alias="from", description="First stage that runs again; when absent, the stage in which the run ended."
    )
    accept: bool = Field(
        False, description="Accept inconclusive gates. This is the caller's decision: it needs a reason, and both are stored."
    )
    reason: str = Field("", max_length=500)


class Prioritise(BaseModel):
    model_config = ConfigDict(extra="forbid")

    priority: Priority
    reason: str = Field("", max_length=500, description="Reason for the history.")


class RunLog(BaseModel):
    text: str
    start: int = Field(description="Offset at which the text begins.")
    next: int = Field(description="Offset from which to continue.")
    stage: str | None = Field(description="Stage of the log; null before the first stage.")
    attempt: str | None = Field(description="Attempt of the log; null before the stage has started.")


def make_run(
    parts: ControlParts, recommender: Recommender, requested_mode: RequestedMode, cause: str, terms: RunTerms, id: str | None = None
) -> RunRecord:
    route = parts.routes.get(recommender.name)
    mode, cause = _decided(parts, recommender, requested_mode, cause)
    if mode == "warm" and route is None:
        raise Conflict(f"recommender '{recommender.name}' serves no version yet, and a warm run starts from one: start a full run")
    if mode == "warm" and parts.past(recommender).knows_forgotten:
        raise Conflict(f"{KNOWS_FORGOTTEN}: a warm run would know them too; start a full run")
    now = parts.clock.now()
    return new_run(recommender, id or new_id("r", now, secrets.randbits(30)), mode, cause, route.stable if route else None, now, terms)


def _decided(parts: ControlParts, recommender: Recommender, requested_mode: RequestedMode, cause: str) -> tuple[Mode, str]:
    """Returns what `auto` means now, and the cause with that reason."""
    if requested_mode != "auto":
        return requested_mode, cause
    choice = choose(parts.past(recommender), auto_rule(recommender.spec.retrain))
    return choice.mode, f"{cause}; {choice.summary}"


def start_run(
    parts: ControlParts, who: Caller, recommender: Recommender, mode: RequestedMode, cause: str, priority: int = 0, fresh: bool = False
) -> RunRecord:
    run = make_run(parts, recommender, mode, cause, RunTerms(who.name, priority, fresh), who.fresh_id("r", parts.clock.now()))
    created = parts.runs.create(run, who.name)
    parts.wake()
    return created


@room.create("/v1/recommenders/{name}/runs", Role.OPERATOR, status_code=202, work=RUN)
def create_run(parts: With, who: Who, name: str, start: Start | None = None) -> RunView:
    """Starts a run of the current spec."""
    wanted = start or Start()
    who.says(wanted.reason)
    cause = wanted.reason or f"asked by {who.name}"
    started = start_run(parts, who, parts.recommenders.get(name), wanted.mode, cause, wanted.priority, wanted.fresh)
    return run_view(parts, started)


@room.get("/v1/recommenders/{name}/runs", Role.VIEWER)
def list_runs_of_recommender(parts: With, name: str, pages: Pages, filters: Filtered) -> Page[RunView]:
    """Lists runs of a recommender, the newest first."""
    parts.recommenders.get(name)
    return _page(parts, pages, filters, name, None)


@room.get("/v1/runs", Role.VIEWER)
def list_runs(
    parts: With,
    who: Who,
    pages: Pages,
    filters: Filtered,
    recommender: Annotated[str | None, Query(max_length=200, description="Only runs of this recommender.")] = None,
) -> Page[RunView]:
    """Lists runs of every recommender that the token sees, the newest first."""
    if recommender is not None:
        who.enters(recommender)
    return _page(parts, pages, filters, recommender, who.principal.recommenders)


def _page(parts: ControlParts, pages: Paging, filters: Filters, name: str | None, among: frozenset[str] | None) -> Page[RunView]:
    def ask(after: str | None) -> Sequence[RunRecord]:
        return parts.runs.list(
            name,
            states=filters.states,
            among=among,
            dead_letter=filters.dead_letter,
            since=filters.since,
            until=filters.until,
            limit=pages.more,
            before=after,
        )

    try:
        runs = ask(pages.text)
    except NotFound:  # the place of an invented cursor
        raise Malformed("cursor: not a cursor of this list; start again without it") from None
    turns = parts.turns() if any(run.status.state == "pending" for run in runs) else {}
    return pages.page(runs, lambda run: run.id, lambda run: run_view(parts, run, turns))


@room.get("/v1/runs/{id}", Role.VIEWER, response_model=RunView, responses=NOT_MODIFIED)
def get_run(parts: With, who: Who, id: str, request: HttpRequest, response: Response) -> RunView | Response:
    """Returns a run: its state, stages, gates, metrics and result."""
    record = who.row("run", parts.runs, id)
    return tagged(request, response, record.revision, run_view(parts, record))


@room.create("/v1/runs/{id}:cancel", Role.OPERATOR, status_code=202)
def cancel_run(parts: With, who: Who, id: str, expected: Expected, why: Because = None) -> RunView:
    """Cancels a run."""
    return run_view(parts, ask(parts, who, parts.runs, ANSWERS, "run", id, "cancel", why, expected))


@room.create("/v1/runs/{id}:prioritise", Role.OPERATOR)
def prioritise_run(parts: With, who: Who, id: str, wanted: Prioritise) -> RunView:
    """Changes the priority of a run in the queue."""
    record = who.row("run", parts.runs, id)
    if record.status.state != "pending" or record.intent is not None:
        raise Conflict(f"run {id} is {record.status.state} and no longer in the queue: its priority cannot change")
    who.says(wanted.reason)
    reason = Request("prioritise", who.name, wanted.reason).summary()
    entry = HistoryEntry(parts.clock.now(), "pending", "pending", f"priority {record.priority} -> {wanted.priority}, {reason}", who.name)
    changed = parts.runs.prioritise(record, wanted.priority, entry)
    parts.wake()
    return run_view(parts, changed, parts.turns())


@room.create("/v1/runs/{id}:retry", operation_id="retry_run", need=Role.OPERATOR, status_code=202, work=RUN)
def retry(parts: With, who: Who, id: str, wanted: Retry | None = None) -> RunView:
    """Starts a new run of the same spec that takes over what this run published before the stage."""
    record = who.row("run", parts.runs, id)
    options = wanted or Retry()
    who.says(options.reason)
    if options.accept and not options.reason.strip():
        raise Invalid("reason: required with accept; write why inconclusive gates are accepted")
    now = parts.clock.now()
    cause = options.reason or f"retry of {id}, asked by {who.name}"
    run = retry_run(record, options.stage, who.fresh_id("r", now), cause, now, by=who.name, accept=options.accept)
    gone = collected_basis(run, parts.registry.collected(run.recommender))
    if gone:
        raise Conflict(f"run {id} cannot be retried: {gone}")
    created = parts.runs.create(run, who.name)
    parts.wake()
    return run_view(parts, created)


@room.get("/v1/runs/{id}/events", Role.VIEWER)
def list_run_events(parts: With, who: Who, id: str, pages: Pages) -> Page[EventView]:
    """Lists every change of state: when, why, by whom."""
    who.row("run", parts.runs, id)
    return pages.page(parts.runs.history(id, pages.more, pages.number), lambda entry: entry.seq, EventView.of)


@room.get("/v1/runs/{id}/logs", Role.VIEWER)
def get_run_log(
    parts: With,
    who: Who,
    id: str,
    stage: Annotated[StageName | None, Query(description="Stage; when absent, the active or last one.")] = None,
    offset: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    last: Annotated[
        int | None,
        Query(ge=1, le=1 << 20, description="Only the last bytes from `offset` on: at most this number, from the start of a line."),
    ] = None,
) -> RunLog:
    """Returns the log of a stage's newest attempt, from a byte offset."""
    record = who.row("run", parts.runs, id)
    chosen = stage or newest_stage(record)
    attempt = attempt_of(record, chosen) if chosen else None
    if attempt is None:
        return RunLog(text="", start=offset, next=offset, stage=chosen, attempt=None)
    if last is not None:
        return _end_of_log(parts, attempt, chosen, offset, last)
    text, following = parts.executor.log(attempt, offset)
    return RunLog(text=text, start=offset, next=following, stage=chosen, attempt=attempt)


def _end_of_log(parts: ControlParts, attempt: str, stage: str | None, offset: int, last: int) -> RunLog:
    """Reads the log through, because only a reader knows its end; the number of pieces is bounded."""
    tail, following = b"", offset
    for _ in range(_PIECES):
        text, after = parts.executor.log(attempt, following)
        if after <= following:
            break
        tail, following = (tail + text.encode())[-last:], after
    if following - offset > len(tail):
        tail = tail[tail.find(b"\n") + 1 :]
    return RunLog(text=tail.decode(errors="replace"), start=following - len(tail), next=following, stage=stage, attempt=attempt)


@room.get("/v1/runs/{id}/validation", Role.VIEWER)
def get_run_validation(parts: With, who: Who, id: str) -> Report:
    """Returns the results of the data checks of interactions, events and tables, also for a run that they stopped."""
    attempt = attempt_of(who.row("run", parts.runs, id), "etl")
    manifest = parts.artifacts.manifest(attempt) if attempt else None
    if manifest is None or REPORT not in manifest.files:
        raise NotFound(f"run {id} has no validation report: it exists when etl has checked the data")
    return read(Report, json.loads(parts.artifacts.read(manifest.files[REPORT])), f"{REPORT} of {attempt}")


@room.get("/v1/runs/{id}/evaluation", Role.VIEWER)
def get_run_evaluation(parts: With, who: Who, id: str) -> RunReport:
    """Returns the figures of the candidate, the serving version and popularity on the holdout, and a page with them."""
    attempt = attempt_of(who.row("run", parts.runs, id), "evaluate")
    manifest = parts.artifacts.manifest(attempt) if attempt else None
    if manifest is None or attempt is None or not {trials.REPORT, trials.PAGE} <= set(manifest.files):
        raise NotFound(f"run {id} has no evaluation report: it exists when evaluate has succeeded")
    report, page = (parts.artifacts.read(manifest.files[name]) for name in (trials.REPORT, trials.PAGE))
    return RunReport(attempt=attempt, report=json.loads(report), page=page.decode())


def newest_stage(record: RunRecord) -> str | None:
    """Returns the current stage; for an ended run, the stage in which it ended."""
    status = record.status
    if status.state in STAGES:
        return status.state
    if status.state in ("failed", "cancelled") and status.attempt:
        return stages_of(record)[len(status.stages)]
    return status.stages[-1].stage if status.stages else None


def attempt_of(record: RunRecord, stage: str) -> str | None:
    status = record.status
    done = next((completed.attempt for completed in status.stages if completed.stage == stage), None)
    if done is not None:
        return done
    attempt = status.attempt - (status.retry_at is not None)  # the earlier attempt, during the pause before the next
    return attempt_name(record.id, stage, attempt) if attempt and stage == newest_stage(record) else None


def run_view(parts: ControlParts, record: RunRecord, turns: Mapping[str, AdmissionDecision] | None = None) -> RunView:
    if turns is None:
        turns = parts.turns() if record.status.state == "pending" else {}
    version = _registered(parts, record)
    if version is not None:
        return RunView.of(record, version.metrics, version.number, _rollout(parts, record.id))
    manifests = [parts.artifacts.manifest(done.attempt) for done in record.status.stages]
    numbers = {name: value for manifest in manifests if manifest is not None for name, value in manifest.metrics.items()}
    return RunView.of(record, numbers, None, None, turns.get(record.id), _progress(parts, record))


def _progress(parts: ControlParts, record: RunRecord) -> Progress | None:
    working = works(record.id, record.status)
    try:
        return next((parts.artifacts.progress(attempt) for attempt in working), None)
    except (EyasError, OSError, ValueError):  # a run is shown without progress
        return None


def _registered(parts: ControlParts, record: RunRecord) -> Version | None:
    try:
        return parts.registry.of_run(record.id) if record.status.state in ("verify", "registered") else None
    except Damaged:  # reported by the version's own page; the run is shown without it
        return None


def _rollout(parts: ControlParts, run: str) -> str | None:
    try:
        return parts.rollouts.get(rollout_id(run)).id
    except NotFound:
        return None
