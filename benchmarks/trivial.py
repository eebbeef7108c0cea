"""The smallest thing that the control plane's loop can reconcile: two steps, one after the other, each a function call.

What a workflow engine calls a trivial run: the same loop, store, intents and history as a run of ours, with nothing of recommenders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from services.control.reconcile import Simple
from shared.contracts.records import RetrainerSpec
from shared.domain.machine import Decision, Edge, Machine, Request
from shared.ports import Record, ResourceStore

MACHINE = Machine(
    "trivial", "pending", (Edge("pending", "one", "start"), Edge("one", "two", "step one ended"), Edge("two", "done", "step two ended"))
)
_FOLLOWING = {"pending": "one", "one": "two", "two": "done"}


@dataclass(frozen=True)
class Status:
    state: str = "pending"
    reason: str = ""


@dataclass(frozen=True)
class Step:
    name: str
    kind: Literal["step"] = "step"


class Trivial(Simple[Status, Step]):
    """The Kind. `steps` stands for an executor that is done at once; a step's name is used once."""

    machine = MACHINE
    status_type: Any = Status
    effect_type: Any = Step

    def __init__(self, store: ResourceStore[Status, RetrainerSpec], work: Callable[[str], int]) -> None:
        self.store = store
        self.results: dict[str, int] = {}
        self._work = work

    def observe(self, record: Record[Status, RetrainerSpec]) -> Request | None:
        return record.request

    def decide(self, record: Record[Status, RetrainerSpec], observation: Request | None, now: datetime) -> Decision[Status, Step]:
        state = _FOLLOWING[record.status.state]
        effects = (Step(f"{record.id}-{state}-1"),) if state in ("one", "two") else ()
        return Decision(replace(record.status, state=state), effects)

    def act(self, record: Record[Status, RetrainerSpec], following: Status, effect: Step) -> None:
        if effect.name not in self.results:
            self.results[effect.name] = self._work(effect.name)

    def committed(self, record: Record[Status, RetrainerSpec], following: Status) -> None:
        pass
