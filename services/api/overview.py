"""Overview of all recommenders in one request, a row each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Literal

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, Field

from services.api.access import RoleRouter, Who
from services.api.dependencies import ControlParts, With
from services.api.kpi_series import LAST, LifePoint, last_of
from services.api.kpis import span
from services.api.paging import Page, Pages
from services.api.recommenders import Prefix, readable
from services.api.retraining import DriftState, drift_of
from services.api.views import RouteView
from services.monitor.kpi_history import MOST_STRETCHES, RecentKpis
from shared.domain.access import Role
from shared.domain.errors import EyasError
from shared.domain.route import Route
from shared.ports import Recommender

room = RoleRouter("monitoring")

_MOST = 200


class UnderWay(BaseModel):
    kind: Literal["run", "rollout"] = Field(description="Kind of the job.")
    id: str
    state: str
    reason: str


class DriftSaid(BaseModel):
    state: DriftState
    said: list[str] = Field(description="Result of the newest look in sentences, or why there is none.")


class Overview(BaseModel):
    name: str
    serving: RouteView | None = Field(description="Route that serves; null while nothing serves.")
    newest: AwareDatetime | None = Field(description="Time of the newest answer of the serving version.")
    points: list[LifePoint] = Field(description="Hit rates of the serving version, the oldest first; only intervals with answers.")
    last: LifePoint | None = Field(description=LAST)
    drift: DriftSaid = Field(description="Drift since the serving version's first days.")
    under_way: list[UnderWay] = Field(description=f"Active rollouts and runs, the newest first, at most {_MOST} of each.")


@room.get("/v1/overview", Role.VIEWER)
def get_overview(
    parts: With,
    who: Who,
    pages: Pages,
    prefix: Prefix = None,
    window: Annotated[
        str, Query(max_length=20, examples=["7d"], description="Length of the time that the points cover, up to the newest answer.")
    ] = "7d",
    points: Annotated[int, Query(ge=1, le=MOST_STRETCHES, description="Approximate number of intervals.")] = 24,
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
    parts: ControlParts, recommender: Recommender, route: Route | None, life: RecentKpis | None, busy: Mapping[str, Sequence[UnderWay]]
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


def _drift(parts: ControlParts, recommender: Recommender) -> DriftSaid:
    """Returns `unknown` for drift that can't be measured: the other recommenders are still listed."""
    try:
        drift = drift_of(parts, recommender)
    except EyasError as error:
        return DriftSaid(state="unknown", said=[str(error)])
    return DriftSaid(state=drift.state, said=drift.said)


def _under_way(parts: ControlParts, names: Collection[str]) -> Mapping[str, Sequence[UnderWay]]:
    under_way: dict[str, list[UnderWay]] = defaultdict(list)
    for rollout in parts.rollouts.list(among=names, active=True, limit=_MOST):
        under_way[rollout.recommender].append(
            UnderWay(kind="rollout", id=rollout.id, state=rollout.status.state, reason=rollout.status.reason)
        )
    for run in parts.runs.list(among=names, active=True, limit=_MOST):
        under_way[run.recommender].append(UnderWay(kind="run", id=run.id, state=run.status.state, reason=run.status.reason))
    return under_way
