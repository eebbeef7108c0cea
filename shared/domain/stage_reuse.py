"""Stage reuse: a stage's inputs as named parts, and what changed since its last attempt.

The digest of a stage is computed from its parts. Equal parts give equal output if the stage is a function of them; `verify` is not, because
it measures its machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

NEVER: Mapping[str, str] = {"verify": "it measures this machine"}
"""Stages that are never reused, and why."""
_SHORT = 64
_NAMED = 3


@dataclass(frozen=True)
class ReuseBasis:
    """Inputs of a stage. `attempt`: the published attempt that is reused; `why`: the reason for or against reuse.

    A basis without a digest cannot be reused later. `since`: when the reused attempt began.
    """

    digest: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)
    attempt: str = ""
    why: str = ""
    since: datetime | None = None


@dataclass(frozen=True)
class StageOutput:
    """Published stage, indexed by its inputs. `at`: when its attempt began."""

    recommender: str
    stage: str
    digest: str
    parts: Mapping[str, str]
    attempt: str
    at: datetime


@dataclass(frozen=True)
class StageForecast:
    """Forecast of a stage of a planned run. "open": it depends on what earlier stages publish."""

    stage: str
    does: Literal["run", "reuse", "open"]
    attempt: str | None
    why: str
    seconds: float | None = None
    """Duration in the newest run of the same mode that ran the stage; None if there is none, or if the stage is reused."""
    memory: str | None = None
    """Memory that the spec asks for, such as 8Gi; None if it asks for none."""


@dataclass(frozen=True)
class RunForecast:
    """Forecast of a run. `waits`: what the run would wait for now; None if it could begin at once."""

    waits: str | None
    stages: tuple[StageForecast, ...]
    gates: tuple[str, ...]
    data: Mapping[str, str]


def digest(stage: str, parts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps([stage, sorted(parts.items())]).encode()).hexdigest()


def part(value: Any) -> str:
    """Returns a value as a part: its JSON text if short, so that people can read it, else its digest."""
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _SHORT else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def leaves(value: Any, name: str) -> dict[str, str]:
    """Flattens a document: `{"train": {"epochs": 5}}` named 'model' becomes `{"model.train.epochs": "5"}`; lists are leaves."""
    if isinstance(value, Mapping) and value:
        return {path: text for key, inner in value.items() for path, text in leaves(inner, f"{name}.{key}" if name else str(key)).items()}
    return {name: part(value)}


def changed(parts: Mapping[str, str], before: Mapping[str, str]) -> tuple[str, ...]:
    """Describes each part that differs, sorted by name."""
    return tuple(
        _change(name, parts.get(name), before.get(name)) for name in sorted({*parts, *before}) if parts.get(name) != before.get(name)
    )


def why_not(parts: Mapping[str, str], newest: StageOutput | None) -> str:
    """Returns why the stage runs although earlier outputs exist."""
    if newest is None:
        return "nothing to reuse yet"
    changes = changed(parts, newest.parts)
    if not changes:
        return f"artifacts of {newest.attempt} are missing or damaged"
    more = f" and {len(changes) - _NAMED} more" if len(changes) > _NAMED else ""
    return "; ".join(changes[:_NAMED]) + more


def _change(name: str, now: str | None, before: str | None) -> str:
    if before is None:
        return f"{name} is new"
    if now is None:
        return f"{name} was removed"
    if now.startswith("sha256:") or before.startswith("sha256:"):
        return f"{name} changed"
    return f"{name} is {now}, was {before}"
