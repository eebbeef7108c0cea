"""Ports for impressions and interactions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Protocol

from shared.contracts.archive import EventTable
from shared.contracts.events import Impression, Interaction
from shared.domain.coverage_novelty import ItemShowings
from shared.domain.earned import AnswerGroup, AnswerOutcomes
from shared.domain.sequential_test import VariantSample
from shared.domain.traffic import Traffic
from shared.ports.serving import IngestResult


class EventLog(Protocol):
    """Append-only log of impressions and interactions."""

    def impressions(self, impressions: Sequence[Impression]) -> None:
        """Appends durably; an existing request id stays unchanged. Attributes earlier positives to the new impressions."""

    def interactions(self, interactions: Sequence[Interaction], positive: Sequence[bool], attribution: timedelta) -> IngestResult:
        """Appends durably, once per id in a recommender, and attributes each positive to an impression: by request id and item, or else
        the newest by user and item within `attribution`. The result does not depend on the order of events, nor on repeats of events
        with ids."""

    def seen_items(
        self, recommender: str, users: Collection[int], since: datetime | None = None, limit: int = 1000
    ) -> Mapping[int, Mapping[int, datetime]]:
        """Returns, by user, the items with a positive since `since`, each with its newest time; at most the newest `limit` for each user.
        Users without positives are left out."""

    def count(self, recommender: str, since: datetime, until: datetime, limit: int) -> int:
        """Counts the interactions in [since, until), up to `limit`."""

    def export(self, recommender: str, since: datetime | None, until: datetime, to: Path) -> int:
        """Writes events.csv (user,item,value,time,kind,user_id,item_id: epoch seconds; value, kind and ids may be empty), oldest first;
        returns rows."""


@dataclass(frozen=True)
class StoredEvent:
    event: Interaction
    place: tuple[int, int]
    """Position in the order of time."""


class EventDays(Protocol):
    """Events by day (UTC); events before 1970 are left out."""

    def page(self, recommender: str, limit: int, after: tuple[int, int] | None = None) -> Sequence[StoredEvent]:
        """Returns actions of users in the order of time, those after a place; also events before 1970, without page views."""

    def counts(self, recommender: str, table: EventTable, until: datetime) -> Mapping[date, int]:
        """Returns the number of rows of each day before `until`; days without rows are left out."""

    def dump(self, recommender: str, table: EventTable, day: date, to: Path) -> int:
        """Writes all rows of a day as JSON lines with the columns of `shared.contracts.archive`, in any order; returns rows."""


@dataclass(frozen=True)
class DeletionMarks:
    """How far a table's old days are deleted. None: nothing is refused, or deleted, yet."""

    refused_before: date | None = None
    """First day of which events are still accepted."""
    refused_at: datetime | None = None
    """Time of the newest change of `refused_before`."""
    deleted_before: date | None = None
    """First day that the database has; it may also have some rows of earlier days that are not deleted yet."""
    compactions: int | None = None
    """Number of compactions in the archive that has the deleted days."""


class EventDeletion(Protocol):
    """Deletes old days of events, in small steps. Events before 1970 stay."""

    def oldest(self, recommender: str, table: EventTable) -> date | None:
        """Returns the day of the oldest event; None without events."""

    def marks(self, recommender: str, table: EventTable) -> DeletionMarks: ...

    def refuse(self, recommender: str, table: EventTable, before: date, now: datetime) -> None:
        """Refuses further events of days before `before`, and of no later days. Does nothing if a later day is already deleted."""

    def mark_deleted(self, recommender: str, table: EventTable, before: date, compactions: int, now: datetime) -> None:
        """Marks the days before `before` as deleted: readers must not read them from the database any more. `compactions`: number of
        compactions in the archive. Does nothing if events of these days were refused less than `REFUSAL_LEAD` ago, or if later days are
        already deleted."""

    def delete(self, recommender: str, table: EventTable, before: date, limit: int) -> int:
        """Deletes up to `limit` rows of days that are before `before` and marked as deleted; returns rows."""


@dataclass(frozen=True)
class HitRate:
    answers: int
    hits: int

    @property
    def rate(self) -> float:
        return self.hits / self.answers if self.answers else 0.0


@dataclass(frozen=True)
class EmptyAnswers:
    answers: int
    empty: int
    """Answers without items, because the filters left none."""


class KpiSource(Protocol):
    """Outcomes of answers. Only answers older than the attribution window count."""

    def samples(
        self, recommender: str, generation: int, window: timedelta, attribution: timedelta, now: datetime
    ) -> Mapping[str, VariantSample]:
        """Returns, by variant, the users whose window under this route generation has closed, with the hit rate of the answers within
        `window` of the user's first answer. All requests of the variant count, except those during an outage of the model server."""

    def traffic(self, recommender: str, generation: int, now: datetime) -> Mapping[str, Traffic]:
        """Returns, by variant, the traffic under this route generation up to now, also in open windows; variants without requests are left
        out. Coverage uses the newest answers that a version scored itself, equally many of each variant, because it grows with their
        number."""

    def hit_rate(self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta) -> HitRate:
        """Hit rate of a version's answers in [since, until); rejected requests do not count."""

    def empty(self, recommender: str, versions: Collection[int], since: datetime, until: datetime) -> EmptyAnswers:
        """Counts the answers of these versions in [since, until), without rejected requests and lists of a front end."""

    def earned(
        self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta, conversions: Collection[str]
    ) -> AnswerOutcomes:
        """Outcomes of a version's answers in [since, until); `conversions` are the kinds that count as conversions."""

    def parts(
        self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta, conversions: Collection[str]
    ) -> Mapping[AnswerGroup, AnswerOutcomes]:
        """The same by variant, fallback and slices; parts without answers are left out."""

    def steps(
        self,
        recommender: str,
        version: int,
        since: datetime,
        until: datetime,
        every: timedelta,
        attribution: timedelta,
        conversions: Collection[str],
    ) -> Mapping[int, AnswerOutcomes]:
        """The same by step of length `every` from `since` on (0, 1, ...); steps without answers are left out."""

    def showings(self, recommender: str, version: int, since: datetime, until: datetime, limit: int) -> ItemShowings:
        """Items that the newest `limit` of those answers showed; at equal times the greater request ids are newer."""

    def liked(self, recommender: str, until: datetime, limit: int) -> Mapping[int, int]:
        """Number of positives of each item among the newest `limit` positives before `until`."""


@dataclass(frozen=True)
class Like:
    """A positive."""

    user: int
    item: int
    at: datetime


@dataclass(frozen=True)
class AnswerScore:
    """Mean score of the items of an answer."""

    user: int
    score: float
    at: datetime


@dataclass(frozen=True)
class NewestTimes:
    """Times of the newest answer of a version and of the newest event of its recommender."""

    answer: datetime | None
    event: datetime | None

    @property
    def at(self) -> datetime | None:
        return max((moment for moment in (self.answer, self.event) if moment is not None), default=None)


class DriftSamples(Protocol):
    """Data for drift detection. The first samples are sorted oldest first, the newest samples newest first."""

    def likes(self, recommender: str, since: datetime, count: int, newest: bool) -> Sequence[Like]:
        """Returns the first or the newest `count` positives since `since`."""

    def scores(self, recommender: str, version: int, since: datetime, count: int, newest: bool) -> Sequence[AnswerScore]:
        """Returns the scores of the first or the newest `count` answers of the version's own since `since`; answers without a score are
        left out."""

    def blocks(
        self, recommender: str, version: int, since: datetime, until: datetime, every: timedelta, attribution: timedelta
    ) -> Mapping[int, VariantSample]:
        """Outcomes of a version's own answers in [since, until), by block of length `every` from `since` on (0, 1, ...). A user's answers
        in one block are one observation; blocks without answers are left out."""

    def newest(self, versions: Mapping[str, int]) -> Mapping[str, NewestTimes]:
        """Newest times for many recommenders, each with one version; those without data are left out."""
