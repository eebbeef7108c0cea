"""One recommendation, from the request to the logged answer.

Choose the version by the user's hash -> score the catalogue -> filter -> order -> log the impression -> answer. A user whom the
version doesn't know, or a server that doesn't answer, gets popular items, and the answer says so; nothing falls back in silence.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from services.gateway.feedback import Feedback, Recorded
from services.gateway.loader import Loader
from services.gateway.ranking import best
from services.gateway.snapshot import Served
from services.gateway.units import Unit
from shared.contracts.events import NO_SCORES, UNKNOWN_USER, Impression, Interaction
from shared.domain.errors import Unavailable
from shared.domain.ids import new_id
from shared.domain.route import Variant, choose
from shared.ports import ArtifactStore, Clock, EventLog, RecommenderStore, Registry, RouteStore, Scorer
from shared.telemetry import metrics

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    request_id: str
    recommender: str
    version: int
    variant: Variant
    items: tuple[tuple[int, float | None], ...]
    """Best first; a popular item has no score."""
    fallback: str | None = None


class Gateway:
    def __init__(
        self,
        routes: RouteStore,
        registry: Registry,
        artifacts: ArtifactStore,
        server: Scorer,
        events: EventLog,
        recommenders: RecommenderStore,
        clock: Clock,
        id: str,
    ) -> None:
        self._loader = Loader(routes, registry, artifacts, recommenders, clock, id)
        self._feedback = Feedback(recommenders, events, clock)
        self._server = server
        self._events = events
        self._recommenders = recommenders
        self._clock = clock
        self._unscored: set[tuple[str, int]] = set()

    def refresh(self) -> None:
        """To be called about every 100 ms by one thread of the owner's."""
        self._loader.refresh()

    @property
    def ready(self) -> bool:
        """Whether the routes were ever read: before that, no traffic."""
        return self._loader.snapshot.read_at is not None

    def record(self, interactions: Sequence[Interaction], sees: Callable[[str], bool] = lambda _: True) -> Recorded:
        """A recommender that the sender doesn't see isn't there for it."""
        return self._feedback.record(interactions, sees)

    def recommend(self, name: str, user: int, k: int = 10, exclude: Collection[int] = ()) -> Answer:
        served = self._served(name)
        version, variant = choose(served.route, user)
        began = time.perf_counter()
        outcome = "error"
        try:
            answer = self._answer(name, served, version, variant, user, k, exclude)
            outcome = answer.fallback or "ok"
            return answer
        finally:
            metrics.REQUESTS.labels(name, str(version), variant, outcome).inc()
            metrics.REQUEST_SECONDS.labels(name, variant).observe(time.perf_counter() - began)

    def _served(self, name: str) -> Served:
        snapshot = self._loader.snapshot
        served = snapshot.served.get(name)
        if served is not None:
            return served
        if snapshot.read_at is None:
            raise Unavailable("this gateway has not read its routes yet: try again in a moment")
        self._recommenders.get(name)  # NotFound, if there is none of that name
        fault = self._loader.fault(name)
        if fault is not None:
            raise Unavailable(f"what serves '{name}' can't be loaded: {fault}")
        raise Unavailable(f"recommender '{name}' serves nothing yet: its first version answers once a run has passed its gates")

    def _answer(self, name: str, served: Served, version: int, variant: Variant, user: int, k: int, exclude: Collection[int]) -> Answer:
        unit = served.units[version]
        dropped = frozenset(exclude)
        if served.drops_seen:
            dropped |= self._events.liked(name, user)
        items, fallback = self._items(name, unit, user, k, dropped)
        now = self._clock.now()
        answer = Answer(new_id("q", now, secrets.randbits(30)), name, version, variant, items, fallback)
        impression = Impression(
            request_id=answer.request_id,
            recommender=name,
            user=user,
            version=version,
            variant=variant,
            generation=served.route.generation,
            step=served.route.step,
            items=tuple(item for item, _ in items),
            fallback=fallback,
            at=now,
        )
        self._events.impressions([impression])
        return answer

    def _items(
        self, name: str, unit: Unit, user: int, k: int, dropped: frozenset[int]
    ) -> tuple[tuple[tuple[int, float | None], ...], str | None]:
        if not unit.knows(user):
            return _popular(unit, k, dropped), UNKNOWN_USER
        key = (name, unit.version)
        try:
            scored = self._scored(name, unit, user, k, dropped)
        except Unavailable as error:
            if key not in self._unscored:  # said once, counted each time
                self._unscored.add(key)
                log.warning("%s version %d: %s; popular items go out instead", name, unit.version, error)
            return _popular(unit, k, dropped), NO_SCORES
        if key in self._unscored:
            self._unscored.discard(key)
            log.info("%s version %d: scores again", name, unit.version)
        return scored, None

    def _scored(self, name: str, unit: Unit, user: int, k: int, dropped: frozenset[int]) -> tuple[tuple[int, float | None], ...]:
        scores = np.asarray(self._server.score(name, unit.version, unit.feed(user)))
        if scores.shape != unit.items.shape:
            raise Unavailable(f"the server gave scores of shape {scores.shape} for {len(unit.items)} items")
        if not np.isfinite(scores).all():
            raise Unavailable("the server gave scores that are no numbers")
        kept = np.ones(len(scores), dtype=bool)
        kept[unit.rows(dropped)] = False
        rows = np.flatnonzero(kept)
        chosen = rows[best(scores[rows], unit.items[rows], k)]
        return tuple(zip(unit.items[chosen].tolist(), scores[chosen].tolist(), strict=True))


def _popular(unit: Unit, k: int, dropped: frozenset[int]) -> tuple[tuple[int, float | None], ...]:
    found: list[tuple[int, float | None]] = []
    for item in unit.popular.tolist():
        if len(found) == k:
            break
        if item not in dropped:
            found.append((item, None))
    return tuple(found)
