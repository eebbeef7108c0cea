"""When a stage needn't run again: what it is made of, as named parts, and what has changed since the last time.

The digest of a stage is that of its parts. Equal parts give equal output as far as a stage is a function of them; `verify` is not: it
measures the machine that it runs on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

NEVER: Mapping[str, str] = {"verify": "it measures this machine"}
"""Stages that always run, and why."""
_SHORT = 64
_NAMED = 3


@dataclass(frozen=True)
class Basis:
    """What a stage rests on. `attempt`: the published one that stands for it, so that it doesn't run; `why`: in words, either way.

    Without a digest it can't stand for a later one. `since`: when the attempt that stands for it began.
    """

    digest: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)
    attempt: str = ""
    why: str = ""
    since: datetime | None = None


@dataclass(frozen=True)
class StageOutput:
    """A published stage, to be found by what it was made of. `at`: when its attempt began."""

    recommender: str
    stage: str
    digest: str
    parts: Mapping[str, str]
    attempt: str
    at: datetime


@dataclass(frozen=True)
class Foreseen:
    """What a stage of a run that isn't there yet would do. "open": it depends on what the stages before it publish."""

    stage: str
    does: Literal["run", "reuse", "open"]
    attempt: str | None
    why: str
    seconds: float | None = None
    """How long it took in the newest run of the same mode that ran it; None if there is none, and for a stage that is reused."""
    memory: str | None = None
    """The memory that the spec asks for, such as 8Gi; None if it asks for none."""


@dataclass(frozen=True)
class RunForecast:
    """`waits`: for what it would wait now; None if it could begin at once."""

    waits: str | None
    stages: tuple[Foreseen, ...]
    gates: tuple[str, ...]
    data: Mapping[str, str]


def digest(stage: str, parts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps([stage, sorted(parts.items())]).encode()).hexdigest()


def part(value: Any) -> str:
    """A value as a part: itself where it is short, so that people can read it, else its digest."""
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _SHORT else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def leaves(value: Any, name: str) -> dict[str, str]:
    """`{"train": {"epochs": 5}}` under 'model' as `{"model.train.epochs": "5"}`; lists are leaves."""
    if isinstance(value, Mapping) and value:
        return {path: text for key, inner in value.items() for path, text in leaves(inner, f"{name}.{key}" if name else str(key)).items()}
    return {name: part(value)}


def changed(parts: Mapping[str, str], before: Mapping[str, str]) -> tuple[str, ...]:
    """Each part that differs, in words, in the order of their names."""
    return tuple(
        _change(name, parts.get(name), before.get(name)) for name in sorted({*parts, *before}) if parts.get(name) != before.get(name)
    )


def why_not(parts: Mapping[str, str], newest: StageOutput | None) -> str:
    """Why the stage runs, though there are earlier outputs of it."""
    if newest is None:
        return "nothing to reuse yet"
    changes = changed(parts, newest.parts)
    if not changes:
        return f"what {newest.attempt} published is gone or damaged"
    more = f" and {len(changes) - _NAMED} more" if len(changes) > _NAMED else ""
    return "; ".join(changes[:_NAMED]) + more


def _change(name: str, now: str | None, before: str | None) -> str:
    if before is None:
        return f"{name} is new"
    if now is None:
        return f"{name} is gone"
    if now.startswith("sha256:") or before.startswith("sha256:"):
        return f"{name} changed"
    return f"{name} is {now}, was {before}"
