"""Whether the process lives and whether it can do its work: open to everybody, and telling nothing else."""

from __future__ import annotations

from fastapi import Response
from pydantic import BaseModel

from services.api.access import ANYBODY, Room
from services.api.dependencies import AtDoor
from services.api.problems import problem

room = Room("health")


class Alive(BaseModel):
    status: str = "ok"


class Ready(BaseModel):
    ready: bool = True


@room.get("/healthz", ANYBODY)
async def healthz() -> Alive:
    """Whether the process lives."""
    # In the event loop itself: that every thread waits for the database doesn't mean that the process is dead.
    return Alive()


@room.get("/readyz", ANYBODY, response_model=Ready)
def readyz(door: AtDoor) -> Ready | Response:
    """Whether it can do its work; what is missing otherwise."""
    waiting = list(door.ready())
    if not waiting:
        return Ready()
    return problem("not-ready", 503, f"not ready yet: {', '.join(waiting)}", {"Retry-After": "1"}, ready=False, waiting=waiting)
