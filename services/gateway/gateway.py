"""Recommendations, from the requests to the logged answers.

Choose each user's version by their hash -> retrieve -> filter -> score -> order -> log the impressions -> answer. Requests that come
together are answered together: what they ask of the same version is one call, what was shown is one write. A user whom the version
doesn't know, or a server that doesn't answer, gets popular items, and the answer says so; nothing falls back in silence. While the
route has a shadow, the candidate is asked as well, beside the answer's way.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime

from services.gateway.asides import Scores, Similar, scores_of, similar_to
from services.gateway.candidates import Wish
from services.gateway.catalogues import Catalogues
from services.gateway.conveyor import Conveyor
from services.gateway.feedback import Feedback, Recorded
from services.gateway.feeding import Feeding
from services.gateway.filtering import Asked
from services.gateway.journal import Journal
from services.gateway.laps import Laps
from services.gateway.loader import Loader
from services.gateway.rules import Rules
from services.gateway.scoring import Scoring, Shown, Told
from services.gateway.shadow import Mirrored, Shadow
from services.gateway.snapshot import Served, Snapshot
from services.gateway.units import Unit
from services.gateway.values import UserValues
from shared.contracts.events import NOTHING_LEFT, Event, Impression
from shared.domain.attributes import Value
from shared.domain.errors import Conflict, EyasError, Overloaded, Unavailable
from shared.domain.ids import new_id
from shared.domain.route import Variant, choose
from shared.domain.traffic import bucket_of
from shared.ports import (
    ArtifactStore,
    Catalogue,
    Clock,
    EventLog,
    FeatureStore,
    Indexes,
    Mirrors,
    RecommenderStore,
    Registry,
    RouteStore,
    Scorer,
)
from shared.telemetry import metrics

_NO_CONTEXT: Mapping[str, Value] = {}


@dataclass(frozen=True)
class Question:
    recommender: str
    user: int
    k: int = 10
    exclude: frozenset[int] = frozenset()
    context: Mapping[str, Value] = field(default_factory=dict)
    items: tuple[int, ...] = ()
    """What the user looked at just now, the newest last: for a version that reads it, and for a user whom the version doesn't know."""
    explain: bool = False
    trial: bool = False
    """Nobody is shown the answer: it is logged and counted nowhere, and nothing is explored."""


@dataclass(frozen=True)
class Answer:
    request_id: str
    recommender: str
    version: int
    variant: Variant
    items: tuple[tuple[int, float | None], ...]
    """Best first; a popular item has no score."""
    fallback: str | None = None
    explained: Explained | None = None


@dataclass(frozen=True)
class Explained:
    """How an answer came about."""

    told: Told
    together: int
    """So many requests were answered at once; the times are of all of them."""
    seconds: Mapping[str, float]


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
    features: FeatureStore | None = None
    """None: versions' own values alone."""


class Gateway:
    def __init__(self, stores: Stores, server: Scorer, clock: Clock, id: str, luck: Callable[[], float] = random.random) -> None:
        self._clock = clock
        self._luck = luck
        self._loader = Loader(stores.routes, stores.registry, stores.artifacts, stores.recommenders, clock, id, stores.indexes)
        self._journal = Journal(stores.events)
        self._feedback = Feedback(stores.recommenders, stores.events, clock)
        self._server = server
        self._values = UserValues(stores.features)
        self._feeding = Feeding(self._values)
        self._scoring = Scoring(server, self._feeding)
        self._shadow = Shadow(
            server, self._feeding, stores.mirrors, f"{id}-{secrets.token_hex(4)}"
        )  # anew for each life: its counts begin anew
        self._catalogues = Catalogues(stores.catalogue, self._loader.units, self._clock)
        self._recommenders = stores.recommenders
        self._routes = stores.routes
        self._conveyor = Conveyor[Question, Answer](self._answered)

    def refresh(self) -> None:
        """To be called about every 100 ms by one thread of the owner's."""
        self._loader.refresh()
        self._catalogues.refresh()
        self._shadow.report(self._clock.now())

    def close(self) -> None:
        """When traffic has ended: what is still to be written is written, if it can be."""
        self._conveyor.close()
        self._shadow.close()
        self._values.close()
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
        """One by itself, on the caller's thread."""
        (found,) = self._answered([Question(name, user, k, frozenset(exclude), context)])
        if isinstance(found, Exception):
            raise found
        return found

    def submit(self, question: Question) -> Future[Answer]:
        """One among those that come at the same time. Overloaded where too many wait."""
        try:
            return self._conveyor.submit(question)
        except Overloaded:
            metrics.REFUSED.inc()
            raise

    def score(self, name: str, user: int, items: Sequence[int]) -> Scores:
        """By the version that the user is given."""
        served = self._served(name, self._loader.snapshot)
        version, variant = choose(served.route, user)
        return scores_of(self._server, self._feeding, self._wish(name, served, user, 1), served.units[version], variant, items)

    def similar(self, name: str, item: int, k: int, exclude: Collection[int] = (), context: Mapping[str, Value] = _NO_CONTEXT) -> Similar:
        """By the stable version, of what may be shown by its spec."""
        served = self._served(name, self._loader.snapshot)
        served.filter.check(context)
        return similar_to(self._wish(name, served, 0, k, exclude, context), served.units[served.route.stable], item)

    def _wish(
        self, name: str, served: Served, user: int, k: int, exclude: Collection[int] = (), context: Mapping[str, Value] = _NO_CONTEXT
    ) -> Wish:
        """Of what isn't an answer: nothing is dropped as seen, and no rule holds."""
        return Wish(
            name, user, k, served.filter, Asked(self._catalogues.of(name), context, frozenset(exclude)), Rules(), at=self._clock.now()
        )

    def _served(self, name: str, snapshot: Snapshot) -> Served:
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
            raise _Unloaded(f"what serves '{name}' can't be loaded: {fault}")
        if name in self._routes.all():
            raise Unavailable(f"this gateway has not read the new route of '{name}' yet: try again in a moment")
        raise Conflict(f"recommender '{name}' serves nothing yet: its first version answers once a run has passed its gates")

    def _answered(self, questions: Sequence[Question]) -> list[Answer | Exception]:
        """In the order of the questions."""
        found: dict[int, Answer | Exception] = {}
        routed: dict[str, list[_Routed]] = {}
        snapshot = self._loader.snapshot  # read once: all of them see the same
        for place, question in enumerate(questions):
            try:
                served = self._served(question.recommender, snapshot)
                served.filter.check(question.context)
            except EyasError as error:
                if isinstance(error, _Unloaded):
                    metrics.REQUESTS.labels(question.recommender, "none", "none", "error").inc()
                found[place] = error
                continue
            routed.setdefault(question.recommender, []).append(_Routed(place, question, served, *choose(served.route, question.user)))
        for name, those in routed.items():
            found |= self._of_recommender(name, those)
        return [found[place] for place in range(len(questions))]

    def _of_recommender(self, name: str, routed: Sequence[_Routed]) -> Mapping[int, Answer | Exception]:
        began = time.perf_counter()
        found: Mapping[int, Answer | Exception]
        try:
            found = self._shown(name, routed)
        except Exception as error:
            found = {one.place: error for one in routed}
        seconds = time.perf_counter() - began
        for one in routed:
            if one.question.trial:
                continue
            answer = found[one.place]
            outcome = "error" if isinstance(answer, Exception) else answer.fallback or "ok"
            metrics.REQUESTS.labels(name, str(one.version), one.variant, outcome).inc()
            metrics.REQUEST_SECONDS.labels(name, one.variant).observe(seconds)
        return found

    def _shown(self, name: str, routed: Sequence[_Routed]) -> Mapping[int, Answer]:
        now, laps = self._clock.now(), Laps()
        served = routed[0].served
        filter, rules = served.filter, served.ordering.at(now)
        seen: Mapping[int, Mapping[int, datetime]] = {}
        if filter.drops_seen:
            patience = filter.serve.deadlines.seen.total_seconds()
            seen = self._journal.seen(name, {one.question.user for one in routed}, filter.since(now), patience)
            laps.lap("seen")
        attributes = self._catalogues.of(name)
        by_unit: dict[int, list[tuple[_Routed, Wish]]] = {}
        for one in routed:
            question = one.question
            dropped = question.exclude | seen[question.user].keys() if question.user in seen else question.exclude
            if one.unit.session is not None:
                dropped = frozenset({*dropped, *question.items})
            asked = Asked(attributes, question.context, dropped)
            luck = self._luck() if rules.explore.rate and not question.trial else 1.0
            wish = Wish(name, question.user, question.k, filter, asked, rules, luck, question.items, question.explain, now)
            by_unit.setdefault(id(one.unit), []).append((one, wish))
        answers: dict[int, Answer] = {}
        impressions: list[Impression] = []
        mirrored: list[Mirrored] = []
        told: dict[int, Told] = {}
        for those in by_unit.values():
            for (one, wish), shown in zip(those, self._scoring.show([wish for _, wish in those], those[0][0].unit, laps), strict=True):
                id_ = new_id("q", now, secrets.randbits(30))
                fallback = shown.fallback if shown.items else NOTHING_LEFT
                answers[one.place] = Answer(id_, name, one.version, one.variant, shown.items, fallback)
                if shown.told is not None:
                    told[one.place] = shown.told
                if one.question.trial:
                    continue
                impressions.append(_impression(answers[one.place], one, shown, now))
                route = one.served.route
                if route.shadow and route.candidate is not None:
                    mirrored.append(Mirrored(wish, route.generation, one.served.units[route.candidate], shown))
        if impressions:
            self._journal.write(*impressions)
        laps.lap("log")
        for pair in mirrored:
            self._shadow.mirror(pair)
        for stage, seconds in laps.seconds.items() if impressions else ():
            metrics.ANSWER_STAGE_SECONDS.labels(name, stage).observe(seconds)
        for place, what in told.items():
            answers[place] = replace(answers[place], explained=Explained(what, len(routed), laps.seconds))
        return answers


class _Unloaded(Unavailable):
    """Of a recommender that has a route: its requests count as not answered."""


@dataclass(frozen=True, eq=False)
class _Routed:
    """A request whose version is chosen."""

    place: int
    question: Question
    served: Served
    version: int
    variant: Variant

    @property
    def unit(self) -> Unit:
        return self.served.units[self.version]


def _impression(answer: Answer, routed: _Routed, shown: Shown, now: datetime) -> Impression:
    route = routed.served.route
    return Impression(
        request_id=answer.request_id,
        recommender=answer.recommender,
        user=routed.question.user,
        version=answer.version,
        variant=answer.variant,
        generation=route.generation,
        step=route.step,
        items=tuple(item for item, _ in shown.items),
        fallback=shown.fallback,
        bucket=None if shown.seconds is None else bucket_of(shown.seconds),
        score=shown.score,
        chances=shown.chances,
        slices=routed.served.slices.of(routed.question.context),
        at=now,
    )
