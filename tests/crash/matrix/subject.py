"""What the matrix needs to know of what it kills: which lives there are, what is outside, what it leaves behind, what must hold.

The engine of cells (`cells.py`) knows no kind of row; each kind that is led by the loop is a subject.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Engine

from shared.contracts.spec import RecommenderSpec
from shared.domain.machine import Machine
from shared.ports import Record, ResourceStore
from tests.crash.matrix.outside import Outside
from tests.crash.matrix.plane import Plane
from tests.crash.matrix.points import Points
from tests.crash.matrix.wire import Clock

NAME = "films"
START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Life(Protocol):
    """Plain data: what becomes of everything outside, and what people ask."""

    @property
    def name(self) -> str: ...

    def spec(self) -> RecommenderSpec: ...


@dataclass(frozen=True)
class Move:
    """The `number`-th commit of a life: a transition, a pass with effects in the same state, or a note (it waits, it pauses)."""

    life: str
    number: int
    source: str
    target: str
    effects: tuple[str, ...]
    changed: tuple[str, ...]
    calls: int
    """To the world: an effect may take more than one."""
    placed: int = 0
    """How often versions were placed since the move before it."""

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.source, self.target, self.effects, self.changed if self.source == self.target else ())

    def __str__(self) -> str:
        what = self.effects or (self.changed if self.source == self.target else ())
        return f"{self.source} -> {self.target}" + (f" ({', '.join(what)})" if what else "")


@dataclass(frozen=True)
class Place:
    """Where a victim dies and where the replicas wait for each other."""

    point: str
    meeting: str = ""


@dataclass(frozen=True)
class Mutant:
    """A safeguard taken away, and the cells that it is there for: each of them must notice."""

    why: str
    places: Sequence[Place]
    moves: Callable[[Move], bool]


class Subject(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def hero(self) -> str:
        """The row whose life it is."""

    @property
    def machine(self) -> Machine: ...

    @property
    def ordinary(self) -> str:
        """The life without trouble."""

    @property
    def meetings(self) -> Sequence[str]:
        """Where the replicas of a round wait for each other."""

    @property
    def mutants(self) -> Mapping[str, Mutant]: ...

    def lives(self) -> Mapping[str, Any]:
        """By name."""

    def prepare(self, engine: Engine, artifacts: Path, life: Any) -> None:
        """The hero waits, after what was before it."""

    def rows(self, engine: Engine) -> ResourceStore[Any, Any]:
        """As the world sees them."""

    def outside(self, life: Any, clock: Clock, engine: Engine, artifacts: Path) -> Outside: ...

    def plane(self, engine: Engine, artifacts: str, clock: Clock, points: Points, mutant: str, claims: bool) -> Plane: ...

    def traces(self, engine: Engine, outside: Any) -> Mapping[str, Counter[str]]:
        """What a life leaves behind beside its rows and their history."""

    def problems(self, engine: Engine, outside: Any) -> list[str]:
        """What must hold of every life and doesn't, beside that each history is a path to an end."""

    def row_problems(self, record: Record[Any, Any], outside: Any) -> list[str]: ...

    def figures(self, traces: Mapping[str, Counter[str]], expected: Mapping[str, Counter[str]], outside: Any) -> Mapping[str, int]:
        """Summed over the cells."""
