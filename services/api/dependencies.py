"""Dependencies of the API: ports and a few callables from wiring. Handlers use nothing else of the platform."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Depends, Request

from services.api.credentials import Credentials
from services.api.rate_limits import RateLimits
from services.control.forgetting import Forgotten
from services.gateway import Gateway
from services.monitor.earnings import EarningPoint, VersionEarning
from services.monitor.empty_answers import EmptyAnswersLook
from services.monitor.kpi_history import LifeQuery, RecentKpis, VersionHistories
from shared.contracts.online import OnlineView
from shared.contracts.sources import Place
from shared.contracts.spec import RecommenderSpec
from shared.domain.drift.reading import DriftLook
from shared.domain.entity_ids import IdHash
from shared.domain.feature_values import StoredRow
from shared.domain.queue import AdmissionDecision
from shared.domain.retention import Sweep
from shared.domain.stage_reuse import RunForecast
from shared.domain.triggers import RetrainerObservation
from shared.domain.warm_or_full import TrainingHistory
from shared.ports import (
    ArtifactStore,
    AuditLog,
    Catalogue,
    Clock,
    EventDays,
    Executor,
    FeatureStore,
    ModelServer,
    Recommender,
    RecommenderStore,
    Registry,
    RetrainerStore,
    RolloutStore,
    RouteStore,
    RunRecord,
    RunStore,
    SessionStore,
    StoredResponses,
    TokenStore,
)


@dataclass(frozen=True)
class AuthConfig:
    """What every process needs that answers requests: authentication and readiness."""

    clock: Clock
    credentials: Credentials
    sessions: SessionStore
    answers: StoredResponses
    """Stored answers to requests that may be repeated."""
    ready: Callable[[], Sequence[str]]
    """Returns what isn't ready yet; empty when all is."""
    limits: RateLimits = field(default_factory=RateLimits)


@dataclass(frozen=True)
class Features:
    """Feature store, and what versions read from it."""

    store: FeatureStore
    write: Callable[[str, str, Sequence[StoredRow]], int]
    """Writes values to a view; returns how many rows are new."""
    views: Callable[[str, int], Sequence[OnlineView]]
    """Views of a version."""
    loaded: Callable[[str, int], bool]
    """Whether everything that the version was published with is in the store."""
    again: Callable[[str], int]
    """Loads all views of a recommender again; returns how many."""
    drop: Callable[[str], None]
    """Removes everything of a deleted recommender."""


@dataclass(frozen=True)
class ControlParts:
    """Dependencies of the control plane's routes."""

    recommenders: RecommenderStore
    runs: RunStore
    rollouts: RolloutStore
    retrainers: RetrainerStore
    registry: Registry
    routes: RouteStore
    catalogue: Catalogue
    features: Features
    executor: Executor
    artifacts: ArtifactStore
    server: ModelServer
    clock: Clock
    ids: IdHash
    days: EventDays
    tokens: TokenStore
    audit: AuditLog
    drift: Callable[[str], DriftLook | None]
    """Newest look at drift; None while there are too few events."""
    liked: Callable[[str], tuple[int, int] | None]
    """Likes since the version serves, and how many the first look needs; None if they are too many to count."""
    kpis: Callable[[str, timedelta], Mapping[int, VersionEarning]]
    """Earnings by version, in the newest window whose attribution has closed."""
    series: Callable[[str, timedelta, timedelta, int], Mapping[int, Sequence[EarningPoint]]]
    """Earnings by version, in a number of windows that end a step apart."""
    empty: Callable[[str], EmptyAnswersLook]
    """Answers of the last minutes, and how many of them are empty."""
    life: Callable[[str, LifeQuery], VersionHistories]
    """Earnings of each version over a time, in stretches."""
    lately: Callable[[Sequence[Recommender], int, timedelta], Mapping[str, RecentKpis]]
    """Recent earnings of each serving version, in about this number of periods."""
    collect: Callable[[bool], Sweep]
    """Collects garbage; if true, only returns what would go."""
    turns: Callable[[], Mapping[str, AdmissionDecision]]
    """By unfinished run: whether it may work, else what it waits for."""
    plan: Callable[[RunRecord], RunForecast]
    """Forecast of a run that is in no store."""
    watch: Callable[[str], RetrainerObservation]
    """Current input of a recommender's triggers."""
    past: Callable[[Recommender], TrainingHistory]
    """Facts by which `auto` would choose now."""
    forget: Callable[[str, int], Forgotten]
    """Forgets a user of a recommender, by its key."""
    keyed_hash: Callable[[str], str]
    """Keyed hash of an id, for the audit log."""
    stage_faults: Callable[[RecommenderSpec], Mapping[str, str]]
    """Fields of a spec that no stage here can satisfy (an image, a library or a GPU is missing), with the reason and what to do."""
    check_place: Callable[[Place], None]
    """Rejects a source of data that no stage would read."""
    read_file: Callable[[str, int], bytes]
    """Reads a file under the operator's data roots, by its URI. Rejects a file of more bytes than the number."""
    place_fault: Callable[[Place], str | None]
    """Why a source can't be read now; None if it can."""
    table_header: Callable[[Place], Sequence[str] | None]
    """Columns of a table whose file begins with their names; None for other files, or if they can't be read."""
    table_changed_at: Callable[[Place], datetime | None]
    """When a table's files were changed; None if that is not known."""
    wake: Callable[[], None]
    """Wakes the control loop."""


async def _parts(request: Request) -> ControlParts:
    parts: ControlParts = request.app.state.parts
    return parts


async def _door(request: Request) -> AuthConfig:
    door: AuthConfig = request.app.state.door
    return door


async def _gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


With = Annotated[ControlParts, Depends(_parts)]
AtDoor = Annotated[AuthConfig, Depends(_door)]
Online = Annotated[Gateway, Depends(_gateway)]
