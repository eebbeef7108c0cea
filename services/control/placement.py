"""Placement: keeps the needed versions on the model server; compares desired with observed at every tick.

Desired are the versions that a route names, those of active rollouts, the previous stable version while its spec keeps it warm (so that a
rollback needs no loading), and those that left a route so recently that a request may still use them.

A route that is older than that names all that its recommender needs: no further queries until it changes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.contracts.rollouts import Rollout
from shared.domain.errors import Damaged, NotFound, Pending, Unavailable, Unreadable
from shared.domain.route import Route
from shared.ports import Clock, ModelServer, RecommenderStore, Registry, RolloutStore, RouteStore, ServedUnit
from shared.telemetry import metrics

log = logging.getLogger(__name__)

GRACE = timedelta(seconds=30)
"""Longer than any request lasts."""
_READ_AGAIN = timedelta(seconds=10)
"""Interval between reads of the previous version and its `keep_warm`."""
_LOOK = 1.0
"""Seconds between checks for changed specs."""
_NONE: frozenset[int] = frozenset()
TELL_AGAIN = timedelta(seconds=15)
"""With several control planes, placements are sent again at this interval: a stalled control plane may have sent old ones."""


def warmth(recommenders: RecommenderStore) -> Callable[[str], timedelta]:
    """Returns a function that reads `keep_warm` of a spec, once per generation; the default if the spec is unreadable."""
    cache: dict[str, tuple[int, timedelta]] = {}
    heads: Mapping[str, int] = {}
    looked = -_LOOK

    def of(recommender: str) -> timedelta:
        nonlocal heads, looked
        if time.monotonic() - looked >= _LOOK:
            heads, looked = recommenders.heads(), time.monotonic()
        generation, cached = heads.get(recommender, 0), cache.get(recommender)
        if cached is None or cached[0] != generation:
            cached = cache[recommender] = generation, read(recommender)
        return cached[1]

    def read(recommender: str) -> timedelta:
        try:
            return recommenders.get(recommender).spec.rollout.keep_warm
        except (NotFound, Unreadable):
            return Rollout().keep_warm

    return of


@dataclass(frozen=True)
class _FormerRoute:
    """Versions that left a route, under one of its generations."""

    generation: int
    read_at: datetime
    left: Mapping[int, datetime]
    previous: int | None


class Placement:
    def __init__(
        self,
        routes: RouteStore,
        rollouts: RolloutStore,
        registry: Registry,
        server: ModelServer,
        clock: Clock,
        keep_warm: Callable[[str], timedelta],
        term: Callable[[], object] | None = None,
    ) -> None:
        """`keep_warm` reads the recommender's spec. `term` changes when another control plane may have placed versions in between; None:
        there is no other control plane."""
        self._routes = routes
        self._rollouts = rollouts
        self._registry = registry
        self._server = server
        self._clock = clock
        self._keep_warm = keep_warm
        self._term_of = term
        self._past: dict[str, _FormerRoute] = {}
        self._routed: Mapping[str, Route] | None = None
        self._routed_at = clock.now()
        self._of_route: dict[str, frozenset[int]] = {}
        """Versions that each route needs."""
        self._moving: set[str] = set()
        """Recommenders whose needs change with time alone."""
        self._leaving: list[datetime] = []
        """Times at which versions may go that left their routes, or whose recommender was deleted."""
        self._placed: dict[str, frozenset[int]] = {}
        self._pending: dict[str, str] = {}
        """Recommenders with versions that are still loading, and their messages."""
        self._doubted: set[str] = set()
        """Recommenders that another control plane may have changed: they are placed once more."""
        self._reported: tuple[object, datetime] | None = None
        """Term and time of the last full placement."""
        self._faults: dict[tuple[str, int], str] = {}
        self._lock = threading.Lock()
        self.settled = False
        """Whether the server has ever received every desired version that can be loaded."""

    def fault(self, recommender: str, version: int) -> str | None:
        """Returns why a version can't be loaded; None if no load has failed."""
        with self._lock:
            return self._faults.get((recommender, version))

    def tick(self) -> None:
        self._doubt()
        fault: Exception | None = None
        away = False
        pending: dict[str, str] = {}
        for recommender, wanted in self.desired().items():
            if recommender in self._doubted or self._placed.get(recommender) != wanted:
                try:
                    self._place(recommender, wanted)
                except Pending as error:  # meanwhile, place the others
                    pending[recommender] = str(error)
                except Exception as error:  # raised after all others are placed
                    fault = error
                    away |= isinstance(error, Unavailable)
        for recommender in pending.keys() - self._pending.keys():
            log.info("placement: waiting for the model server recommender=%s reason=%s", recommender, pending[recommender])
        self._pending = pending
        self.settled |= not away and not pending
        if fault is not None:
            raise fault

    def due(self) -> float | None:
        """Returns the seconds until a version must be placed or removed without any change; None if none is known."""
        if self._pending:
            return 0.0
        now = self._clock.now()
        return min(((at - now).total_seconds() for at in self._leaving if at > now), default=None)

    def export(self) -> None:
        """Exports the server's counters: sends a request, so not at every tick."""
        for (recommender, version), count in self._server.successes().items():
            metrics.TRITON_SUCCESSES.labels(recommender, str(version)).set(count)

    def desired(self) -> dict[str, frozenset[int]]:
        # A rollout sets its route before it ends: in this order, no version is missed that moves from rollout to route.
        self._leaving = []
        rollouts = self._rollouts.list(active=True, limit=100_000)
        routes = self._routes.all()
        now = self._clock.now()
        wanted = dict.fromkeys(self._placed, _NONE) | self._routes_want(routes, now)
        for name, deleted_at in self._routes.closed().items():  # each new leader sends this once more
            wanted[name] = self._recent(self._routes.left(name), now) if now - deleted_at < GRACE else _NONE
        for record in rollouts:
            if record.status.state != "pending":
                wanted[record.recommender] = wanted.get(record.recommender, _NONE) | {record.spec.version}
        return wanted

    def _routes_want(self, routes: Mapping[str, Route], now: datetime) -> dict[str, frozenset[int]]:
        anew = routes is not self._routed or not timedelta(0) <= now - self._routed_at < _READ_AGAIN
        if anew:
            self._routed, self._routed_at, self._of_route = routes, now, {}
            self._past = {name: past for name, past in self._past.items() if name in routes}
        looked = routes if anew else tuple(self._moving)
        self._moving = set()
        for name in looked:
            route = routes[name]
            warm = self._keep_warm(name)
            if route.since is not None and now - route.since >= max(GRACE, warm):  # no version has left since
                self._of_route[name] = frozenset(route.named())
                continue
            past = self._past_of(name, route, now)
            self._of_route[name] = route.named() | self._recent(past.left, now) | self._kept_warm(past, warm, now)
            self._moving.add(name)
        return self._of_route

    def _doubt(self) -> None:
        """Doubts what was placed in another term, or a while ago: it may have been removed since."""
        if self._term_of is None:
            return
        term, now = self._term_of(), self._clock.now()
        if self._reported is None or self._reported[0] != term or now - self._reported[1] >= TELL_AGAIN:
            self._reported = term, now
            self._doubted = set(self._placed)

    def _past_of(self, recommender: str, route: Route, now: datetime) -> _FormerRoute:
        """Reads past versions again after a while: a previous version may be collected without a change of the route."""
        past = self._past.get(recommender)
        if past is None or past.generation != route.generation or not timedelta(0) <= now - past.read_at < _READ_AGAIN:
            left, previous = self._routes.left(recommender), self._routes.previous(recommender)
            past = self._past[recommender] = _FormerRoute(route.generation, now, left, previous)
        return past

    def _recent(self, left: Mapping[int, datetime], now: datetime) -> frozenset[int]:
        self._leaving += [at + GRACE for at in left.values()]
        return frozenset(version for version, at in left.items() if now - at < GRACE)

    def _kept_warm(self, past: _FormerRoute, span: timedelta, now: datetime) -> frozenset[int]:
        """Returns the previous stable version while it is kept warm."""
        at = None if past.previous is None else past.left.get(past.previous)
        self._leaving += [] if at is None else [at + span]
        return frozenset((past.previous,)) if past.previous is not None and at is not None and now - at < span else _NONE

    def _place(self, recommender: str, wanted: frozenset[int]) -> None:
        units: list[ServedUnit] = []
        faults: dict[int, str] = {}
        for number in sorted(wanted):
            try:
                units.append(ServedUnit(recommender, number, self._registry.get(recommender, number).files))
            except Damaged as error:  # a damaged row must not block the other versions
                faults[number] = str(error)
        faults |= self._server.place(recommender, units)
        with self._lock:
            self._faults = {key: why for key, why in self._faults.items() if key[0] != recommender}
            self._faults |= {(recommender, number): why for number, why in faults.items()}
        self._doubted.discard(recommender)
        if self._placed.get(recommender) == wanted:
            return
        self._placed[recommender] = wanted
        log.info("placement: finished recommender=%s versions=%s", recommender, ",".join(map(str, sorted(wanted - set(faults)))) or "none")
        for number, why in faults.items():
            log.warning("version: loading failed recommender=%s version=%d error=%s", recommender, number, why)
