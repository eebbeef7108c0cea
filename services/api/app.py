"""HTTP application: routes, authentication, and an OpenAPI document for client generators."""

from __future__ import annotations

from typing import Any

from anyio import CapacityLimiter
from fastapi import FastAPI

from eyas import __version__
from services.api import (
    alerts,
    audit,
    event_export,
    events,
    features,
    gc,
    health,
    items,
    kpi_series,
    kpis,
    overview,
    planning,
    problems,
    recommend,
    recommenders,
    reports,
    retraining,
    rollouts,
    runs,
    serving,
    sessions,
    streams,
    tokens,
    triggers,
    users,
    versions,
)
from services.api.access import RoleRouter
from services.api.auth import Auth
from services.api.dependencies import AuthConfig, ControlParts
from services.api.fast_path import FastPath
from services.api.limits import BodyLimit, LastCatch
from services.api.openapi import document
from services.api.request_metrics import RequestMetrics, create_series
from services.api.streams import Listeners
from services.gateway import Gateway

CONTROL: tuple[RoleRouter, ...] = (
    overview.room,
    recommenders.room,
    versions.room,
    gc.room,
    items.room,
    features.room,
    users.room,
    runs.room,
    reports.room,
    streams.room,
    planning.room,
    rollouts.room,
    retraining.room,
    event_export.room,
    kpis.room,
    kpi_series.room,
    triggers.room,
    alerts.room,
    serving.room,
    tokens.room,
    sessions.room,
    audit.room,
)
ONLINE: tuple[RoleRouter, ...] = (recommend.room, events.room)
ROOMS: tuple[RoleRouter, ...] = (health.room, *CONTROL, *ONLINE)
"""Every route of the API; the permission table is made of them."""


def create_app(door: AuthConfig, parts: ControlParts | None, gateway: Gateway | None) -> FastAPI:
    """Creates the application with the routes of the control plane, of the gateway, or both."""
    app = FastAPI(title="Eyas", version=__version__, redirect_slashes=False, docs_url=None, redoc_url=None)
    app.state.door, app.state.parts, app.state.gateway = door, parts, gateway
    app.state.listeners, app.state.closing = Listeners(), lambda: False
    app.state.spec_readers = CapacityLimiter(1)
    problems.install(app)
    for room in (health.room, *(CONTROL if parts else ()), *(ONLINE if gateway else ())):
        app.router.routes.extend(room.router.routes)  # include_router would build each route again, for each app
    app.add_middleware(BodyLimit)
    if gateway:
        app.add_middleware(FastPath)
    app.add_middleware(Auth, credentials=door.credentials, limits=door.limits)
    app.add_middleware(LastCatch)
    if parts:
        app.add_middleware(RequestMetrics)
        create_series()
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = document(app)
    return app.openapi_schema
