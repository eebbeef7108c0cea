"""One recommendation, from the request to the logged answer.

Choose the version by the user's hash -> filter -> score the catalogue -> order -> log the impression -> answer. A user whom the
version doesn't know, or a server that doesn't answer, gets popular items, and the answer says so; nothing falls back in silence.
While the route has a shadow, the candidate is asked as well, beside the answer's way.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from services.gateway.catalogues import Catalogues
from services.gateway.feedback import Feedback, Recorded
from services.gateway.filtering import Asked
from services.gateway.journal import Journal
from services.gateway.loader import Loader
from services.gateway.scoring import Scoring, Wish
from services.gateway.shadow import Mirrored, Shadow
from services.gateway.snapshot import Served
from shared.contracts.events import NOTHING_LEFT, Event, Impression
from shared.domain.attributes import Value
from shared.domain.errors import Unavailable
from shared.domain.ids import new_id
from shared.domain.route import Variant, choose
from shared.domain.traffic import bucket_of
from shared.ports import ArtifactStore, Catalogue, Clock, EventLog, Indexes, Mirrors, RecommenderStore, Registry, RouteStore, Scorer
from shared.telemetry import metrics

_NO_CONTEXT: Mapping[str, Value] = {}


@dataclass(frozen=True)
class Answer:
    request_id: str
    recommender: str
    version: int
    variant: Variant
    items: tuple[tuple[int, float | None], ...]
    """Best first; a popular item has no score."""
    fallback: str | None = None


@dataclass(frozen=True, eq=False)
class Stores:
    """What a gateway reads its routes and versions from, and what it writes to."""

    routes: RouteStore
    registry: Registry
    artifacts: ArtifactStore
    recommenders: RecommenderStore
    events: EventLog
    mirrors: Mirrors
    catalogue: Catalogue
    indexes: Indexes


class Gateway:
    def __init__(self, stores: Stores, server: Scorer, clock: Clock, id: str) -> None:
        self._clock = clock
        self._loader = Loader(stores.routes, stores.registry, stores.artifacts, stores.recommenders, clock, id, stores.indexes)
        self._journal = Journal(stores.events)
        self._feedback = Feedback(stores.recommenders, stores.events, clock)
        self._scoring = Scoring(server)
        self._shadow = Shadow(server, stores.mirrors, f"{id}-{secrets.token_hex(4)}")  # anew for each life: its counts begin anew
        self._catalogues = Catalogues(stores.catalogue, self._loader.units, self._clock)
        self._recommenders = stores.recommenders

    def refresh(self) -> None:
        """To be called about every 100 ms by one thread of the owner's."""
        self._loader.refresh()
        self._catalogues.refresh()
        self._shadow.report(self._clock.now())

    def close(self) -> None:
        """When traffic has ended: what is still to be written is written, if it can be."""
        self._shadow.close()
        self._journal.close()

    @property
    def ready(self) -> bool:
        """Whether the routes and the catalogues were ever read: before that, no traffic."""
        return self._loader.snapshot.read_at is not None and self._catalogues.read_at is not None

    @property
    def versions(self) -> Sequence[tuple[str, int]]:
        """Every version that it may ask for by its routes."""
        return [(name, number) for name, one in self._loader.snapshot.served.items() for number in one.units]

    def record(self, events: Sequence[Event], sees: Callable[[str], bool] = lambda _: True, partial: bool = False) -> Recorded:
        """A recommender that the sender doesn't see isn't there for it. `partial`: bad events don't keep out the good ones."""
        return self._feedback.record(events, sees, partial)

    def recommend(
        self, name: str, user: int, k: int = 10, exclude: Collection[int] = (), context: Mapping[str, Value] = _NO_CONTEXT
    ) -> Answer:
        served = self._served(name)
        version, variant = choose(served.route, user)
        began = time.perf_counter()
        outcome = "error"
        try:
            answer = self._answer(name, served, version, variant, user, k, exclude, context)
            outcome = answer.fallback or "ok"
            return answer
        finally:
            metrics.REQUESTS.labels(name, str(version), variant, outcome).inc()
            metrics.REQUEST_SECONDS.labels(name, variant).observe(time.perf_counter() - began)

    def _served(self, name: str) -> Served:
        snapshot = self._loader.snapshot
        served = snapshot.served.get(name)
        if snapshot.read_at is None:
            raise Unavailable("this gateway has not read its routes yet: try again in a moment")
        if self._catalogues.read_at is None:
            raise Unavailable("this gateway has not read the catalogues yet: try again in a moment")
        if served is not None:
            return served
        self._recommenders.get(name)  # NotFound, if there is none of that name
        fault = self._loader.fault(name)
        if fault is not None:
            raise Unavailable(f"what serves '{name}' can't be loaded: {fault}")
        raise Unavailable(f"recommender '{name}' serves nothing yet: its first version answers once a run has passed its gates")

    def _answer(
        self,
        name: str,
        served: Served,
        version: int,
        variant: Variant,
        user: int,
        k: int,
        exclude: Collection[int],
        context: Mapping[str, Value],
    ) -> Answer:
        dropped = frozenset(exclude)
        if served.filter.drops_seen:
            dropped |= self._journal.seen(name, user, served.filter.since(self._clock.now())).keys()
        wish = Wish(name, user, k, served.filter, Asked(self._catalogues.of(name), context, dropped))
        shown = self._scoring.show(wish, served.units[version])
        route, now = served.route, self._clock.now()
        fallback = shown.fallback if shown.items else NOTHING_LEFT
        answer = Answer(new_id("q", now, secrets.randbits(30)), name, version, variant, shown.items, fallback)
        impression = Impression(
            request_id=answer.request_id,
            recommender=name,
            user=user,
            version=version,
            variant=variant,
            generation=route.generation,
            step=route.step,
            items=tuple(item for item, _ in shown.items),
            fallback=shown.fallback,
            bucket=None if shown.seconds is None else bucket_of(shown.seconds),
            score=shown.score,
            at=now,
        )
        self._journal.write(impression)
        if route.shadow and route.candidate is not None:
            self._shadow.mirror(Mirrored(wish, route.generation, served.units[route.candidate], shown))
        return answer
