"""Overview of all recommenders in one request, a row each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Literal

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, Field

from services.api.access import Room, Who
from services.api.dependencies import Parts, With
from services.api.kpi_series import LAST, LifePoint, last_of
from services.api.kpis import span
from services.api.paging import Page, Pages
from services.api.recommenders import Prefix, readable
from services.api.retraining import DriftState, drift_of
from services.api.views import RouteView
from services.monitor.kpi_history import MOST_STRETCHES, Lately
from shared.domain.access import Role
from shared.domain.errors import EyasError
from shared.domain.route import Route
from shared.ports import Recommender

room = Room("monitoring")

_MOST = 200


class UnderWay(BaseModel):
    kind: Literal["run", "rollout"] = Field(description="What it is.")
    id: str
    state: str
    reason: str


class DriftSaid(BaseModel):
    state: DriftState
    said: list[str] = Field(description="What the newest look came to, in sentences, or why there is none.")


class Overview(BaseModel):
    name: str
    serving: RouteView | None = Field(description="What serves; null while nothing does.")
    newest: AwareDatetime | None = Field(description="The newest answer of the version that serves.")
    points: list[LifePoint] = Field(description="What that version earned, the oldest stretch first; those without an answer are left out.")
    last: LifePoint | None = Field(description=LAST)
    drift: DriftSaid = Field(description="Whether tastes have moved since the serving version's first days.")
    under_way: list[UnderWay] = Field(description=f"Rollouts and runs that haven't ended, the newest first, {_MOST} of each at most.")


@room.get("/v1/overview", Role.VIEWER)
def get_overview(
    parts: With,
    who: Who,
    pages: Pages,
    prefix: Prefix = None,
    window: Annotated[
        str, Query(max_length=20, examples=["7d"], description="Of the points: the last such time that it was asked.")
    ] = "7d",
    points: Annotated[int, Query(ge=1, le=MOST_STRETCHES, description="About so many stretches of time.")] = 24,
) -> Page[Overview]:
    """Lists all recommenders by name: what serves, what it earns, whether it drifts, and which runs and rollouts are active."""
    length, routes = span("window", window), parts.routes.all()
    recommenders = readable(parts, who, pages, prefix)
    shown = recommenders[: pages.limit]
    lives, busy = parts.lately(shown, points, length), _under_way(parts, {recommender.name for recommender in shown})
    return pages.page(
        recommenders,
        lambda recommender: recommender.name,
        lambda recommender: _faring(parts, recommender, routes.get(recommender.name), lives.get(recommender.name), busy),
    )


def _faring(
    parts: Parts, recommender: Recommender, route: Route | None, life: Lately | None, busy: Mapping[str, Sequence[UnderWay]]
) -> Overview:
    return Overview(
        name=recommender.name,
        serving=RouteView.of(route) if route else None,
        newest=life.newest if life else None,
        points=[LifePoint.of(at) for at in life.stretches] if life else [],
        last=last_of(life.stretches) if life else None,
        drift=_drift(parts, recommender),
        under_way=list(busy.get(recommender.name, ())),
    )


def _drift(parts: Parts, recommender: Recommender) -> DriftSaid:
    """Returns `unknown` for drift that can't be measured: the other recommenders are still listed."""
    try:
        drift = drift_of(parts, recommender)
    except EyasError as error:
        return DriftSaid(state="unknown", said=[str(error)])
    return DriftSaid(state=drift.state, said=drift.said)


def _under_way(parts: Parts, names: Collection[str]) -> Mapping[str, Sequence[UnderWay]]:
    under_way: dict[str, list[UnderWay]] = defaultdict(list)
    for rollout in parts.rollouts.list(among=names, active=True, limit=_MOST):
        under_way[rollout.recommender].append(
            UnderWay(kind="rollout", id=rollout.id, state=rollout.status.state, reason=rollout.status.reason)
        )
    for run in parts.runs.list(among=names, active=True, limit=_MOST):
        under_way[run.recommender].append(UnderWay(kind="run", id=run.id, state=run.status.state, reason=run.status.reason))
    return under_way
