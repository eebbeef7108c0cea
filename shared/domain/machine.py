"""What every long-lived thing shares: a transition table, and the decision that a pass of its reconciler makes.

The tables are the only place that says which transitions exist; the loop refuses any other, and the diagrams in
docs/state-machines.md are drawn from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

from shared.domain.errors import IllegalTransition


@dataclass(frozen=True)
class Edge:
    source: str
    target: str
    why: str


@dataclass(frozen=True)
class Machine:
    name: str
    initial: str
    edges: tuple[Edge, ...]

    @property
    def states(self) -> tuple[str, ...]:
        states = {self.initial: None}
        for edge in self.edges:
            states |= {edge.source: None, edge.target: None}
        return tuple(states)

    def terminal(self, state: str) -> bool:
        return not any(edge.source == state for edge in self.edges)

    @property
    def ends(self) -> frozenset[str]:
        return frozenset(filter(self.terminal, self.states))

    def check(self, source: str, target: str) -> None:
        """Staying is always legal; moving needs an edge."""
        if source != target and not any(edge.source == source and edge.target == target for edge in self.edges):
            raise IllegalTransition(f"{self.name}: no transition from {source} to {target}")


class HasState(Protocol):
    @property
    def state(self) -> str: ...

    @property
    def reason(self) -> str: ...


S = TypeVar("S", bound=HasState)
E = TypeVar("E")


@dataclass(frozen=True)
class Decision(Generic[S, E]):
    """What follows from a state and an observation.

    `next` holds once every effect has happened; effects are idempotent, so doing one again is harmless.
    `requeue_after` is None when only an outside change can matter.
    """

    next: S
    effects: tuple[E, ...] = ()
    requeue_after: timedelta | None = None
    consumes_request: bool = False
    note: str = ""
    """For the history, of a pass that moves nothing."""


@dataclass(frozen=True)
class Request:
    """What was asked of a run, a rollout or a retrainer: `cancel`, `pause`, `promote`, ..., and by whom."""

    verb: str
    actor: str
    reason: str = ""
    key: str = ""
    """Tells deliveries of one and the same thing from others; empty where a person asks."""

    def summary(self) -> str:
        return f"{self.verb} by {self.actor}" + (f": {self.reason}" if self.reason else "")


def diagram(machine: Machine) -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {machine.initial}"]
    lines += [f"    {edge.source} --> {edge.target}: {edge.why}" for edge in machine.edges]
    lines += [f"    {state} --> [*]" for state in machine.states if machine.terminal(state)]
    return "\n".join(lines)


def requests(table: Mapping[str, frozenset[str]], state: str) -> frozenset[str]:
    """The verbs that a state answers to."""
    return table.get(state, frozenset())
