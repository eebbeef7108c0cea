"""State machines of runs, rollouts and retrainers: a transition table, and the decision that a pass of the control loop makes.

Only the tables define transitions; the control loop rejects any other. The diagrams in docs/state-machines.md are drawn from the tables.
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
        """Raises IllegalTransition without an edge; staying in a state is always allowed."""
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
    """Result of a state and an observation.

    The control loop stores `next` after all effects are done; effects are idempotent. `requeue_after` is None if only an external change
    can matter.
    """

    next: S
    effects: tuple[E, ...] = ()
    requeue_after: timedelta | None = None
    consumes_request: bool = False
    note: str = ""
    """History note of a pass that does not change the state."""


@dataclass(frozen=True)
class Request:
    """Request to a run, a rollout or a retrainer: the verb (`cancel`, `pause`, `promote`, ...) and the actor."""

    verb: str
    actor: str
    reason: str = ""
    key: str = ""
    """Idempotency key of repeated deliveries; empty for requests by people."""

    def summary(self) -> str:
        return f"{self.verb} by {self.actor}" + (f": {self.reason}" if self.reason else "")


def diagram(machine: Machine) -> str:
    """Returns the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {machine.initial}"]
    lines += [f"    {edge.source} --> {edge.target}: {edge.why}" for edge in machine.edges]
    lines += [f"    {state} --> [*]" for state in machine.states if machine.terminal(state)]
    return "\n".join(lines)


def requests(table: Mapping[str, frozenset[str]], state: str) -> frozenset[str]:
    """Returns the verbs that a state accepts."""
    return table.get(state, frozenset())
