"""Lives of a run, derived from its machine: for each edge one that takes it, for each stage those that try it again.

A life is plain data: what becomes of the attempts of each stage, what people ask, what the spec says otherwise. An edge that no
rule here knows gets no life, and the test that every edge is taken fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.contracts.spec import RecommenderSpec
from shared.domain.machine import Edge
from shared.domain.run import MACHINE, MAX_FAULTS, RESOURCES, STAGES
from tests.crash.matrix.subject import NAME

RUN, EARLIER = "r1", "r0"
"""The run whose life it is, and the one before it where there is one."""
_REFIT = {"refit.candidate.hr@10": 0.25, "refit.hr@10.se_to.candidate": 0.01, "refit.hr@10.users": 900.0}
GOOD: Mapping[str, Mapping[str, float]] = {
    "evaluate": {"candidate.auc": 0.8},
    "refit": {"refit.hr@10": 0.3, **_REFIT},
    "verify": {"parity": 1e-7},
}
BAD: Mapping[str, Mapping[str, float]] = {
    "evaluate": {"candidate.auc": 0.1},
    "refit": {"refit.hr@10": 0.1, **_REFIT},
    "verify": {"parity": 0.1},
}
SHORT = "4s"


@dataclass(frozen=True)
class RunLife:
    """`plays`: by stage, what becomes of its attempts: crash, refuse, hang, wait for a place; what isn't named publishes."""

    name: str
    plays: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    asks: tuple[tuple[str, str], ...] = ()
    """What a person asks, as soon as the run is in the state."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    bad: frozenset[str] = frozenset()
    """The stages whose numbers miss their gates."""
    after: str = ""
    """Of an earlier run: `registered` (it was equal, so its stages stand for this one's), `waiting` (it goes first)."""
    parent: int | None = None
    """The version that a warm run goes on from."""

    def spec(self) -> RecommenderSpec:
        document = {
            "name": NAME,
            "data": {"interactions": {"uri": "a.csv"}, "items": {"uri": "b.csv", "key": "film"}},
            "schema": {"user": "person", "item": "film", "time": "at", "label": {"column": "stars", "positive": ">= 4"}},
            "gates": [{"metric": "auc", "min": 0.6}, {"parity": 1e-4}],
            **self.changes,
        }
        return RecommenderSpec.model_validate(document)

    def metrics(self, stage: str) -> Mapping[str, float]:
        return (BAD if stage in self.bad else GOOD).get(stage, {})


def _of_edge(edge: Edge) -> RunLife | None:
    if edge.target == "cancelled":
        return RunLife(f"cancelled in {edge.source}", {edge.source: ("hang",)}, ((edge.source, "cancel"),))
    if (edge.source, edge.target) == ("pending", "failed"):
        return RunLife("of a parent that is gone", parent=99)
    if edge.target == "failed":
        return RunLife(f"refused by {edge.source}", {edge.source: ("refuse",)})
    if edge.target == "rejected":
        return RunLife(f"rejected at {edge.source}", bad=frozenset({edge.source}))
    if (edge.source, edge.target) == ("evaluate", "export"):
        return RunLife("registered without a refit", changes={"split": {"refit": False}})
    if edge.source in ("pending", *STAGES):
        return RunLife("registered")
    return None


def _again(stage: str) -> Iterator[RunLife]:
    """What keeps a run in its state, with a new attempt; and what ends it after so many. (The next attempt refuses: a short life.)"""
    slow = {"resources": {RESOURCES.get(stage, stage): {"timeout": SHORT}}}
    yield RunLife(f"{stage} crashed once", {stage: ("crash", "refuse")})
    yield RunLife(f"{stage} waited for a place", {stage: ("wait",)})
    yield RunLife(f"{stage} crashed to the end", {stage: ("crash",) * MAX_FAULTS})
    yield RunLife(f"{stage} was too slow once", {stage: ("hang", "refuse")}, changes=slow)
    yield RunLife(f"{stage} was too slow to the end", {stage: ("hang",) * MAX_FAULTS}, changes=slow)


def lives() -> dict[str, RunLife]:
    found = [life for edge in MACHINE.edges if (life := _of_edge(edge)) is not None]
    found += [RunLife("the same once more", after="registered"), RunLife("second in line", {"etl": ("refuse",)}, after="waiting")]
    found += [life for stage in STAGES for life in _again(stage)]
    return {life.name: life for life in found}
