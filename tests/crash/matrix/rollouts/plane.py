"""A control plane that leads rollouts and places versions. The model server and the numbers of users are the world's.

The mutants of routes are here too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine

from services.control.placement import Placement
from services.control.reconcile import Reconciler
from services.control.rollouts import Rollouts, Sources
from services.store.registry import SqlRegistry
from services.store.routes import SqlRoutes
from shared.contracts.codec import decode
from shared.contracts.records import RolloutSpec
from shared.domain.errors import Stale, Unavailable
from shared.domain.rollout import RolloutStatus, SetRoute
from shared.domain.route import Route
from shared.domain.sequential_test import VariantSample
from shared.domain.traffic import ShadowCounts, Traffic
from shared.ports import HitRate, RolloutRecord, ServedUnit
from tests.crash.matrix.plane import Plane, replica
from tests.crash.matrix.points import AFTER_EFFECT, AFTER_PLACE, BEFORE_PLACE, CALL, SAFEGUARDS, Hasty, Points, Rows
from tests.crash.matrix.wire import Clock, Wire


class Routes(SqlRoutes):
    """The real store of routes, with the points; what comes of each call is told to the world."""

    def __init__(self, engine: Engine, points: Points) -> None:
        super().__init__(engine)
        self._points = points

    def put(self, recommender: str, route: Route, now: datetime, actor: str, reason: str, during: RolloutRecord | None = None) -> Route:
        self._points.reach(CALL)
        try:
            made = self._put(recommender, route, now, actor, reason, during)
        except Stale:
            self._points.wire.send(call="put", came="refused")
            raise
        self._points.wire.send(call="put", came="moved" if made.since == now else "repeated")
        self._points.reach(AFTER_EFFECT)
        return made

    def _put(self, recommender: str, route: Route, *rest: Any) -> Route:
        return super().put(recommender, route, *rest)


class Restless(Routes):
    """A route that is there already is put again."""

    def _put(self, recommender: str, route: Route, *rest: Any) -> Route:
        now = self.get(recommender)
        if now is not None and (now.stable, now.candidate, now.weight) == (route.stable, route.candidate, route.weight):
            super()._put(recommender, replace(route, salt=f"{route.salt} again"), *rest)
        return super()._put(recommender, route, *rest)


class Unguarded(Routes):
    """A rollout that has moved on meanwhile sets its route all the same."""

    def _put(self, recommender: str, route: Route, now: datetime, actor: str, reason: str, during: Any = None) -> Route:
        return super()._put(recommender, route, now, actor, reason, None)


class WorldServer:
    """Implements of ModelServer what the control plane asks for."""

    def __init__(self, points: Points) -> None:
        self._points = points

    def place(self, recommender: str, units: Sequence[ServedUnit]) -> Mapping[int, str]:
        self._points.reach(BEFORE_PLACE)
        faults = self._points.wire.ask(call="place", versions=[unit.number for unit in units])["faults"]
        self._points.reach(AFTER_PLACE)
        return {int(version): why for version, why in faults.items()}

    def answering(self, recommender: str) -> frozenset[int]:
        return frozenset(self._points.wire.ask(call="answering")["versions"])


class WorldCounts:
    """Implements of KpiSource and of Mirrors what the control plane asks for."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def samples(
        self, recommender: str, generation: int, window: timedelta, attribution: timedelta, now: datetime
    ) -> Mapping[str, VariantSample]:
        return {variant: decode(VariantSample, sample) for variant, sample in self._counted("samples", generation).items()}

    def traffic(self, recommender: str, generation: int, now: datetime) -> Mapping[str, Traffic]:
        return {variant: decode(Traffic, one) for variant, one in self._counted("traffic", generation).items()}

    def total(self, recommender: str, generation: int) -> ShadowCounts:
        counts: ShadowCounts = decode(ShadowCounts, self._counted("mirror", generation))
        return counts

    def hit_rate(self, *_: object) -> HitRate:
        return HitRate(0, 0)

    def _counted(self, what: str, generation: int) -> dict[str, Any]:
        found: dict[str, Any] | None = self._wire.ask(call="counted", what=what, generation=generation)["found"]
        if found is None:
            raise Unavailable("the database of events doesn't answer")
        return found


def build(engine: Engine, clock: Clock, points: Points, mutant: str, claims: bool) -> Plane:
    """With claims: while it holds the lease of those that place versions, as one of several; without, always."""
    rows = SAFEGUARDS.get(mutant, Rows)(engine, points, "rollout", RolloutStatus, RolloutSpec)
    routes = {"repeat": Restless, "guard": Unguarded, "swap": Unguarded}.get(mutant, Routes)(engine, points)
    server: Any = WorldServer(points)
    counts: Any = WorldCounts(points.wire)
    ours = replica(engine, clock) if claims else None
    term: Callable[[], object] = functools.partial(ours.term, "serving") if ours else lambda: 0
    registry = SqlRegistry(engine)
    placement = Placement(routes, rows, registry, server, clock, lambda _: timedelta(hours=1), term)
    rollouts = Rollouts(rows, routes, registry, server, Sources(counts, counts), placement, clock)
    if isinstance(rows, Hasty):
        rows.act, rows.effect_type = rollouts.act, SetRoute
    reconciler = Reconciler(rollouts, clock)
    written = 0

    def lead() -> None:
        nonlocal written
        written = reconciler.tick()

    steps: list[Callable[[], object]] = [lead, placement.tick]
    if ours is not None:
        steps = [ours.single("serving", step) for step in steps]

    def tick() -> int:
        nonlocal written
        written = 0
        for step in steps:
            step()
        return written

    return Plane(rows, tick, ours)
