"""Whether the process lives and whether it can do its work: open to everybody, and telling nothing else."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import BaseModel

from services.api.parts import With
from services.api.problems import problem

router = APIRouter(tags=["health"])


class Alive(BaseModel):
    status: str = "ok"


class Ready(BaseModel):
    ready: bool = True


@router.get("/healthz")
def healthz() -> Alive:
    return Alive()


@router.get("/readyz", response_model=Ready)
def readyz(parts: With) -> Ready | Response:
    waiting = list(parts.ready())
    if not waiting:
        return Ready()
    return problem("not-ready", 503, f"not ready yet: {', '.join(waiting)}", {"Retry-After": "1"}, ready=False, waiting=waiting)
