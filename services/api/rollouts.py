"""Rollouts: looked at and steered."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter

from services.api.asking import Because, ask
from services.api.parts import With
from services.api.runs import Before, Limit
from services.api.views import EventView, Page, RolloutView
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
from shared.domain.rollout import ANSWERS, RolloutStatus
from shared.ports import Record

router = APIRouter(tags=["rollouts"])


@router.get("/v1/recommenders/{name}/rollouts")
def list_rollouts(parts: With, name: str, limit: Limit = 50, before: Before = None) -> Page[RolloutView]:
    """The newest first."""
    parts.recommenders.get(name)
    found = parts.rollouts.list(name, limit=limit + 1, before=before)
    return Page(items=[_view(one) for one in found[:limit]], next=found[limit - 1].id if len(found) > limit else None)


@router.get("/v1/rollouts/{id}")
def get_rollout(parts: With, id: str) -> RolloutView:
    return _view(parts.rollouts.get(id))


@router.get("/v1/rollouts/{id}/events")
def rollout_events(parts: With, id: str) -> Page[EventView]:
    """Every change of state and of weight: when, why, by whom."""
    parts.rollouts.get(id)
    return EventView.page(parts.rollouts.history(id))


@router.post("/v1/rollouts/{id}:{verb}", status_code=202)
def steer(parts: With, id: str, verb: Literal["pause", "resume", "promote", "abort"], why: Because = None) -> RolloutView:
    return _view(ask(parts, parts.rollouts, ANSWERS, "rollout", id, verb, why))


def _view(record: Record[RolloutStatus]) -> RolloutView:
    spec = read(RecommenderSpec, record.spec["document"], f"spec of {record.id}")
    return RolloutView.of(record, spec.rollout.steps)
