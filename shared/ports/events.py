"""What was shown and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Protocol

from shared.contracts.archive import EventTable
from shared.contracts.events import Impression, Interaction
from shared.domain.coverage_novelty import Showings
from shared.domain.earned import Earned, Part
from shared.domain.sequential_test import Sample
from shared.domain.traffic import Traffic
from shared.ports.serving import IngestResult


class EventLog(Protocol):
    """What was shown and what users did: appended, never changed."""

    def impressions(self, impressions: Sequence[Impression]) -> None:
        """Durable when it returns; a request id that is there already is left as it is. A positive that came before the impression
        that it reacts to is attributed now."""

    def interactions(self, interactions: Sequence[Interaction], positive: Sequence[bool], attribution: timedelta) -> IngestResult:
        """Appends, once for each id in a recommender, and attributes each positive to the impression that it reacts to: by request
        id and item, or else by user and item, the newest within `attribution`. What follows from a set of events is the same in
        whatever order they come, and however often those with an id do. Durable when it returns."""

    def seen_items(
        self, recommender: str, users: Collection[int], since: datetime | None = None, limit: int = 1000
    ) -> Mapping[int, Mapping[int, datetime]]:
        """By user, items with a positive of theirs at `since` or later, each with the time of the newest one; the newest `limit` of
        each user's. Who has none isn't there."""

    def count(self, recommender: str, since: datetime, until: datetime, limit: int) -> int:
        """How many interactions there are in [since, until); counting ends at `limit`."""

    def export(self, recommender: str, since: datetime | None, until: datetime, to: Path) -> int:
        """Writes events.csv (user,item,value,time,kind: epoch seconds; value and kind may be empty), the oldest first; returns rows."""


class EventDays(Protocol):
    """What the event log holds, by the day (UTC) on which it happened; what happened before 1970 is on none."""

    def counts(self, recommender: str, table: EventTable, until: datetime) -> Mapping[date, int]:
        """How many there are of each day before `until`; a day without any isn't there."""

    def dump(self, recommender: str, table: EventTable, day: date, to: Path) -> int:
        """Writes all of a day, one JSON object a line with the columns of `shared.contracts.archive`, in any order; returns rows."""


@dataclass(frozen=True)
class HitRate:
    answers: int
    hits: int

    @property
    def rate(self) -> float:
        return self.hits / self.answers if self.answers else 0.0


class KpiSource(Protocol):
    """What the answers earned. Only answers older than the attribution window count."""

    def samples(self, recommender: str, generation: int, window: timedelta, attribution: timedelta, now: datetime) -> Mapping[str, Sample]:
        """By variant: users whose window under this generation of the route has closed, each with the hit rate of the answers
        given within `window` of the user's first one. Every request of the variant counts, whatever its answer was, but for those
        while the model server as a whole was away."""

    def traffic(self, recommender: str, generation: int, now: datetime) -> Mapping[str, Traffic]:
        """By variant, what the answers under this generation of the route looked like up to now, whether or not their windows have
        closed; a variant without requests is left out. Coverage is that of the newest answers that a version scored itself, of each
        variant as many as of the other, for the more one looks at the more one sees."""

    def hit_rate(self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta) -> HitRate:
        """Of the answers of a version that were given in [since, until); a request that was refused has none."""

    def earned(
        self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta, conversions: Collection[str]
    ) -> Earned:
        """Of the answers of a version that were given in [since, until); `conversions` are the kinds that are one."""

    def parts(
        self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta, conversions: Collection[str]
    ) -> Mapping[Part, Earned]:
        """The same, by variant, fallback and slices; parts without an answer are left out."""

    def steps(
        self,
        recommender: str,
        version: int,
        since: datetime,
        until: datetime,
        every: timedelta,
        attribution: timedelta,
        conversions: Collection[str],
    ) -> Mapping[int, Earned]:
        """The same, by step of so much time from `since` on (0, 1, ...); steps without an answer are left out."""

    def showings(self, recommender: str, version: int, since: datetime, until: datetime, limit: int) -> Showings:
        """What the newest `limit` of those answers showed: of one moment, those of the greater request ids."""

    def liked(self, recommender: str, until: datetime, limit: int) -> Mapping[int, int]:
        """By item, how many of the newest `limit` positives before `until` are of it."""


@dataclass(frozen=True)
class Like:
    """A positive."""

    user: int
    item: int
    at: datetime


@dataclass(frozen=True)
class Scored:
    """The mean score of what an answer showed."""

    user: int
    score: float
    at: datetime


@dataclass(frozen=True)
class Newest:
    """When the newest answer of a version was given, and when the newest thing happened that users of its recommender did."""

    answer: datetime | None
    event: datetime | None

    @property
    def at(self) -> datetime | None:
        return max((moment for moment in (self.answer, self.event) if moment is not None), default=None)


class DriftSamples(Protocol):
    """What drift is measured on. The first ones come oldest first, the newest ones newest first."""

    def likes(self, recommender: str, since: datetime, count: int, newest: bool) -> Sequence[Like]:
        """The first or the newest `count` positives from `since` on."""

    def scores(self, recommender: str, version: int, since: datetime, count: int, newest: bool) -> Sequence[Scored]:
        """Of the first or the newest `count` answers of a version's own from `since` on; one without a score is left out."""

    def blocks(
        self, recommender: str, version: int, since: datetime, until: datetime, every: timedelta, attribution: timedelta
    ) -> Mapping[int, Sample]:
        """What a version's own answers in [since, until) earned, by stretch of so much time from `since` on (0, 1, ...); a user's answers
        of one stretch are one observation. Stretches without an answer are left out."""

    def newest(self, versions: Mapping[str, int]) -> Mapping[str, Newest]:
        """Of many recommenders at once, each with one of its versions; one of which nothing is known is left out."""
