"""Keeps on the model server what must be there: desired against observed, at every tick.

Desired are the versions that a route names, those of rollouts under way, the previous stable one as long as its spec wants it
kept warm (so that going back needs no loading), and those that left the routes so recently that a request may still be on its way.

A route that has stood for longer than that names all that is desired of its recommender: nothing is asked about it until it changes.
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
"""Longer than any request lives."""
_READ_AGAIN = timedelta(seconds=10)
"""After so long it is asked again how long a version is kept warm, and which one."""
_LOOK = 1.0
"""Seconds between looks for specs that have changed."""
_NONE: frozenset[int] = frozenset()
TELL_AGAIN = timedelta(seconds=15)
"""Where control planes take turns, the server is told again so often: one that slept since its turn may have told it what is old."""


def warmth(recommenders: RecommenderStore) -> Callable[[str], timedelta]:
    """What each spec says of how long a version is kept warm; the default for one that can't be read. A spec is read once."""
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
class _Past:
    """What a route was, under one generation of it."""

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
        """`keep_warm` is what the spec of a recommender says; `term` tells one time of leading from another: between two of them
        somebody else may have placed. None: nobody else ever does."""
        self._routes = routes
        self._rollouts = rollouts
        self._registry = registry
        self._server = server
        self._clock = clock
        self._keep_warm = keep_warm
        self._term_of = term
        self._past: dict[str, _Past] = {}
        self._routed: Mapping[str, Route] | None = None
        self._routed_at = clock.now()
        self._of_route: dict[str, frozenset[int]] = {}
        """What each route asks for."""
        self._moving: set[str] = set()
        """Of whom that changes by itself, as time goes by."""
        self._leaving: list[datetime] = []
        """When versions may go that have left their routes, or whose recommender was deleted."""
        self._placed: dict[str, frozenset[int]] = {}
        self._pending: dict[str, str] = {}
        """Of whom versions are still being loaded, and which."""
        self._doubted: set[str] = set()
        """What may have been changed by another since: it is told once more."""
        self._told: tuple[object, datetime] | None = None
        """In which term all was told last, and when."""
        self._faults: dict[tuple[str, int], str] = {}
        self._lock = threading.Lock()
        self.settled = False
        """Whether the server was ever given all that it should have, as far as that can be had."""

    def fault(self, recommender: str, version: int) -> str | None:
        """Why a version can't be loaded, if it was tried and can't."""
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
                except Pending as error:  # the others are placed meanwhile
                    pending[recommender] = str(error)
                except Exception as error:  # said when all others have been placed
                    fault = error
                    away |= isinstance(error, Unavailable)
        for recommender in pending.keys() - self._pending.keys():
            log.info("placing: waiting for the model server: %s", pending[recommender])
        self._pending = pending
        self.settled |= not away and not pending
        if fault is not None:
            raise fault

    def due(self) -> float | None:
        """In how many seconds something is to be placed or removed although nothing has changed; None if nothing is known to be."""
        if self._pending:
            return 0.0
        now = self._clock.now()
        return min(((at - now).total_seconds() for at in self._leaving if at > now), default=None)

    def export(self) -> None:
        """Reads the server's counters: a request to it, so not at every tick."""
        for (recommender, version), count in self._server.successes().items():
            metrics.TRITON_SUCCESSES.labels(recommender, str(version)).set(count)

    def desired(self) -> dict[str, frozenset[int]]:
        # A rollout puts the route before it ends: read in this order, a version that moves from one to the other is missed by neither.
        self._leaving = []
        rollouts = self._rollouts.list(active=True, limit=100_000)
        routes = self._routes.all()
        now = self._clock.now()
        wanted = dict.fromkeys(self._placed, _NONE) | self._routes_want(routes, now)
        for name, deleted_at in self._routes.closed().items():  # told to the server once more by whoever comes next
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
            if route.since is not None and now - route.since >= max(GRACE, warm):  # nothing has left since
                self._of_route[name] = frozenset(route.named())
                continue
            past = self._past_of(name, route, now)
            self._of_route[name] = route.named() | self._recent(past.left, now) | self._kept_warm(past, warm, now)
            self._moving.add(name)
        return self._of_route

    def _doubt(self) -> None:
        """What was placed in another term, or a while ago, may have been removed since."""
        if self._term_of is None:
            return
        term, now = self._term_of(), self._clock.now()
        if self._told is None or self._told[0] != term or now - self._told[1] >= TELL_AGAIN:
            self._told = term, now
            self._doubted = set(self._placed)

    def _past_of(self, recommender: str, route: Route, now: datetime) -> _Past:
        """A version that is gone back to may be collected, which is no change of the route."""
        past = self._past.get(recommender)
        if past is None or past.generation != route.generation or not timedelta(0) <= now - past.read_at < _READ_AGAIN:
            left, previous = self._routes.left(recommender), self._routes.previous(recommender)
            past = self._past[recommender] = _Past(route.generation, now, left, previous)
        return past

    def _recent(self, left: Mapping[int, datetime], now: datetime) -> frozenset[int]:
        self._leaving += [at + GRACE for at in left.values()]
        return frozenset(version for version, at in left.items() if now - at < GRACE)

    def _kept_warm(self, past: _Past, span: timedelta, now: datetime) -> frozenset[int]:
        """What would be gone back to, while it is fresh."""
        at = None if past.previous is None else past.left.get(past.previous)
        self._leaving += [] if at is None else [at + span]
        return frozenset((past.previous,)) if past.previous is not None and at is not None and now - at < span else _NONE

    def _place(self, recommender: str, wanted: frozenset[int]) -> None:
        units: list[ServedUnit] = []
        faults: dict[int, str] = {}
        for number in sorted(wanted):
            try:
                units.append(ServedUnit(recommender, number, self._registry.get(recommender, number).files))
            except Damaged as error:  # one whose row was tampered with keeps no other down
                faults[number] = str(error)
        faults |= self._server.place(recommender, units)
        with self._lock:
            self._faults = {key: why for key, why in self._faults.items() if key[0] != recommender}
            self._faults |= {(recommender, number): why for number, why in faults.items()}
        self._doubted.discard(recommender)
        if self._placed.get(recommender) == wanted:
            return
        self._placed[recommender] = wanted
        log.info("placed %s: versions %s", recommender, ", ".join(map(str, sorted(wanted - set(faults)))) or "none")
        for number, why in faults.items():
            log.warning("%s version %d can't be loaded: %s", recommender, number, why)
