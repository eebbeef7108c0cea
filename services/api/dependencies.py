"""What the API is made of: ports and a few callables, handed over by wiring. Handlers see nothing else of the platform."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated

from fastapi import Depends, Request

from services.api.rate_limits import RateLimits
from services.gateway import Gateway
from services.monitor.earnings import Point, VersionEarning
from services.monitor.kpi_history import Lately, Life, LifeQuery
from shared.contracts.online import OnlineView
from shared.contracts.sources import Place
from shared.contracts.spec import RecommenderSpec
from shared.domain.drift.reading import Look
from shared.domain.queue import Turn
from shared.domain.retention import Sweep
from shared.domain.stage_reuse import RunForecast
from shared.domain.triggers import RetrainerObservation
from shared.domain.warm_or_full import Past
from shared.ports import (
    Answers,
    ArtifactStore,
    AuditLog,
    Catalogue,
    Clock,
    Executor,
    FeatureHistory,
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
    TokenStore,
)


@dataclass(frozen=True)
class AuthConfig:
    """What every process has that answers requests: who may come in, and whether it can do its work."""

    clock: Clock
    token: str
    """The one that the platform starts with: an admin's, in no table."""
    tokens: TokenStore
    answers: Answers
    """To requests that may be sent again."""
    ready: Callable[[], Sequence[str]]
    """What isn't ready yet; empty when all is."""
    limits: RateLimits = field(default_factory=RateLimits)


@dataclass(frozen=True)
class Features:
    """The feature store, and what versions read of it."""

    store: FeatureStore
    history: FeatureHistory
    views: Callable[[str, int], Sequence[OnlineView]]
    """Of a version."""
    loaded: Callable[[str, int], bool]
    """Whether all that the version was published with is in the store."""
    again: Callable[[str], int]
    """Loads all of a recommender's anew; returns of how many views."""
    drop: Callable[[str], None]
    """All that was held or written of a recommender that was deleted."""


@dataclass(frozen=True)
class Parts:
    """The control plane's."""

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
    tokens: TokenStore
    audit: AuditLog
    drift: Callable[[str], Look | None]
    """The newest look at what users like; None while there are too few events."""
    liked: Callable[[str], tuple[int, int] | None]
    """How many likes have come since the version serves, and how many the first look takes; None where they are too many to count."""
    kpis: Callable[[str, timedelta], Mapping[int, VersionEarning]]
    """By version, what its answers earned in the newest closed stretch of time."""
    series: Callable[[str, timedelta, timedelta, int], Mapping[int, Sequence[Point]]]
    """By version, the same in windows of a width that end a step apart; so many of them."""
    life: Callable[[str, LifeQuery], Life]
    """What each version earned over a time, in stretches of it."""
    lately: Callable[[Sequence[Recommender], int, timedelta], Mapping[str, Lately]]
    """What serves of each, and earned in the last such time, in about so many stretches."""
    collect: Callable[[bool], Sweep]
    """Collects garbage; or, if true, only says what would go."""
    turns: Callable[[], Mapping[str, Turn]]
    """By unfinished run: whether it may work, and else for what it waits."""
    plan: Callable[[RunRecord], RunForecast]
    """What a run that is in no store yet would do."""
    watch: Callable[[str], RetrainerObservation]
    """What the triggers of a recommender look at, as it is now."""
    past: Callable[[Recommender], Past]
    """What `auto` would choose by now."""
    stage_faults: Callable[[RecommenderSpec], Mapping[str, str]]
    """The fields of a spec that no stage here can satisfy: an image, a library or a GPU is missing. Each has the reason and what to do."""
    check_place: Callable[[Place], None]
    """Refuses a source of data that no stage would read."""
    read_file: Callable[[str, int], bytes]
    """The content of one file under the operator's data roots, by its URI. A file of more bytes than the number is refused."""
    place_fault: Callable[[Place], str | None]
    """Why there is nothing to read there just now; None if there is."""
    wake: Callable[[], None]
    """Tells the control loop that there is something to do."""


async def _parts(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


async def _door(request: Request) -> AuthConfig:
    door: AuthConfig = request.app.state.door
    return door


async def _gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


With = Annotated[Parts, Depends(_parts)]
AtDoor = Annotated[AuthConfig, Depends(_door)]
Online = Annotated[Gateway, Depends(_gateway)]
