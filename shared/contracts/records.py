"""Stored records of runs, rollouts and retrainers, and the lineage of versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import Field, PlainSerializer

from shared.domain.machine import Request
from shared.domain.run import StageDone
from shared.domain.warm_or_full import Mode

_T = TypeVar("_T")
_Optional = Annotated[_T | None, Field(exclude_if=lambda value: value is None)]
"""Not stored if None."""


@dataclass(frozen=True)
class RunSpec:
    """`document`: the recommender's spec of that generation. `serving`: the version that serves. Only a retry has the last four fields:
    `adopt` has the stages that the retried run published before `from_stage`; `accepts` is who accepts inconclusive gates, empty for
    nobody."""

    document: Mapping[str, Any]
    generation: int
    mode: Mode
    cause: str
    serving: int | None
    by: str
    fresh: bool
    trigger: str
    retry_of: _Optional[str] = None
    from_stage: Annotated[_Optional[str], Field(alias="from")] = None
    adopt: _Optional[Mapping[str, StageDone]] = None
    accepts: _Optional[str] = None


@dataclass(frozen=True)
class RolloutSpec:
    """`start` or `back`: the request of a rollout that goes forward or back; neither, if a run started it."""

    version: int
    document: Mapping[str, Any]
    start: _Optional[Request] = None
    back: _Optional[Request] = None


@dataclass(frozen=True)
class RetrainerSpec:
    """Empty: a retrainer always follows the recommender's current spec."""


@dataclass(frozen=True)
class DataLineage:
    digest: str | None
    fingerprint: str
    files: Mapping[str, str]


@dataclass(frozen=True)
class AttemptLineage:
    attempt: str
    reused: bool
    why: str
    digest: _Optional[str] = None


@dataclass(frozen=True)
class Lineage:
    """Origin of a version. `stages`: the facts that each stage published."""

    snapshot: Annotated[datetime, PlainSerializer(datetime.isoformat)]
    data: DataLineage
    spec_generation: int
    spec_digest: str
    code: str
    mode: Mode
    cause: str
    asked_by: str
    trigger: str
    serving: int | None
    seeds: Mapping[str, int]
    retry_of: str | None
    attempts: Mapping[str, AttemptLineage]
    stages: Mapping[str, Mapping[str, Any]]
