"""Health: whether the process lives and can do its work. Open to everybody, without any other information."""

from __future__ import annotations

from fastapi import Response
from pydantic import BaseModel

from services.api.access import ANYBODY, RoleRouter
from services.api.dependencies import AtDoor
from services.api.problems import problem

room = RoleRouter("health")


class Alive(BaseModel):
    status: str = "ok"


class Ready(BaseModel):
    ready: bool = True


@room.get("/healthz", ANYBODY)
async def healthz() -> Alive:
    """Returns whether the process lives."""
    # In the event loop itself: a process whose threads all wait for the database isn't dead.
    return Alive()


@room.get("/readyz", ANYBODY, response_model=Ready)
def readyz(door: AtDoor) -> Ready | Response:
    """Returns whether the process can do its work, or what is missing."""
    waiting = list(door.ready())
    if not waiting:
        return Ready()
    return problem("not-ready", 503, f"not ready yet: {', '.join(waiting)}", {"Retry-After": "1"}, ready=False, waiting=waiting)
