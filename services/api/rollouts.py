"""Rollouts: listed, started on request, and steered."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal

from fastapi import Query, Response
from fastapi import Request as HttpRequest
from pydantic import Field

from services.api.access import Caller, RoleRouter, Who
from services.api.dependencies import ControlParts, With
from services.api.etags import NOT_MODIFIED, Expected, tagged
from services.api.paging import Page, Pages
from services.api.rollout_views import LooksView, RolloutView
from services.api.state_requests import Because, Why, ask
from services.api.views import EventView
from shared.contracts.plans import rollout_plan
from shared.domain.access import Role
from shared.domain.errors import Conflict, Malformed, NotFound
from shared.domain.machine import Request
from shared.domain.rollout import ANSWERS, refusal, unproven
from shared.domain.rollout_plan import RolloutPlan
from shared.ports import RolloutRecord
from shared.run_factory import asked_rollout, proven, spec_of

room = RoleRouter("rollouts")

State = Literal["pending", "loading", "shadow", "canary", "paused", "promoted", "rolled_back", "aborted"]
Verb = Literal["pause", "resume", "skip", "promote", "abort"]


class StartRollout(Why):
    version: int = Field(ge=1, le=2**31 - 1, description="Number of a registered version whose files still exist.")


@room.create("/v1/recommenders/{name}/rollouts", Role.OPERATOR, status_code=201)
def start_rollout(parts: With, who: Who, name: str, body: StartRollout) -> RolloutView:
    """Starts a rollout of a registered version, by the current `rollout` of the spec, as after a run.

    It waits until earlier rollouts have ended. If nothing serves yet, all users get the version as soon as it answers.
    """
    who.says(body.reason)
    recommender = parts.recommenders.get(name)
    now = parts.clock.now()
    id = who.fresh_id("o", now)
    begun = _begun_before(parts, who, id)
    if begun is None:
        _check_start(parts, name, body.version)
        begun = parts.rollouts.create(asked_rollout(recommender, body.version, id, Request("start", who.name, body.reason), now), who.name)
        parts.wake()
    return _view(begun)


def _begun_before(parts: ControlParts, who: Caller, id: str) -> RolloutRecord | None:
    """Returns the rollout that a killed process has started for this request."""
    if who.once is None or not who.once.again:
        return None
    with suppress(NotFound):
        return parts.rollouts.get(id)
    return None


def _check_start(parts: ControlParts, name: str, number: int) -> None:
    try:
        version = parts.registry.get(name, number)
    except NotFound as error:
        raise NotFound(f"{error}: only registered versions can be rolled out") from None
    gone = parts.registry.collected(name)
    if number in gone:
        raise Conflict(
            f"version {number} of '{name}' was collected on {gone[number]:%Y-%m-%d}: its files are deleted; choose another, or start a run"
        )
    route = parts.routes.get(name)
    if route is not None and route.stable == number:
        raise Conflict(f"version {number} of '{name}' is already the stable version; choose another version")
    active = parts.rollouts.list(name, active=True)
    for rollout in active:
        if rollout.spec.version == number:
            able = ", ".join(sorted(ANSWERS[rollout.status.state]))
            message = f"rollout {rollout.id} of version {number} is already {rollout.status.state}"
            raise Conflict(f"{message}: wait until it has ended, or use one of: {able}")
    if route is None and not active and not proven(version):
        raise Conflict(f"recommender '{name}' serves nothing yet, and {unproven(number)}")


@room.get("/v1/recommenders/{name}/rollouts", Role.VIEWER)
def list_rollouts(
    parts: With, name: str, pages: Pages, state: Annotated[list[State] | None, Query(description="Only rollouts in these states.")] = None
) -> Page[RolloutView]:
    """Lists rollouts of a recommender, the newest first."""
    parts.recommenders.get(name)
    try:
        rollouts = parts.rollouts.list(name, states=state, limit=pages.more, before=pages.text)
    except NotFound:  # the place of an invented cursor
        raise Malformed("cursor: not a cursor of this list; start again without it") from None
    return pages.page(rollouts, lambda rollout: rollout.id, _view)


@room.get("/v1/rollouts/{id}", Role.VIEWER, response_model=RolloutView, responses=NOT_MODIFIED)
def get_rollout(parts: With, who: Who, id: str, request: HttpRequest, response: Response) -> RolloutView | Response:
    """Returns the state of a rollout and its figures."""
    record = who.row("rollout", parts.rollouts, id)
    return tagged(request, response, record.revision, _view(record))


@room.get("/v1/rollouts/{id}/events", Role.VIEWER)
def list_rollout_events(parts: With, who: Who, id: str, pages: Pages) -> Page[EventView]:
    """Lists every change of state and of weight: when, why, by whom."""
    who.row("rollout", parts.rollouts, id)
    return pages.page(parts.rollouts.history(id, pages.more, pages.number), lambda entry: entry.seq, EventView.of)


@room.get("/v1/rollouts/{id}/looks", Role.VIEWER)
def list_rollout_looks(parts: With, who: Who, id: str) -> LooksView:
    """Returns how the evidence of a canary grew, look by look, with the bounds that decide."""
    record = who.row("rollout", parts.rollouts, id)
    return LooksView.of(record.status, _plan(record))


@room.create("/v1/rollouts/{id}:{verb}", Role.OPERATOR, status_code=202)
def steer_rollout(parts: With, who: Who, id: str, verb: Verb, expected: Expected, why: Because = None) -> RolloutView:
    """Pauses, resumes, promotes or aborts a rollout, or skips to its next step without a verdict."""
    record = who.row("rollout", parts.rollouts, id)
    refused = refusal(verb, record.spec.version, record.status, _plan(record))
    again = who.once is not None and who.once.again
    if refused is not None and not again and verb in ANSWERS.get(record.status.state, ()):
        raise Conflict(f"rollout {id}: {refused}")
    return _view(ask(parts, who, parts.rollouts, ANSWERS, "rollout", id, verb, why, expected))


def _view(record: RolloutRecord) -> RolloutView:
    return RolloutView.of(record, _plan(record))


def _plan(record: RolloutRecord) -> RolloutPlan:
    return rollout_plan(spec_of(record))
