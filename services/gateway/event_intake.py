"""Event intake: checks each event, applies the spec's rules for its kind, and passes it to the event log.

Nothing is stored if one event of a request is bad, unless the sender asks to store the good events. If the log fails between two
recommenders of a request, the first one's events stay stored: delivery is at least once, and an event with an id counts once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from services.gateway.loaded_version import LoadedVersion
from shared.contracts.events import FRONT_END, LONGEST, PAGE, Action, Event, Impression, Interaction, PageView, Shown
from shared.contracts.quantities import write_duration
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import unknown_name
from shared.domain.entity_ids import Id, IdHash, IdReader
from shared.domain.errors import Invalid, NotFound, no_such
from shared.domain.ids import REQUEST_ID
from shared.domain.pages import page_key
from shared.ports import Clock, EventLog, IngestResult, Recommender, RecommenderStore
from shared.telemetry import metrics

TOLERANCE = timedelta(minutes=1)
"""How far a client's clock may be ahead."""


@dataclass(frozen=True)
class RefusedEvent:
    index: int
    message: str


@dataclass(frozen=True)
class IntakeResult:
    accepted: int
    hits: int | None
    duplicates: int | None = 0
    conflicts: int | None = 0
    refused: Sequence[RefusedEvent] = ()


@dataclass
class _Sorted:
    """The good events of a request, by destination."""

    shown: list[Impression] = field(default_factory=list)
    done: dict[str, tuple[RecommenderSpec, list[Interaction], list[bool]]] = field(default_factory=dict)
    own_impressions: int = 0
    """Impressions that the gateway has already written."""

    def does(self, interaction: Interaction, spec: RecommenderSpec, positive: bool) -> None:
        _, batch, judged = self.done.setdefault(interaction.recommender, (spec, [], []))
        batch.append(interaction)
        judged.append(positive)


@dataclass(frozen=True)
class _Recipient:
    """Recommender that gets events of a request. `units`: its served versions."""

    recommender: Recommender
    ids: IdReader
    units: Sequence[LoadedVersion]

    @property
    def spec(self) -> RecommenderSpec:
        return self.recommender.spec

    def assuming(self, event: Event) -> _Recipient:
        """Takes kinds of ids that are not fixed yet from the event."""
        if None not in (self.ids.kinds.user, self.ids.kinds.item):
            return self
        item = event.item if isinstance(event, Action) else event.items[0] if isinstance(event, Shown) else None
        return replace(self, ids=self.ids.assuming(event.user, item))


class EventIntake:
    def __init__(
        self,
        recommenders: RecommenderStore,
        events: EventLog,
        clock: Clock,
        hash: IdHash,
        units: Callable[[str], Sequence[LoadedVersion]],
    ) -> None:
        self._recommenders = recommenders
        self._events = events
        self._clock = clock
        self._hash = hash
        self._units = units

    def record(self, events: Sequence[Event], sees: Callable[[str], bool] = lambda _: True, partial: bool = False) -> IntakeResult:
        """Records all events, or none if one is bad. `partial`: records the good events and reports the bad ones."""
        now = self._clock.now()
        recipients: dict[str, _Recipient] = {}
        good, refused = _Sorted(), []
        for index, event in enumerate(events):
            try:
                name = event.recommender
                recipient = (recipients.get(name) or self._recipient(name, sees)).assuming(event)
                _sort(event, recipient, now, good)
                recipients[name] = recipient
            except Invalid as error:
                if not partial:
                    raise Invalid(f"events.{index}.{error}") from None
                refused.append(RefusedEvent(index, str(error)))
        for name, recipient in recipients.items():
            if recipient.ids.kinds != recipient.recommender.ids:
                self._recommenders.fix_ids(name, recipient.ids.kinds)
        if good.shown:
            self._events.impressions(good.shown)
        results = [self._append(name, *batch) for name, batch in good.done.items()]
        return IntakeResult(
            len(events) - len(refused) - sum(result.too_old for result in results),
            _sum([result.hits for result in results]),
            _sum([good.own_impressions, *(result.duplicates for result in results)]),
            _sum([result.conflicts for result in results]),
            refused,
        )

    def _recipient(self, name: str, sees: Callable[[str], bool]) -> _Recipient:
        try:
            if not sees(name):
                raise no_such("recommender", name)
            recommender = self._recommenders.get(name)
        except NotFound:
            raise Invalid(f"recommender: unknown recommender '{name}'") from None
        return _Recipient(recommender, IdReader(recommender.ids, self._hash), self._units(name))

    def _append(self, name: str, spec: RecommenderSpec, batch: list[Interaction], positive: list[bool]) -> IngestResult:
        result = self._events.interactions(batch, positive, spec.rollout.analysis.attribution)
        metrics.INTERACTIONS.labels(name).inc(result.new)
        metrics.DUPLICATES.labels(name).inc(result.duplicates or 0)
        metrics.CONFLICTS.labels(name).inc(result.conflicts or 0)
        metrics.HITS.labels(name).inc(result.hits or 0)
        return result


def _sort(event: Event, recipient: _Recipient, now: datetime, good: _Sorted) -> None:
    spec = recipient.spec
    at = _when(event, now, spec.horizon("impressions" if isinstance(event, Shown) else "interactions"))
    if isinstance(event, Action):
        good.does(*_interaction(event, recipient, at))
    elif isinstance(event, PageView):
        good.does(_viewed(event, recipient, at), spec, False)
    elif re.fullmatch(REQUEST_ID, event.request_id):
        good.own_impressions += 1
    else:
        good.shown.append(_impression(event, recipient.ids, at))


def _interaction(action: Action, recipient: _Recipient, at: datetime) -> tuple[Interaction, RecommenderSpec, bool]:
    """Returns the interaction to store, and whether it is a positive."""
    spec, ids = recipient.spec, recipient.ids
    kind, positive = _judged(action, spec)
    item = ids.item(action.item)
    if isinstance(action.item, str):
        for unit in recipient.units:
            unit.check_id(item, action.item)
    stored = Interaction.model_construct(
        id=action.id,
        recommender=action.recommender,
        user=ids.user(action.user),
        item=item,
        kind=kind,
        value=action.value,
        revenue=action.revenue,
        request_id=action.request_id if action.request_id is None else _named(action.recommender, action.request_id),
        at=at,
        user_id=_text(action.user),
        item_id=_text(action.item),
    )
    return stored, spec, positive


def _text(id: Id) -> str | None:
    return id if isinstance(id, str) else None


def _judged(interaction: Action, spec: RecommenderSpec) -> tuple[str, bool]:
    kind = interaction.kind or ("click" if interaction.value is None else "rating")
    known_kinds = spec.feedback.all_kinds()
    if kind not in known_kinds:
        raise Invalid(f"kind: {unknown_name('kind', kind, known_kinds)}")
    if known_kinds[kind].positive == "by_label" and interaction.value is None:
        raise Invalid(f"value: required for the kind '{kind}', because the label rule '{spec.positive()}' reads it")
    return kind, spec.feedback.positive(kind, interaction.value, spec.positive())


def _viewed(page_view: PageView, recipient: _Recipient, at: datetime) -> Interaction:
    """Returns the view as an interaction with the page's key, which no item has."""
    if recipient.spec.schema_.page is None:
        raise Invalid("page: the spec has no column of pages; set schema.page")
    return Interaction(
        id=page_view.id,
        recommender=page_view.recommender,
        user=recipient.ids.user(page_view.user),
        item=page_key(page_view.page),
        kind=PAGE,
        at=at,
        user_id=_text(page_view.user),
    )


def _impression(shown: Shown, ids: IdReader, at: datetime) -> Impression:
    return Impression(
        request_id=_named(shown.recommender, shown.request_id),
        recommender=shown.recommender,
        user=ids.user(shown.user),
        version=shown.version or 0,
        variant="stable",
        generation=0,  # no route: it never counts for a rollout
        step=-1,
        items=tuple(ids.items(shown.items)),
        fallback=FRONT_END,
        at=at,
    )


def _named(recommender: str, request_id: str) -> str:
    """Prefixes a front end's request id with its recommender, so that it is unique and never equals a gateway's id."""
    return request_id if re.fullmatch(REQUEST_ID, request_id) or len(request_id) > LONGEST else f"{recommender}/{request_id}"


def _when(event: Event, now: datetime, horizon: timedelta) -> datetime:
    if event.at is None:
        return now
    try:
        at = event.at.astimezone(UTC)
    except OverflowError:
        raise Invalid(f"at: {event.at.isoformat()} is out of range; write a time between the years 1 and 9999 (UTC)") from None
    if at > now + TOLERANCE:
        raise Invalid(f"at: {event.at.isoformat()} is in the future; the server time is {now.isoformat()}")
    if at < now - horizon:
        raise Invalid(
            f"at: {event.at.isoformat()} is older than {write_duration(horizon)}, the time for which the spec keeps events; "
            "put older events into the files of data.interactions, or set a longer time under keep"
        )
    return at


def _sum(counts: Sequence[int | None]) -> int | None:
    return None if any(count is None for count in counts) else sum(count or 0 for count in counts)
