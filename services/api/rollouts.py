"""Rollouts: looked at and steered."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query, Request, Response

from services.api.access import Room, Who
from services.api.asking import Because, ask
from services.api.etags import NOT_MODIFIED, Expected, tagged
from services.api.paging import Page, Pages
from services.api.parts import With
from services.api.rollout_views import LooksView, RolloutView
from services.api.views import EventView
from shared.contracts.plans import rollout_plan
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
from shared.domain.access import Role
from shared.domain.errors import Conflict, Malformed, NotFound
from shared.domain.rollout import ANSWERS, RolloutStatus, refusal
from shared.domain.steps import RolloutPlan
from shared.ports import Record

room = Room("rollouts")

State = Literal["pending", "loading", "shadow", "canary", "paused", "promoted", "rolled_back", "aborted"]
Verb = Literal["pause", "resume", "skip", "promote", "abort"]


@room.get("/v1/recommenders/{name}/rollouts", Role.VIEWER)
def list_rollouts(
    parts: With, name: str, pages: Pages, state: Annotated[list[State] | None, Query(description="Of these states alone.")] = None
) -> Page[RolloutView]:
    """The newest first."""
    parts.recommenders.get(name)
    try:
        found = parts.rollouts.list(name, states=state, limit=pages.more, before=pages.text)
    except NotFound:  # the place of a cursor that somebody has made up
        raise Malformed("cursor: this is none of this list: begin anew without a cursor") from None
    return pages.page(found, lambda one: one.id, _view)


@room.get("/v1/rollouts/{id}", Role.VIEWER, response_model=RolloutView, responses=NOT_MODIFIED)
def get_rollout(parts: With, who: Who, id: str, request: Request, response: Response) -> RolloutView | Response:
    """Where it stands, and what was measured."""
    record = who.row("rollout", parts.rollouts, id)
    return tagged(request, response, record.revision, _view(record))


@room.get("/v1/rollouts/{id}/events", Role.VIEWER)
def list_rollout_events(parts: With, who: Who, id: str, pages: Pages) -> Page[EventView]:
    """Every change of state and of weight: when, why, by whom."""
    who.row("rollout", parts.rollouts, id)
    return pages.page(parts.rollouts.history(id, pages.more, pages.number), lambda one: one.seq, EventView.of)


@room.get("/v1/rollouts/{id}/looks", Role.VIEWER)
def list_rollout_looks(parts: With, who: Who, id: str) -> LooksView:
    """How the evidence of its canary grew, look by look, with the bounds that decide."""
    record = who.row("rollout", parts.rollouts, id)
    return LooksView.of(record.status, _plan(record))


@room.create("/v1/rollouts/{id}:{verb}", Role.OPERATOR, status_code=202)
def steer_rollout(parts: With, who: Who, id: str, verb: Verb, expected: Expected, why: Because = None) -> RolloutView:
    """Pause, resume, skip to the next step without a verdict, promote or abort it."""
    record = who.row("rollout", parts.rollouts, id)
    refused = refusal(verb, int(record.spec["version"]), record.status, _plan(record))
    again = who.once is not None and who.once.again
    if refused is not None and not again and verb in ANSWERS.get(record.status.state, ()):
        raise Conflict(f"rollout {id}: {refused}")
    return _view(ask(parts, who, parts.rollouts, ANSWERS, "rollout", id, verb, why, expected))


def _view(record: Record[RolloutStatus]) -> RolloutView:
    return RolloutView.of(record, _plan(record))


def _plan(record: Record[RolloutStatus]) -> RolloutPlan:
    return rollout_plan(read(RecommenderSpec, record.spec["document"], f"spec of {record.id}"))
