"""Lives of a rollout: what servers, gateways and users do, and what people ask, as soon as the rollout is somewhere.

A life is plain data. Users come in numbers that decide when nothing of the script is left to happen: what people do and what is
measured never race. An edge of the machine that no life takes fails a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.contracts.spec import RecommenderSpec
from tests.crash.matrix.subject import NAME

ROLLOUT, EARLIER = "o1", "o0"
"""The rollout whose life it is, and the one before it where there is one."""
STEPS = (0.2, 0.5)
SHORT = {"deadline": "5s"}
SHADOW = {"shadow": "10m"}
SOON = {"progress": "5s"}
LOOKED = "canary step-0 looked"
"""Its first step is under way, and what users did was looked at."""


@dataclass(frozen=True)
class RolloutLife:
    name: str
    script: tuple[tuple[str, str], ...] = ()
    """Where the rollout is, in words of its status; then what happens: what a person asks, or `silence 2`, `heal`, `mute gate-2`, ..."""
    begins: tuple[str, ...] = ()
    """What has happened before."""
    counts: tuple[str, ...] = ("good",)
    """What users do at each step (the last one stands for those that follow): good, harm, few, or fails where they can't be counted."""
    stable: bool = True
    """Version 1 serves already."""
    after: bool = False
    """Of another rollout, which goes first."""
    back: bool = False
    """To version 1, while version 2 serves."""
    analysis: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Of the spec's `rollout`."""

    @property
    def version(self) -> int:
        return 1 if self.back else 1 + self.stable + self.after

    def spec(self) -> RecommenderSpec:
        analysis = {
            "attribution": "1s",
            "window": "1s",
            "max_harm": "30%",
            "min_users": 30,
            "deadline": "10m",
            "every": "1s",
            **self.analysis,
        }
        document = {
            "name": NAME,
            "data": {"interactions": {"uri": "a.csv"}, "items": {"uri": "b.csv", "key": "film"}},
            "schema": {"user": "person", "item": "film", "time": "at", "label": {"column": "stars", "positive": ">= 4"}},
            "rollout": {"steps": [f"{step:.0%}" for step in STEPS], "analysis": analysis, **self.changes},
        }
        return RecommenderSpec.model_validate(document)


_LIVES = (
    RolloutLife("promoted"),
    RolloutLife("of the first version", stable=False),
    RolloutLife("that goes back", back=True),
    RolloutLife("second in line", after=True),
    # servers and gateways
    RolloutLife("slow to load", begins=("slow 2",)),
    RolloutLife("that can't be loaded", begins=("break 2",)),
    RolloutLife("that never answers", begins=("silence 2",), changes=SOON),
    RolloutLife("that fell sick", ((LOOKED, "silence 2"),)),
    RolloutLife("that fell sick and came back", ((LOOKED, "silence 2"), ("canary sick", "heal"))),
    RolloutLife("halted for the stable version", ((LOOKED, "silence 1"), ("paused", "heal"), ("paused", "resume"))),
    RolloutLife("halted before it began", (("paused", "heal"), ("paused", "resume")), begins=("silence 1",), changes=SOON),
    RolloutLife("beside a gateway that falls silent", (("canary step-0", "mute gate-2"),)),
    RolloutLife(
        "without gateways",
        (("loading", "mute gate-1"), ("paused", "hear gate-1"), ("paused", "resume")),
        begins=("slow 2", "mute gate-2"),
        changes=SOON,
    ),
    # users
    RolloutLife("harmful at once", counts=("harm",)),
    RolloutLife("harmful at its second step", counts=("good", "harm")),
    RolloutLife("inconclusive", (("paused", "abort"),), counts=("few",), analysis=SHORT),
    RolloutLife("that can't be judged", (("paused", "count good"), ("paused", "resume")), counts=("fails",)),
    # people
    RolloutLife("paused and resumed", ((LOOKED, "pause"), ("paused", "resume"))),
    RolloutLife("paused and promoted", ((LOOKED, "pause"), ("paused", "promote"))),
    RolloutLife("paused and skipped on", ((LOOKED, "pause"), ("paused", "skip"))),
    RolloutLife("paused and aborted", ((LOOKED, "pause"), ("paused", "abort"))),
    RolloutLife("paused while loading", (("loading", "pause"), ("paused", "heal"), ("paused", "resume")), begins=("silence 2",)),
    RolloutLife("paused while loading, and aborted", (("loading", "pause"), ("paused", "abort")), begins=("silence 2",)),
    RolloutLife("skipped, and once too often", ((LOOKED, "skip"), ("canary step-1 looked", "skip"))),
    RolloutLife("promoted by a person", ((LOOKED, "promote"),)),
    RolloutLife("that is not promoted while sick", ((LOOKED, "silence 2"), ("canary sick", "promote"), ("canary refused", "heal"))),
    RolloutLife("whose route was changed beside it", ((LOOKED, "route 1"), ("paused", "resume"))),
    RolloutLife("aborted in the queue", (("pending", "abort"),)),
    RolloutLife("aborted while loading", (("loading", "abort"),), begins=("silence 2",)),
    RolloutLife("aborted under way", ((LOOKED, "abort"),)),
    # shadows
    RolloutLife("good in its shadow", changes={"shadow": "5s"}),
    RolloutLife("slow in its shadow", counts=("harm",), changes=SHADOW),
    RolloutLife("that nobody sees in its shadow", (("paused", "abort"),), counts=("few",), changes={"shadow": "5s"}),
    RolloutLife("skipped out of its shadow", (("shadow", "skip"),), changes=SHADOW),
    RolloutLife("promoted out of its shadow", (("shadow", "promote"),), changes=SHADOW),
    RolloutLife("aborted in its shadow", (("shadow", "abort"),), changes=SHADOW),
    RolloutLife("paused in its shadow", (("shadow", "pause"), ("paused", "resume"), ("shadow", "skip")), changes=SHADOW),
    RolloutLife("sick in its shadow", (("shadow", "silence 2"),), changes=SHADOW),
)


def lives() -> dict[str, RolloutLife]:
    return {life.name: life for life in _LIVES}
