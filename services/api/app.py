"""The control plane's HTTP application: its rooms, its door, and an OpenAPI that a client generator can use."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.security import HTTPBearer

from services.api import (
    alerts,
    audit,
    events,
    gc,
    health,
    planning,
    problems,
    recommend,
    recommenders,
    retraining,
    rollouts,
    runs,
    serving,
    tokens,
    triggers,
    versions,
)
from services.api.access import Room
from services.api.auth import Auth
from services.api.limits import BodyLimit, LastCatch
from services.api.parts import Door, Parts
from services.gateway import Gateway
from shared import __version__
from shared.contracts.spec import RecommenderSpec

CONTROL: tuple[Room, ...] = (
    recommenders.room,
    versions.room,
    gc.room,
    runs.room,
    planning.room,
    rollouts.room,
    retraining.room,
    triggers.room,
    alerts.room,
    serving.room,
    tokens.room,
    audit.room,
)
ONLINE: tuple[Room, ...] = (recommend.room, events.room)
ROOMS: tuple[Room, ...] = (health.room, *CONTROL, *ONLINE)
"""Every route of the API; its permission table is made of them."""

_PLACE = "#/components/schemas/{model}"
_PROBLEM = {
    "type": "object",
    "description": "RFC 9457. `errors` names each field of an invalid request.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {"type": "object", "properties": {"field": {"type": "string"}, "message": {"type": "string"}}},
        },
    },
}


def create_app(door: Door, parts: Parts | None, gateway: Gateway | None) -> FastAPI:
    """The rooms of what the process has: the control plane's, the online ones, or both."""
    app = FastAPI(title="Eyas", version=__version__, description="Trains recommenders and lets them fly a little further at a time.")
    app.state.door, app.state.parts, app.state.gateway = door, parts, gateway
    problems.install(app)
    said_in_openapi = [Depends(HTTPBearer(auto_error=False))]
    for room in (health.room, *(CONTROL if parts else ()), *(ONLINE if gateway else ())):
        app.include_router(room.router, dependencies=None if room is health.room else said_in_openapi)
    app.add_middleware(BodyLimit)
    app.add_middleware(Auth, bootstrap=door.token, tokens=door.tokens, clock=door.clock)
    app.add_middleware(LastCatch)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's, with the spec's schema where its bodies point, and a problem as the answer to every fault."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        spec = RecommenderSpec.model_json_schema(ref_template=_PLACE)
        schemas = document["components"]["schemas"]
        schemas.update(spec.pop("$defs"))
        schemas.update({"RecommenderSpec": spec, "Problem": _PROBLEM})
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                content = {problems.MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}
                operation["responses"]["default"] = {"description": "A problem", "content": content}
        app.openapi_schema = document
    return app.openapi_schema
