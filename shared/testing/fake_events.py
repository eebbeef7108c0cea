"""Fakes of events and shadow totals in memory, for unit tests without a database. They pass the conformance suites of their ports."""

from __future__ import annotations

import csv
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from shared.contracts.events import (
    ANSWERED_BY_VERSION,
    NOT_PERSONAL,
    NOTHING_LEFT,
    REFUSED,
    SERVER_AWAY,
    VERSION_ERRORS,
    Impression,
    Interaction,
)
from shared.domain.coverage_novelty import ItemShowings
from shared.domain.earned import MILLIONTHS, AnswerGroup, AnswerOutcomes
from shared.domain.errors import Invalid
from shared.domain.sequential_test import VariantSample
from shared.domain.traffic import ShadowCounts, Traffic, UserShares
from shared.ports import AnswerScore, HitRate, IngestResult, Like, NewestTimes

_LOOKED = 2_000


class FakeEvents:
    """Implements EventLog, KpiSource and DriftSamples with plain lists."""

    def __init__(self) -> None:
        self.shown: dict[str, Impression] = {}
        self.done: list[tuple[Interaction, datetime, bool]] = []
        self.within: list[timedelta] = []
        self._hits: dict[str, datetime] | None = None
        self._lock = threading.Lock()

    @property
    def hits(self) -> dict[str, datetime]:
        """Time of the hit by answer; computed again after each change, so that the order of events can't matter."""
        if self._hits is not None:
            return self._hits
        hits: dict[str, datetime] = {}
        for _, at, answer in self._reactions():
            hit = max(at, answer.at)
            hits[answer.request_id] = min(hit, hits.get(answer.request_id, hit))
        self._hits = hits
        return hits

    # EventLog

    def impressions(self, impressions: Sequence[Impression]) -> None:
        with self._lock:
            for impression in impressions:
                self.shown.setdefault(impression.request_id, impression)
            self._hits = None

    def interactions(self, interactions: Sequence[Interaction], positive: Sequence[bool], attribution: timedelta) -> IngestResult:
        rows = [(event, _time(event), good) for event, good in zip(interactions, positive, strict=True)]
        with self._lock:
            before = {id for id in self.hits if self._hit(id, attribution)}
            count, conflicts = len(self.done), 0
            for event, at, good in rows:
                first = self._first(event)
                if first is None:
                    self.done.append((event, at, good))
                    self.within.append(attribution)
                else:
                    conflicts += first.model_copy(update={"at": event.at}) != event
            new, self._hits = len(self.done) - count, None
            return IngestResult(new, len(rows) - new, conflicts, len({id for id in self.hits if self._hit(id, attribution)} - before))

    def seen_items(
        self, recommender: str, users: Collection[int], since: datetime | None = None, limit: int = 1000
    ) -> Mapping[int, Mapping[int, datetime]]:
        newest: dict[int, dict[int, datetime]] = {}
        for event, at, good in self._between(recommender, since, None):
            if good and event.user in users:
                of_user = newest.setdefault(event.user, {})
                of_user[event.item] = max(at, of_user.get(event.item, at))
        return {user: dict(sorted(items.items(), key=lambda pair: pair[1], reverse=True)[:limit]) for user, items in newest.items()}

    def count(self, recommender: str, since: datetime, until: datetime, limit: int) -> int:
        return min(limit, len(self._between(recommender, since, until)))

    def export(self, recommender: str, since: datetime | None, until: datetime, to: Path) -> int:
        rows = sorted(self._between(recommender, since, until), key=lambda row: row[1])
        with to.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(("user", "item", "value", "time", "kind"))
            for event, at, _ in rows:
                writer.writerow((event.user, event.item, event.value, f"{at.timestamp():.6f}".rstrip("0").rstrip("."), event.kind))
        return len(rows)

    # KpiSource

    def samples(
        self, recommender: str, generation: int, window: timedelta, attribution: timedelta, now: datetime
    ) -> Mapping[str, VariantSample]:
        users: dict[tuple[str, int], list[Impression]] = {}
        for answer in self._under(recommender, generation):
            if answer.fallback != SERVER_AWAY:
                users.setdefault((answer.variant, answer.user), []).append(answer)
        samples: dict[str, VariantSample] = {}
        for (variant, _), answers in users.items():
            first = min(answer.at for answer in answers)
            if first <= now - window - attribution:
                counted = [answer for answer in answers if answer.at <= first + window]
                hits = sum(self._hit(answer.request_id, attribution) for answer in counted)
                samples[variant] = _with(samples.get(variant, VariantSample()), len(counted), hits)
        return samples

    def traffic(self, recommender: str, generation: int, now: datetime) -> Mapping[str, Traffic]:
        variants: dict[str, list[Impression]] = {}
        for answer in sorted(self._under(recommender, generation), key=lambda answer: answer.at, reverse=True):
            if answer.at <= now:
                variants.setdefault(answer.variant, []).append(answer)
        looked = min((len(own) for answers in variants.values() if (own := _own(answers[:_LOOKED]))), default=0)
        return {variant: _traffic(answers, looked) for variant, answers in variants.items()}

    def hit_rate(self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta) -> HitRate:
        return self._rate([answer for answer in self._of(recommender, version, since) if answer.at < until], attribution)

    def earned(
        self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta, conversions: Collection[str]
    ) -> AnswerOutcomes:
        return self._earned(self._answers_between(recommender, version, since, until), attribution, conversions)

    def parts(
        self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta, conversions: Collection[str]
    ) -> Mapping[AnswerGroup, AnswerOutcomes]:
        apart: dict[AnswerGroup, list[Impression]] = {}
        for answer in self._answers_between(recommender, version, since, until):
            apart.setdefault(AnswerGroup(answer.variant, answer.fallback, answer.slices), []).append(answer)
        return {part: self._earned(answers, attribution, conversions) for part, answers in apart.items()}

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
        apart: dict[int, list[Impression]] = {}
        for answer in self._answers_between(recommender, version, since, until):
            apart.setdefault((answer.at - since) // every, []).append(answer)
        return {step: self._earned(answers, attribution, conversions) for step, answers in apart.items()}

    def showings(self, recommender: str, version: int, since: datetime, until: datetime, limit: int) -> ItemShowings:
        answers = self._answers_between(recommender, version, since, until)
        newest = sorted(answers, key=lambda answer: (answer.at, answer.request_id), reverse=True)[:limit]
        return ItemShowings(len(newest), Counter(item for answer in newest for item in set(answer.items)))

    def liked(self, recommender: str, until: datetime, limit: int) -> Mapping[int, int]:
        likes = sorted((at, n, event.item) for n, (event, at, good) in enumerate(self._between(recommender, None, until)) if good)
        return Counter(item for _, _, item in likes[::-1][:limit])

    def _answers_between(self, recommender: str, version: int, since: datetime, until: datetime) -> list[Impression]:
        return [answer for answer in self._of(recommender, version, since) if answer.at < until]

    def _earned(self, answers: Sequence[Impression], attribution: timedelta, conversions: Collection[str]) -> AnswerOutcomes:
        by_request = {answer.request_id: answer for answer in answers}
        reactions = [
            (event, answer) for event, at, answer in self._reactions() if answer.request_id in by_request and at - answer.at <= attribution
        ]
        places = {(answer.request_id, answer.items.index(event.item)) for event, answer in reactions}
        return AnswerOutcomes(
            answers=len(by_request),
            hits=len({answer.request_id for _, answer in reactions}),
            conversions=len({answer.request_id for event, answer in reactions if event.kind in conversions}),
            revenue=sum(round((event.revenue or 0) * MILLIONTHS) for event, _ in reactions),
            kinds=dict(Counter(event.kind for event, _ in reactions if event.kind is not None)),
            shown=dict(Counter(len(answer.items) for answer in by_request.values())),
            clicked=dict(Counter(place for _, place in places)),
        )

    # DriftSamples

    def likes(self, recommender: str, since: datetime, count: int, newest: bool) -> Sequence[Like]:
        rows = sorted((row for row in self._between(recommender, since, None) if row[2]), key=lambda row: row[1])
        return [Like(event.user, event.item, at) for event, at, _ in (rows[::-1] if newest else rows)[:count]]

    def scores(self, recommender: str, version: int, since: datetime, count: int, newest: bool) -> Sequence[AnswerScore]:
        answers = sorted(_own(self._of(recommender, version, since)), key=lambda answer: (answer.at, answer.request_id), reverse=newest)
        return [AnswerScore(answer.user, answer.score, answer.at) for answer in answers if answer.score is not None][:count]

    def blocks(
        self, recommender: str, version: int, since: datetime, until: datetime, every: timedelta, attribution: timedelta
    ) -> Mapping[int, VariantSample]:
        users: dict[tuple[int, int], list[Impression]] = {}
        for answer in _own(self._of(recommender, version, since)):
            if answer.at < until:
                users.setdefault(((answer.at - since) // every, answer.user), []).append(answer)
        samples: dict[int, VariantSample] = {}
        for (block, _), answers in users.items():
            hits = sum(self._hit(answer.request_id, attribution) for answer in answers)
            samples[block] = _with(samples.get(block, VariantSample()), len(answers), hits)
        return samples

    def newest(self, versions: Mapping[str, int]) -> Mapping[str, NewestTimes]:
        newest = {}
        for name, version in versions.items():
            answers = [answer.at for answer in self.shown.values() if (answer.recommender, answer.version) == (name, version)]
            events = [at for event, at, _ in self.done if event.recommender == name]
            newest[name] = NewestTimes(max(answers, default=None), max(events, default=None))
        return {name: latest for name, latest in newest.items() if latest.at is not None}

    # Lookups

    def _answer(self, event: Interaction, at: datetime, attribution: timedelta) -> Impression | None:
        """Returns the answer that the event names, if user and item match; else the newest answer that showed the item to this user."""
        candidates = [
            answer
            for answer in self.shown.values()
            if (answer.recommender, answer.user) == (event.recommender, event.user) and event.item in answer.items
        ]
        named = [answer for answer in candidates if answer.request_id == event.request_id]
        recent = [answer for answer in candidates if answer.at <= at <= answer.at + attribution]
        return named[0] if named else max(recent, key=lambda answer: (answer.at, answer.request_id), default=None)

    def _first(self, event: Interaction) -> Interaction | None:
        """Returns the first event with this id."""
        matching = (
            row[0] for row in self.done if event.id is not None and (row[0].recommender, row[0].id) == (event.recommender, event.id)
        )
        return next(matching, None)

    def _reactions(self) -> Iterator[tuple[Interaction, datetime, Impression]]:
        for (event, at, good), within in zip(self.done, self.within, strict=True):
            answer = self._answer(event, at, within) if good else None
            if answer is not None:
                yield event, at, answer

    def _hit(self, id: str, attribution: timedelta) -> bool:
        return id in self.hits and self.hits[id] - self.shown[id].at <= attribution

    def _rate(self, answers: Sequence[Impression], attribution: timedelta) -> HitRate:
        return HitRate(len(answers), sum(self._hit(answer.request_id, attribution) for answer in answers))

    def _under(self, recommender: str, generation: int) -> list[Impression]:
        return [answer for answer in self.shown.values() if (answer.recommender, answer.generation) == (recommender, generation)]

    def _of(self, recommender: str, version: int, since: datetime) -> list[Impression]:
        answers = (
            answer
            for answer in self.shown.values()
            if (answer.recommender, answer.version) == (recommender, version) and answer.at >= since
        )
        return [answer for answer in answers if answer.fallback not in REFUSED]

    def _between(self, recommender: str, since: datetime | None, until: datetime | None) -> list[tuple[Interaction, datetime, bool]]:
        rows = [row for row in self.done if row[0].recommender == recommender]
        return [row for row in rows if (since is None or row[1] >= since) and (until is None or row[1] < until)]


class FakeShadowTotals:
    """Implements ShadowTotals with a dictionary."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int, str], ShadowCounts] = {}

    def add(self, recommender: str, generation: int, gateway: str, mirror: ShadowCounts) -> None:
        self.rows[recommender, generation, gateway] = mirror

    def total(self, recommender: str, generation: int) -> ShadowCounts:
        rows = [row for key, row in self.rows.items() if key[:2] == (recommender, generation)]
        stable: Counter[int] = Counter()
        candidate: Counter[int] = Counter()
        for row in rows:
            stable.update(row.stable)
            candidate.update(row.candidate)
        counts = [sum(getattr(row, name) for row in rows) for name in ("compared", "errors", "dropped")]
        return ShadowCounts(counts[0], counts[1], dict(stable), dict(candidate), sum(row.overlap for row in rows), counts[2])


def _time(event: Interaction) -> datetime:
    if event.at is None:
        raise Invalid("interaction without a time: set the client's time, or the time of arrival")
    return event.at


def _with(sample: VariantSample, answers: int, hits: int) -> VariantSample:
    value = hits / answers
    return replace(
        sample,
        users=sample.users + 1,
        total=sample.total + value,
        squares=sample.squares + value * value,
        answers=sample.answers + answers,
        hits=sample.hits + hits,
        converted=sample.converted + (hits > 0),
    )


def _own(answers: Iterable[Impression]) -> list[Impression]:
    return [answer for answer in answers if answer.fallback in ANSWERED_BY_VERSION]


def _shares(answers: Iterable[Impression], fallbacks: Collection[str]) -> UserShares:
    users: dict[int, list[bool]] = {}
    for answer in answers:
        users.setdefault(answer.user, []).append(answer.fallback in fallbacks)
    shares = [sum(flags) / len(flags) for flags in users.values()]
    return UserShares(len(shares), sum(shares), sum(share * share for share in shares))


def _traffic(answers: Sequence[Impression], looked: int) -> Traffic:
    """Returns the traffic of one variant; `answers` are sorted, newest first."""
    own = _own(answers)
    scores = [answer.score for answer in own if answer.score is not None]
    counted = [answer for answer in answers if answer.fallback != SERVER_AWAY]
    newest = _own(answers[:_LOOKED])[:looked]
    return Traffic(
        users=len({answer.user for answer in answers}),
        answers=len(counted),
        errors=len([answer for answer in answers if answer.fallback in VERSION_ERRORS]),
        fallback=_shares(counted, NOT_PERSONAL),
        empty=_shares(counted, (NOTHING_LEFT,)),
        latency=dict(Counter(answer.bucket for answer in own if answer.bucket is not None)),
        scored=len(scores),
        score_total=sum(scores),
        score_squares=sum(score * score for score in scores),
        looked=len(newest),
        shown=len({item for answer in newest for item in answer.items}),
    )
