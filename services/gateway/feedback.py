"""What users did, taken in: checked as a whole, judged by the spec's label rule, handed to the event log.

Nothing is stored unless every interaction of the request is good, so a client may mend one and send all again. A fault of the
log between two recommenders of one request leaves the first one's interactions stored: delivery is at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from services.gateway.journal import Journal
from shared.contracts.events import Interaction
from shared.contracts.spec import RecommenderSpec
from shared.domain.errors import Invalid, NotFound, Unavailable, no_such
from shared.ports import Clock, EventLog, RecommenderStore, Taken
from shared.telemetry import metrics

TOLERANCE = timedelta(minutes=1)
"""How far ahead of ours a client's clock may be."""


@dataclass(frozen=True)
class Recorded:
    accepted: int
    hits: int


class Feedback:
    def __init__(self, recommenders: RecommenderStore, events: EventLog, clock: Clock, journal: Journal) -> None:
        self._recommenders = recommenders
        self._events = events
        self._clock = clock
        self._journal = journal

    def record(self, interactions: Sequence[Interaction], sees: Callable[[str], bool] = lambda _: True) -> Recorded:
        if self._journal.behind:  # a reaction to an answer that the log doesn't know yet would earn nothing
            raise Unavailable("what was shown is not all written down yet: send these events again in a moment")
        now = self._clock.now()
        specs: dict[str, RecommenderSpec] = {}
        by_name: dict[str, list[Interaction]] = {}
        for index, one in enumerate(interactions):
            specs[one.recommender] = specs.get(one.recommender) or self._spec(one.recommender, index, sees)
            by_name.setdefault(one.recommender, []).append(one.model_copy(update={"at": _when(one, index, now)}))
        hits = sum(self._append(name, specs[name], batch).hits or 0 for name, batch in by_name.items())
        return Recorded(len(interactions), hits)

    def _spec(self, name: str, index: int, sees: Callable[[str], bool]) -> RecommenderSpec:
        try:
            if not sees(name):
                raise no_such("recommender", name)
            return self._recommenders.get(name).spec
        except NotFound:
            raise Invalid(f"events.{index}.recommender: there is no recommender '{name}'") from None

    def _append(self, name: str, spec: RecommenderSpec, batch: list[Interaction]) -> Taken:
        rule = spec.positive()
        positive = [one.value is None or rule.holds(one.value) for one in batch]
        taken = self._events.interactions(batch, positive, spec.rollout.analysis.attribution)
        metrics.INTERACTIONS.labels(name).inc(len(batch))
        metrics.HITS.labels(name).inc(taken.hits or 0)
        return taken


def _when(one: Interaction, index: int, now: datetime) -> datetime:
    if one.at is None:
        return now
    if one.at > now + TOLERANCE:
        raise Invalid(f"events.{index}.at: {one.at.isoformat()} is in the future (here it is {now.isoformat()})")
    try:
        return one.at.astimezone(UTC)
    except OverflowError:
        raise Invalid(f"events.{index}.at: {one.at.isoformat()} is before the first year of our calendar") from None
