"""Requests to runs, rollouts and retrainers: checked against the state, then left for the reconciler."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Annotated, TypeVar

from fastapi import Body
from pydantic import BaseModel, ConfigDict, Field

from services.api.access import Caller
from services.api.dependencies import ControlParts
from services.api.idempotency import KeyReservation
from shared.domain.errors import Conflict
from shared.domain.machine import HasState, Request, requests
from shared.ports import Record, ResourceStore

S = TypeVar("S", bound=HasState)
P = TypeVar("P")


class Why(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: str = Field("", max_length=500, description="Reason for the history.")


Because = Annotated[Why | None, Body()]


def ask(  # noqa: PLR0913, PLR0917  the pieces of one request
    parts: ControlParts,
    who: Caller,
    store: ResourceStore[S, P],
    table: Mapping[str, frozenset[str]],
    kind: str,
    id: str,
    verb: str,
    why: Why | None,
    expected: Container[int] | None = None,
) -> Record[S, P]:
    """Stores a request. `expected`: the revisions at which the caller wants it done."""
    who.says(why.reason if why else "")
    record = who.row(kind, store, id)
    request = Request(verb, who.name, why.reason if why else "")
    if who.once is not None and who.once.again and _already_requested(record, store, request, who.once):
        return record
    state = record.status.state
    possible = requests(table, state)
    if verb not in possible:
        left = f"possible now: {', '.join(sorted(possible))}" if possible else "no request is possible now"
        raise Conflict(f"{kind} {id} is {state.replace('_', ' ')} and does not accept '{verb}'; {left}")
    updated = store.ask(id, request, parts.clock.now(), expected)
    parts.wake()
    return updated


def _already_requested(record: Record[S, P], store: ResourceStore[S, P], request: Request, once: KeyReservation) -> bool:
    """Returns whether a killed process has stored this request."""
    reason = request.summary()
    return record.request == request or any(entry.at >= once.at and reason in entry.reason for entry in store.history(record.id))
