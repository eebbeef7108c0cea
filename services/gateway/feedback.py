"""What users did, taken in: each event checked, judged by the spec's words for its kind, handed to the event log.

Nothing is stored unless every event of the request is good, or the sender wants the good ones taken. A fault of the log between two
recommenders of one request leaves the first one's events stored: delivery is at least once, and an event with an id counts once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from shared.contracts.events import FRONT_END, LONGEST, PAGE, Event, Impression, Interaction, PageView, Shown
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import unknown_name
from shared.domain.errors import Invalid, NotFound, no_such
from shared.domain.ids import REQUEST_ID
from shared.domain.pages import page_key
from shared.ports import Clock, EventLog, RecommenderStore, Taken
from shared.telemetry import metrics

TOLERANCE = timedelta(minutes=1)
"""How far ahead of ours a client's clock may be."""


@dataclass(frozen=True)
class Refusal:
    index: int
    message: str


@dataclass(frozen=True)
class Recorded:
    accepted: int
    hits: int | None
    duplicates: int | None = 0
    conflicts: int | None = 0
    refused: Sequence[Refusal] = ()


@dataclass
class _Sorted:
    """The good events of a request, by what becomes of them."""

    shown: list[Impression] = field(default_factory=list)
    done: dict[str, tuple[RecommenderSpec, list[Interaction], list[bool]]] = field(default_factory=dict)
    known: int = 0
    """Impressions that the gateway wrote itself."""

    def does(self, one: Interaction, spec: RecommenderSpec, positive: bool) -> None:
        _, batch, judged = self.done.setdefault(one.recommender, (spec, [], []))
        batch.append(one)
        judged.append(positive)


class Feedback:
    def __init__(self, recommenders: RecommenderStore, events: EventLog, clock: Clock) -> None:
        self._recommenders = recommenders
        self._events = events
        self._clock = clock

    def record(self, events: Sequence[Event], sees: Callable[[str], bool] = lambda _: True, partial: bool = False) -> Recorded:
        """All of them or, where one is bad, none; `partial`: the good ones, and what was wrong with the others."""
        now = self._clock.now()
        specs: dict[str, RecommenderSpec] = {}
        good, refused = _Sorted(), []
        for index, one in enumerate(events):
            try:
                spec = specs.get(one.recommender) or specs.setdefault(one.recommender, self._spec(one.recommender, sees))
                _sort(one, spec, now, good)
            except Invalid as error:
                if not partial:
                    raise Invalid(f"events.{index}.{error}") from None
                refused.append(Refusal(index, str(error)))
        if good.shown:
            self._events.impressions(good.shown)
        taken = [self._append(name, *batch) for name, batch in good.done.items()]
        return Recorded(
            len(events) - len(refused),
            _sum([one.hits for one in taken]),
            _sum([good.known, *(one.duplicates for one in taken)]),
            _sum([one.conflicts for one in taken]),
            refused,
        )

    def _spec(self, name: str, sees: Callable[[str], bool]) -> RecommenderSpec:
        try:
            if not sees(name):
                raise no_such("recommender", name)
            return self._recommenders.get(name).spec
        except NotFound:
            raise Invalid(f"recommender: there is no recommender '{name}'") from None

    def _append(self, name: str, spec: RecommenderSpec, batch: list[Interaction], positive: list[bool]) -> Taken:
        taken = self._events.interactions(batch, positive, spec.rollout.analysis.attribution)
        metrics.INTERACTIONS.labels(name).inc(taken.new)
        metrics.DUPLICATES.labels(name).inc(taken.duplicates or 0)
        metrics.CONFLICTS.labels(name).inc(taken.conflicts or 0)
        metrics.HITS.labels(name).inc(taken.hits or 0)
        return taken


def _sort(one: Event, spec: RecommenderSpec, now: datetime, good: _Sorted) -> None:
    at = _when(one, now)
    if isinstance(one, Interaction):
        kind, positive = _judged(one, spec)
        named = one.request_id if one.request_id is None else _named(one.recommender, one.request_id)
        good.does(one.model_copy(update={"at": at, "kind": kind, "request_id": named}), spec, positive)
    elif isinstance(one, PageView):
        good.does(_viewed(one, spec, at), spec, False)
    elif re.fullmatch(REQUEST_ID, one.request_id):
        good.known += 1
    else:
        good.shown.append(_impression(one, at))


def _judged(one: Interaction, spec: RecommenderSpec) -> tuple[str, bool]:
    kind = one.kind or ("click" if one.value is None else "rating")
    known = spec.feedback.known()
    if kind not in known:
        raise Invalid(f"kind: {unknown_name('kind', kind, known)}")
    if known[kind].positive == "by_label" and one.value is None:
        raise Invalid(f"value: a {kind} needs one, for the label rule '{spec.positive()}' reads it")
    return kind, spec.feedback.positive(kind, one.value, spec.positive())


def _viewed(one: PageView, spec: RecommenderSpec, at: datetime) -> Interaction:
    """Under the page's key, which no item has."""
    if spec.schema_.page is None:
        raise Invalid("page: nothing would be learned of it: name the column of pages in the spec (schema.page)")
    return Interaction(id=one.id, recommender=one.recommender, user=one.user, item=page_key(one.page), kind=PAGE, at=at)


def _impression(one: Shown, at: datetime) -> Impression:
    return Impression(
        request_id=_named(one.recommender, one.request_id),
        recommender=one.recommender,
        user=one.user,
        version=one.version or 0,
        variant="stable",
        generation=0,  # of no route: it never judges a rollout
        step=-1,
        items=one.items,
        fallback=FRONT_END,
        at=at,
    )


def _named(recommender: str, request_id: str) -> str:
    """What a front end calls an answer of its own is its recommender's alone, and is never taken for one of the gateway's."""
    return request_id if re.fullmatch(REQUEST_ID, request_id) or len(request_id) > LONGEST else f"{recommender}/{request_id}"


def _when(one: Event, now: datetime) -> datetime:
    if one.at is None:
        return now
    try:
        at = one.at.astimezone(UTC)
    except OverflowError:
        raise Invalid(f"at: {one.at.isoformat()} is outside the years of our calendar") from None
    if at > now + TOLERANCE:
        raise Invalid(f"at: {one.at.isoformat()} is in the future (here it is {now.isoformat()})")
    return at


def _sum(counts: Sequence[int | None]) -> int | None:
    return None if any(count is None for count in counts) else sum(count or 0 for count in counts)
