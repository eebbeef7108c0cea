"""Keeps on the model server what must be there: desired against observed, at every tick.

Desired are the versions that a route names, those of rollouts under way, the previous stable one as long as its spec wants it
kept warm (so that going back needs no loading), and those that left the routes so recently that a request may still be on its way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from shared.contracts.rollouts import Rollout
from shared.domain.errors import Damaged, NotFound, Unavailable, Unreadable
from shared.ports import Clock, ModelServer, RecommenderStore, Registry, RolloutStore, RouteStore, ServedUnit
from shared.telemetry import metrics

log = logging.getLogger(__name__)

GRACE = timedelta(seconds=30)
"""Longer than any request lives."""
_READ_AGAIN = timedelta(seconds=10)
"""After so long a spec is asked again how long a version is kept warm."""
TELL_AGAIN = timedelta(seconds=15)
"""Where control planes take turns, the server is told again so often: one that slept since its turn may have told it what is old."""


def warmth(recommenders: RecommenderStore) -> Callable[[str], timedelta]:
    """What each spec says of how long a version is kept warm; the default for one that can't be read."""

    def of(recommender: str) -> timedelta:
        try:
            return recommenders.get(recommender).spec.rollout.keep_warm
        except (NotFound, Unreadable):
            return Rollout().keep_warm

    return of


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
        self._warm: dict[str, tuple[datetime, timedelta]] = {}
        self._placed: dict[str, frozenset[int]] = {}
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
        for recommender, wanted in self.desired().items():
            if recommender in self._doubted or self._placed.get(recommender) != wanted:
                try:
                    self._place(recommender, wanted)
                except Exception as error:  # said when all others have been placed
                    fault = error
                    away |= isinstance(error, Unavailable)
        self.settled |= not away
        if fault is not None:
            raise fault

    def export(self) -> None:
        """Reads the server's counters: a request to it, so not at every tick."""
        for (recommender, version), count in self._server.successes().items():
            metrics.TRITON_SUCCESSES.labels(recommender, str(version)).set(count)

    def desired(self) -> dict[str, frozenset[int]]:
        # A rollout puts the route before it ends: read in this order, a version that moves from one to the other is missed by neither.
        rollouts = self._rollouts.list(active=True, limit=100_000)
        routes = self._routes.all()
        wanted: dict[str, set[int]] = {name: set() for name in tuple(self._placed)}
        wanted |= {name: set(route.named()) for name, route in routes.items()}
        now = self._clock.now()
        for name in routes:
            wanted[name] |= self._recent(name, now) | self._kept_warm(name, now)
        for name, deleted_at in self._routes.closed().items():  # told to the server once more by whoever comes next
            wanted[name] = self._recent(name, now) if now - deleted_at < GRACE else set()
        for record in rollouts:
            if record.status.state != "pending":
                wanted.setdefault(record.recommender, set()).add(int(record.spec["version"]))
        return {name: frozenset(versions) for name, versions in wanted.items()}

    def _doubt(self) -> None:
        """What was placed in another term, or a while ago, may have been removed since."""
        if self._term_of is None:
            return
        term, now = self._term_of(), self._clock.now()
        if self._told is None or self._told[0] != term or now - self._told[1] >= TELL_AGAIN:
            self._told = term, now
            self._doubted = set(self._placed)

    def _recent(self, recommender: str, now: datetime) -> set[int]:
        return {version for version, left in self._routes.left(recommender).items() if now - left < GRACE}

    def _kept_warm(self, recommender: str, now: datetime) -> set[int]:
        """What would be gone back to, while it is fresh."""
        previous = self._routes.previous(recommender)
        left = None if previous is None else self._routes.left(recommender).get(previous)
        if previous is None or left is None:
            return set()
        asked_at, span = self._warm.get(recommender, (None, timedelta(0)))
        if asked_at is None or now - asked_at >= _READ_AGAIN:
            span = self._keep_warm(recommender)
            self._warm[recommender] = now, span
        return {previous} if now - left < span else set()

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
