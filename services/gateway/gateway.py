"""The gateway: answers recommend requests and logs the impressions.

Per request: choose the user's version by their hash -> queue of that version -> retrieve -> filter -> score -> order -> log the impression
-> answer. Requests that wait for the same version are answered together: one call for scores, one write of impressions. Without scores an
answer has items similar to the session, retrieved candidates or popular items, and names the fallback. While the route has a shadow, the
candidate version answers the same requests afterwards, unseen.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime

from services.gateway.attributes import Attributes
from services.gateway.batcher import Batcher
from services.gateway.candidates import RankingRequest
from services.gateway.catalogues import Catalogues
from services.gateway.event_intake import EventIntake, IntakeResult
from services.gateway.filtering import FilterInput
from services.gateway.impression_writer import ImpressionWriter
from services.gateway.liked_items import NOTHING, read_likes
from services.gateway.loaded_version import LoadedVersion
from services.gateway.loader import Loader
from services.gateway.model_inputs import ModelInputs
from services.gateway.new_items import CatalogueView, CatalogueViews
from services.gateway.rules import Rules
from services.gateway.score_and_similar import Scores, Similar, scores_of, similar_to
from services.gateway.scoring import AnswerExplanation, RankedRequests, Scoring, ShownItems
from services.gateway.shadow import MirroredBatch, Shadow
from services.gateway.snapshot import ServedRecommender, Snapshot
from services.gateway.stage_timer import StageTimer
from services.gateway.user_features import UserFeatures
from shared.contracts.events import ANSWERED_BY_VERSION, FAILED, NOTHING_LEFT, OVERLOADED, SERVER_AWAY, Event, Impression
from shared.domain.attributes import Value
from shared.domain.entity_ids import UNFIXED, Id, IdHash, IdReader
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
    RecommenderStore,
    Registry,
    RouteStore,
    Scorer,
    ShadowTotals,
)
from shared.telemetry import metrics

_NO_CONTEXT: Mapping[str, Value] = {}


@dataclass(frozen=True)
class Question:
    """A recommend request, with keys in place of ids."""

    recommender: str
    user: int
    k: int = 10
    exclude: frozenset[int] = frozenset()
    context: Mapping[str, Value] = field(default_factory=dict)
    items: tuple[int, ...] = ()
    """Items that the user just viewed, newest last: for a version that reads newest items, and for a user unknown to the version."""
    explain: bool = False
    trial: bool = False
    """True: nobody sees the answer, so it is not logged, not counted and not explored."""
    id: str = ""
    """Id of the answer; a new one if empty."""


@dataclass(frozen=True)
class Answer:
    request_id: str
    recommender: str
    version: int
    variant: Variant
    items: tuple[tuple[Id, float | None], ...]
    """Ids and scores, best first; a popular item has no score."""
    fallback: str | None = None
    explained: Explained | None = None


@dataclass(frozen=True)
class Explained:
    """How the gateway made an answer."""

    explanation: AnswerExplanation
    together: int
    """Number of requests that were answered together; `seconds` covers all of them."""
    seconds: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Stores:
    """The stores that a gateway reads and writes."""

    routes: RouteStore
    registry: Registry
    artifacts: ArtifactStore
    recommenders: RecommenderStore
    events: EventLog
    mirrors: ShadowTotals
    catalogue: Catalogue
    indexes: Indexes
    ids: IdHash
    features: FeatureStore | None = None
    """None: only the versions' own values are used."""


class Gateway:
    def __init__(self, stores: Stores, server: Scorer, clock: Clock, id: str, luck: Callable[[], float] = random.random) -> None:
        self._clock = clock
        self._luck = luck
        self._ids = stores.ids
        self._loader = Loader(stores.routes, stores.registry, stores.artifacts, stores.recommenders, clock, id, stores.indexes, stores.ids)
        self._journal = ImpressionWriter(stores.events)
        self._feedback = EventIntake(stores.recommenders, stores.events, clock, stores.ids, self._loader.units)
        self._server = server
        self._values = UserFeatures(stores.features)
        self._feeding = ModelInputs(self._values)
        self._scoring = Scoring(server, self._feeding)
        # A new id at each start: the counts start at zero.
        self._shadow = Shadow(server, self._feeding, stores.mirrors, f"{id}-{secrets.token_hex(4)}")
        self._views = CatalogueViews()
        self._viewed = self._loader.snapshot
        """The snapshot whose versions the views of the catalogues have."""
        self._catalogues = Catalogues(stores.catalogue, self._view, self._clock)
        self._recommenders = stores.recommenders
        self._routes = stores.routes
        self._batcher = Batcher[tuple[str, int] | None, _Routed | Question | _ScoresQuestion](self._work)

    def refresh(self) -> None:
        """Reads routes and catalogues. One thread of the owner calls it about every 100 ms, or after a change; `beat` equally often."""
        self._loader.refresh()
        self._catalogues.refresh()
        snapshot = self._loader.snapshot
        if snapshot is not self._viewed:
            self._catalogues.renew()
            self._viewed = snapshot
        self._batcher.keep({(name, number) for name, number in self.versions})
        self._shadow.report(self._clock.now())

    def _view(self, name: str, attributes: Attributes, former: CatalogueView) -> CatalogueView:
        served = self._loader.snapshot.served.get(name)
        units = list(served.units.values()) if served else []
        return self._views.view(name, units, attributes, served is not None and served.filter.serve.new_items, former)

    def beat(self) -> None:
        """Reports the heartbeat and the shadow's totals between two passes."""
        self._loader.beat()
        self._shadow.report(self._clock.now())

    def due(self) -> float | None:
        """Seconds until a pass has work although nothing has changed; None if never."""
        return min((due for due in (self._loader.due(), self._catalogues.due()) if due is not None), default=None)

    def close(self) -> None:
        """Writes what is still waiting, if possible. To be called after the last request."""
        self._batcher.close()
        self._shadow.close()
        self._values.close()
        self._journal.close()

    @property
    def ready(self) -> bool:
        """Whether the routes and the catalogues have been read once; before that the gateway takes no traffic."""
        return self._loader.snapshot.read_at is not None and self._catalogues.read_at is not None

    @property
    def versions(self) -> Sequence[tuple[str, int]]:
        """All versions that the routes name."""
        return [(name, number) for name, served in self._loader.snapshot.served.items() for number in served.units]

    def ids(self, name: str) -> IdReader:
        """Returns the reader of a recommender's ids; the one of an unserved recommender takes ids of both kinds."""
        served = self._loader.snapshot.served.get(name)
        return IdReader(served.ids if served else UNFIXED, self._ids)

    def record(self, events: Sequence[Event], sees: Callable[[str], bool] = lambda _: True, partial: bool = False) -> IntakeResult:
        """Records events. Recommenders that the sender may not see count as unknown. `partial`: accepts the good events of a bad batch."""
        return self._feedback.record(events, sees, partial)

    def recommend(
        self, name: str, user: int, k: int = 10, exclude: Collection[int] = (), context: Mapping[str, Value] = _NO_CONTEXT
    ) -> Answer:
        """Answers one request on the caller's thread."""
        (answer,) = self._answered([Question(name, user, k, frozenset(exclude), context)])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def submit(self, question: Question) -> Future[Answer]:
        """Queues a request, to be answered together with others of the same version. Raises Overloaded if too many wait."""
        routed = self._route(question)
        if routed is None:
            return self._batcher.submit(None, question)
        try:
            return self._batcher.submit(routed.key, routed)
        except Overloaded:
            metrics.REFUSED.inc()
            self._refused([routed], OVERLOADED)
            raise

    def submit_scores(self, name: str, user: int, items: Sequence[int]) -> Future[Scores]:
        """Queues a request for scores of the user's version, behind that version's other requests."""
        question = _ScoresQuestion(name, user, items)
        served = self._loader.snapshot.served.get(name)
        return self._batcher.submit(None if served is None else (name, choose(served.route, user)[0]), question)

    def score(self, name: str, user: int, items: Sequence[int]) -> Scores:
        """Scores the items with the user's version, on the caller's thread."""
        served = self._served(name, self._loader.snapshot)
        version, variant = choose(served.route, user)
        view = self._catalogues.of(name)
        request = self._request(name, served, user, 1, FilterInput(view.attributes, _NO_CONTEXT, frozenset()))
        unit = view.unit(served.units[version])
        liked = read_likes(self._journal, name, served, [user], request.at, [unit]).get(user, NOTHING)
        return scores_of(self._server, self._feeding, replace(request, recent=liked.recent), unit, variant, items)

    def similar(self, name: str, item: Id, k: int, exclude: Collection[Id] = (), context: Mapping[str, Value] = _NO_CONTEXT) -> Similar:
        """Returns similar items by the stable version; the spec's filter applies."""
        served = self._served(name, self._loader.snapshot)
        served.filter.check(context)
        ids = self.ids(name)
        dropped = frozenset(ids.items(exclude, "exclude"))
        view = self._catalogues.of(name)
        request = self._request(name, served, 0, k, FilterInput(view.attributes, context, dropped))
        return similar_to(request, view.unit(served.units[served.route.stable]), item, ids.item(item))

    def _request(self, name: str, served: ServedRecommender, user: int, k: int, filter_input: FilterInput) -> RankingRequest:
        """Builds a ranking request that is not an answer: seen items stay, and no rules apply."""
        return RankingRequest(name, user, k, served.filter, filter_input, Rules(), at=self._clock.now())

    def _served(self, name: str, snapshot: Snapshot) -> ServedRecommender:
        served = snapshot.served.get(name)
        if snapshot.read_at is None:
            raise Unavailable("this gateway has not read its routes yet: try again in a moment")
        if self._catalogues.read_at is None:
            raise Unavailable("this gateway has not read the catalogues yet: try again in a moment")
        if served is not None:
            return served
        self._recommenders.get(name)  # raises NotFound for an unknown name
        if name in self._routes.all():  # new, or not loadable
            self._loader.refresh()
            served = self._loader.snapshot.served.get(name)
            if served is not None:
                return served
        fault = self._loader.fault(name)
        if fault is not None:
            raise _Unloaded(f"the route of '{name}' cannot be loaded: {fault}")
        if name in self._routes.all():
            raise Unavailable(f"this gateway has not read the new route of '{name}' yet: try again in a moment")
        raise Conflict(f"recommender '{name}' serves nothing yet: its first version answers once a run has passed its gates")

    def _route(self, question: Question) -> _Routed | None:
        """Chooses the version of a question without I/O. Returns None for an unknown route; raises Invalid if the spec forbids it."""
        served = self._loader.snapshot.served.get(question.recommender) if self.ready else None
        if served is None:
            return None
        served.filter.check(question.context)
        return _Routed(question, served, *choose(served.route, question.user), time.perf_counter())

    def _work(self, batch: Sequence[_Routed | Question | _ScoresQuestion]) -> list[Answer | Scores | Exception]:
        """Processes a batch of one queue; the results are in the order of the batch."""
        answers: dict[int, Answer | Scores | Exception] = {}
        routed: dict[int, _Routed] = {}
        for place, request in enumerate(batch):
            if isinstance(request, _Routed):
                routed[place] = request
            elif isinstance(request, Question):
                (answers[place],) = self._answered([request])
            else:
                try:
                    answers[place] = self.score(request.recommender, request.user, request.items)
                except Exception as error:
                    answers[place] = error
        answers |= zip(routed, self._of_versions(list(routed.values())), strict=True)
        return [answers[place] for place in range(len(batch))]

    def _answered(self, questions: Sequence[Question]) -> list[Answer | Exception]:
        """Answers the questions on the caller's thread, in their order."""
        answers: dict[int, Answer | Exception] = {}
        routed: dict[int, _Routed] = {}
        snapshot = self._loader.snapshot  # read once: all questions see the same routes
        for place, question in enumerate(questions):
            try:
                served = self._served(question.recommender, snapshot)
                served.filter.check(question.context)
            except EyasError as error:
                if isinstance(error, _Unloaded):
                    metrics.REQUESTS.labels(question.recommender, "none", "none", "error").inc()
                answers[place] = error
                continue
            routed[place] = _Routed(question, served, *choose(served.route, question.user), time.perf_counter())
        answers |= zip(routed, self._of_versions(list(routed.values())), strict=True)
        return [answers[place] for place in range(len(questions))]

    def _of_versions(self, routed: Sequence[_Routed]) -> list[Answer | Exception]:
        """Answers in the order of the requests; those with the same version and route are answered together."""
        together: dict[tuple[int, int], list[_Routed]] = {}
        for request in routed:
            together.setdefault((id(request.served), request.version), []).append(request)
        answers: dict[int, Answer | Exception] = {}
        for group in together.values():
            answers |= zip(map(id, group), self._of_version(group), strict=True)
        return [answers[id(request)] for request in routed]

    def _of_version(self, routed: Sequence[_Routed]) -> Sequence[Answer | Exception]:
        answers: Sequence[Answer | Exception]
        try:
            answers = self._answer_together(routed)
        except Exception as error:
            answers = [error] * len(routed)
            self._refused(routed, FAILED)
        ended = time.perf_counter()
        for request, answer in zip(routed, answers, strict=True):
            if request.question.trial:
                continue
            outcome = "error" if isinstance(answer, Exception) else answer.fallback or "ok"
            metrics.REQUESTS.labels(request.question.recommender, str(request.version), request.variant, outcome).inc()
            metrics.REQUEST_SECONDS.labels(request.question.recommender, request.variant).observe(ended - request.began)
        return answers

    def _refused(self, routed: Sequence[_Routed], why: str) -> None:
        """Logs empty answers for requests that a version of a canary did not answer, so that its analysis counts these users."""
        now = self._clock.now()
        impressions = [
            _impression(_id_of(request.question, now), request, ShownItems(()), now, why)
            for request in routed
            if request.served.route.judged and not request.question.trial
        ]
        if impressions:
            self._journal.add(*impressions)

    def _answer_together(self, routed: Sequence[_Routed]) -> Sequence[Answer]:
        now, laps = self._clock.now(), StageTimer()
        view = self._catalogues.of(routed[0].question.recommender)  # read once: versions and attributes of one state
        unit = view.unit(routed[0].served.units[routed[0].version])
        requests = self._build_requests(routed, unit, view.attributes, now, laps)
        ranked = self._scoring.show(requests, unit, laps)
        answers, impressions = self._build_answers(routed, unit, ranked, now)
        if impressions:
            self._journal.write(*impressions)
        laps.lap("log")
        if impressions:
            self._mirror(routed, requests, ranked, view)
            for stage, seconds in laps.seconds.items():
                metrics.ANSWER_STAGE_SECONDS.labels(routed[0].question.recommender, stage).observe(seconds)
        return [
            answer if shown.explanation is None else replace(answer, explained=Explained(shown.explanation, len(routed), laps.seconds))
            for answer, shown in zip(answers, ranked.shown, strict=True)
        ]

    def _build_requests(
        self, routed: Sequence[_Routed], unit: LoadedVersion, attributes: Attributes, now: datetime, laps: StageTimer
    ) -> list[RankingRequest]:
        name, served = routed[0].question.recommender, routed[0].served
        filter, rules = served.filter, served.ordering.at(now)
        likes = read_likes(self._journal, name, served, {request.question.user for request in routed}, now)
        if filter.drops_seen or unit.session is not None:
            laps.lap("seen")
        requests = []
        for request in routed:
            question = request.question
            liked = likes.get(question.user, NOTHING)
            dropped = question.exclude | set(liked.dropped) if liked.dropped else question.exclude
            if unit.session is not None:
                dropped = frozenset({*dropped, *question.items})
            filter_input = FilterInput(attributes, question.context, dropped)
            luck = self._luck() if rules.explore.rate and not question.trial else 1.0
            requests.append(
                RankingRequest(
                    name, question.user, question.k, filter, filter_input, rules, luck, question.items, liked.recent, question.explain, now
                )
            )
        return requests

    def _build_answers(
        self, routed: Sequence[_Routed], unit: LoadedVersion, ranked: RankedRequests, now: datetime
    ) -> tuple[list[Answer], list[Impression]]:
        """Builds one answer per request, and an impression unless the request is a trial."""
        answers: list[Answer] = []
        impressions: list[Impression] = []
        bucket, timed = bucket_of(ranked.seconds), False
        for request, shown in zip(routed, ranked.shown, strict=True):
            id_ = _id_of(request.question, now)
            fallback = shown.fallback if shown.items else NOTHING_LEFT
            ids = unit.ids([item for item, _ in shown.items])
            items = tuple((item_id, score) for item_id, (_, score) in zip(ids, shown.items, strict=True))
            answers.append(Answer(id_, request.question.recommender, request.version, request.variant, items, fallback))
            if request.question.trial:
                continue
            logged = SERVER_AWAY if fallback is not None and self._scoring.server_away else fallback
            own = logged in ANSWERED_BY_VERSION
            # The answers of a batch share one duration: counted several times, it would exaggerate the evidence.
            impressions.append(
                _impression(id_, request, shown, now, logged, bucket if shown.model_called and not (own and timed) else None)
            )
            timed = timed or (own and shown.model_called)
        return answers, impressions

    def _mirror(self, routed: Sequence[_Routed], requests: Sequence[RankingRequest], ranked: RankedRequests, view: CatalogueView) -> None:
        served, route = routed[0].served, routed[0].served.route
        if route.shadow and route.candidate is not None:
            public = [place for place, request in enumerate(routed) if not request.question.trial]
            stable = RankedRequests([ranked.shown[place] for place in public], ranked.seconds)
            self._shadow.mirror(
                MirroredBatch(
                    [requests[place] for place in public],
                    route.generation,
                    view.unit(served.units[route.candidate]),
                    stable,
                )
            )


class _Unloaded(Unavailable):
    """The versions of a route cannot be loaded; the request counts as an error."""


@dataclass(frozen=True, eq=False)
class _ScoresQuestion:
    recommender: str
    user: int
    items: Sequence[int]


@dataclass(frozen=True, eq=False)
class _Routed:
    """A question with its chosen version."""

    question: Question
    served: ServedRecommender
    version: int
    variant: Variant
    began: float
    """When the request came: its measured time includes the wait for a batch."""

    @property
    def key(self) -> tuple[str, int]:
        return self.question.recommender, self.version


def _id_of(question: Question, now: datetime) -> str:
    return question.id or new_id("q", now, secrets.randbits(30))


def _impression(id: str, routed: _Routed, shown: ShownItems, now: datetime, fallback: str | None, bucket: int | None = None) -> Impression:
    route = routed.served.route
    return Impression(
        request_id=id,
        recommender=routed.question.recommender,
        user=routed.question.user,
        version=routed.version,
        variant=routed.variant,
        generation=route.generation,
        step=route.step,
        items=tuple(item for item, _ in shown.items),
        fallback=fallback,
        bucket=bucket,
        score=shown.score,
        propensities=shown.propensities,
        slices=routed.served.slices.of(routed.question.context),
        at=now,
    )
