"""Rollouts: looked at and steered."""

from __future__ import annotations

from typing import Literal

from services.api.access import Room, Who
from services.api.asking import Because, ask
from services.api.parts import With
from services.api.runs import Before, Limit
from services.api.views import EventView, Page, RolloutView
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
from shared.domain.access import Role
from shared.domain.rollout import ANSWERS, RolloutStatus
from shared.ports import Record

room = Room("rollouts")


@room.get("/v1/recommenders/{name}/rollouts", Role.VIEWER)
def list_rollouts(parts: With, name: str, limit: Limit = 50, before: Before = None) -> Page[RolloutView]:
    """The newest first."""
    parts.recommenders.get(name)
    found = parts.rollouts.list(name, limit=limit + 1, before=before)
    return Page(items=[_view(one) for one in found[:limit]], next=found[limit - 1].id if len(found) > limit else None)


@room.get("/v1/rollouts/{id}", Role.VIEWER)
def get_rollout(parts: With, who: Who, id: str) -> RolloutView:
    return _view(who.row("rollout", parts.rollouts, id))


@room.get("/v1/rollouts/{id}/events", Role.VIEWER)
def rollout_events(parts: With, who: Who, id: str) -> Page[EventView]:
    """Every change of state and of weight: when, why, by whom."""
    who.row("rollout", parts.rollouts, id)
    return EventView.page(parts.rollouts.history(id))


@room.post("/v1/rollouts/{id}:{verb}", Role.OPERATOR, status_code=202)
def steer(parts: With, who: Who, id: str, verb: Literal["pause", "resume", "promote", "abort"], why: Because = None) -> RolloutView:
    return _view(ask(parts, who, parts.rollouts, ANSWERS, "rollout", id, verb, why))


def _view(record: Record[RolloutStatus]) -> RolloutView:
    spec = read(RecommenderSpec, record.spec["document"], f"spec of {record.id}")
    return RolloutView.of(record, spec.rollout.steps)
