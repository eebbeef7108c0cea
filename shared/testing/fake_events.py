"""Events and shadows in memory: what a unit test puts in the place of a database. They pass the conformance suites of their ports."""

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
from shared.domain.earned import MILLIONTHS, Earned, Part
from shared.domain.errors import Invalid
from shared.domain.spread import Showings
from shared.domain.traffic import Mirror, Traffic, UserShares
from shared.domain.verdict import Sample
from shared.ports import HitRate, Like, Newest, Scored, Taken

_LOOKED = 2_000


class FakeEvents:
    """EventLog, KpiSource and Sightings, in plain lists."""

    def __init__(self) -> None:
        self.shown: dict[str, Impression] = {}
        self.done: list[tuple[Interaction, datetime, bool]] = []
        self.within: list[timedelta] = []
        self._found: dict[str, datetime] | None = None
        self._lock = threading.Lock()

    @property
    def hits(self) -> dict[str, datetime]:
        """Found anew after each change, so that no order of events can matter."""
        if self._found is not None:
            return self._found
        found: dict[str, datetime] = {}
        for _, at, answer in self._reactions():
            hit = max(at, answer.at)
            found[answer.request_id] = min(hit, found.get(answer.request_id, hit))
        self._found = found
        return found

    # EventLog

    def impressions(self, impressions: Sequence[Impression]) -> None:
        with self._lock:
            for one in impressions:
                self.shown.setdefault(one.request_id, one)
            self._found = None

    def interactions(self, interactions: Sequence[Interaction], positive: Sequence[bool], attribution: timedelta) -> Taken:
        given = [(one, _time(one), good) for one, good in zip(interactions, positive, strict=True)]
        with self._lock:
            before = {id for id in self.hits if self._hit(id, attribution)}
            count, conflicts = len(self.done), 0
            for one, at, good in given:
                first = self._first(one)
                if first is None:
                    self.done.append((one, at, good))
                    self.within.append(attribution)
                else:
                    conflicts += first.model_copy(update={"at": one.at}) != one
            new, self._found = len(self.done) - count, None
            return Taken(new, len(given) - new, conflicts, len({id for id in self.hits if self._hit(id, attribution)} - before))

    def seen(
        self, recommender: str, users: Collection[int], since: datetime | None = None, limit: int = 1000
    ) -> Mapping[int, Mapping[int, datetime]]:
        newest: dict[int, dict[int, datetime]] = {}
        for one, at, good in self._between(recommender, since, None):
            if good and one.user in users:
                of_user = newest.setdefault(one.user, {})
                of_user[one.item] = max(at, of_user.get(one.item, at))
        return {user: dict(sorted(items.items(), key=lambda one: one[1], reverse=True)[:limit]) for user, items in newest.items()}

    def count(self, recommender: str, since: datetime, until: datetime, limit: int) -> int:
        return min(limit, len(self._between(recommender, since, until)))

    def export(self, recommender: str, since: datetime | None, until: datetime, to: Path) -> int:
        rows = sorted(self._between(recommender, since, until), key=lambda row: row[1])
        with to.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(("user", "item", "value", "time", "kind"))
            for one, at, _ in rows:
                writer.writerow((one.user, one.item, one.value, f"{at.timestamp():.6f}".rstrip("0").rstrip("."), one.kind))
        return len(rows)

    # KpiSource

    def samples(self, recommender: str, generation: int, window: timedelta, attribution: timedelta, now: datetime) -> Mapping[str, Sample]:
        users: dict[tuple[str, int], list[Impression]] = {}
        for one in self._under(recommender, generation):
            if one.fallback != SERVER_AWAY:
                users.setdefault((one.variant, one.user), []).append(one)
        samples: dict[str, Sample] = {}
        for (variant, _), answers in users.items():
            first = min(one.at for one in answers)
            if first <= now - window - attribution:
                counted = [one for one in answers if one.at <= first + window]
                hits = sum(self._hit(one.request_id, attribution) for one in counted)
                samples[variant] = _with(samples.get(variant, Sample()), len(counted), hits)
        return samples

    def traffic(self, recommender: str, generation: int, now: datetime) -> Mapping[str, Traffic]:
        variants: dict[str, list[Impression]] = {}
        for one in sorted(self._under(recommender, generation), key=lambda one: one.at, reverse=True):
            if one.at <= now:
                variants.setdefault(one.variant, []).append(one)
        looked = min((len(own) for mine in variants.values() if (own := _own(mine[:_LOOKED]))), default=0)
        return {variant: _traffic(mine, looked) for variant, mine in variants.items()}

    def hit_rate(self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta) -> HitRate:
        return self._rate([one for one in self._of(recommender, version, since) if one.at < until], attribution)

    def earned(
        self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta, conversions: Collection[str]
    ) -> Earned:
        return self._earned(self._given(recommender, version, since, until), attribution, conversions)

    def parts(
        self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta, conversions: Collection[str]
    ) -> Mapping[Part, Earned]:
        apart: dict[Part, list[Impression]] = {}
        for one in self._given(recommender, version, since, until):
            apart.setdefault(Part(one.variant, one.fallback, one.slices), []).append(one)
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
    ) -> Mapping[int, Earned]:
        apart: dict[int, list[Impression]] = {}
        for one in self._given(recommender, version, since, until):
            apart.setdefault((one.at - since) // every, []).append(one)
        return {step: self._earned(answers, attribution, conversions) for step, answers in apart.items()}

    def showings(self, recommender: str, version: int, since: datetime, until: datetime, limit: int) -> Showings:
        given = self._given(recommender, version, since, until)
        newest = sorted(given, key=lambda one: (one.at, one.request_id), reverse=True)[:limit]
        return Showings(len(newest), Counter(item for one in newest for item in set(one.items)))

    def liked(self, recommender: str, until: datetime, limit: int) -> Mapping[int, int]:
        mine = sorted((at, n, one.item) for n, (one, at, good) in enumerate(self._between(recommender, None, until)) if good)
        return Counter(item for _, _, item in mine[::-1][:limit])

    def _given(self, recommender: str, version: int, since: datetime, until: datetime) -> list[Impression]:
        return [one for one in self._of(recommender, version, since) if one.at < until]

    def _earned(self, answers: Sequence[Impression], attribution: timedelta, conversions: Collection[str]) -> Earned:
        given = {one.request_id: one for one in answers}
        reactions = [(one, answer) for one, at, answer in self._reactions() if answer.request_id in given and at - answer.at <= attribution]
        places = {(answer.request_id, answer.items.index(one.item)) for one, answer in reactions}
        return Earned(
            answers=len(given),
            hits=len({answer.request_id for _, answer in reactions}),
            conversions=len({answer.request_id for one, answer in reactions if one.kind in conversions}),
            revenue=sum(round((one.revenue or 0) * MILLIONTHS) for one, _ in reactions),
            kinds=dict(Counter(one.kind for one, _ in reactions if one.kind is not None)),
            shown=dict(Counter(len(one.items) for one in given.values())),
            clicked=dict(Counter(place for _, place in places)),
        )

    # Sightings

    def likes(self, recommender: str, since: datetime, count: int, newest: bool) -> Sequence[Like]:
        rows = sorted((row for row in self._between(recommender, since, None) if row[2]), key=lambda row: row[1])
        return [Like(one.user, one.item, at) for one, at, _ in (rows[::-1] if newest else rows)[:count]]

    def scores(self, recommender: str, version: int, since: datetime, count: int, newest: bool) -> Sequence[Scored]:
        given = sorted(_own(self._of(recommender, version, since)), key=lambda one: (one.at, one.request_id), reverse=newest)
        return [Scored(one.user, one.score, one.at) for one in given if one.score is not None][:count]

    def blocks(
        self, recommender: str, version: int, since: datetime, until: datetime, every: timedelta, attribution: timedelta
    ) -> Mapping[int, Sample]:
        users: dict[tuple[int, int], list[Impression]] = {}
        for one in _own(self._of(recommender, version, since)):
            if one.at < until:
                users.setdefault(((one.at - since) // every, one.user), []).append(one)
        found: dict[int, Sample] = {}
        for (block, _), answers in users.items():
            hits = sum(self._hit(one.request_id, attribution) for one in answers)
            found[block] = _with(found.get(block, Sample()), len(answers), hits)
        return found

    def newest(self, versions: Mapping[str, int]) -> Mapping[str, Newest]:
        found = {}
        for name, version in versions.items():
            answers = [one.at for one in self.shown.values() if (one.recommender, one.version) == (name, version)]
            events = [at for one, at, _ in self.done if one.recommender == name]
            found[name] = Newest(max(answers, default=None), max(events, default=None))
        return {name: one for name, one in found.items() if one.at is not None}

    # Looking

    def _answer(self, one: Interaction, at: datetime, attribution: timedelta) -> Impression | None:
        """The one that it names, if that can be; else the newest in which this user saw the item."""
        mine = [
            answer
            for answer in self.shown.values()
            if (answer.recommender, answer.user) == (one.recommender, one.user) and one.item in answer.items
        ]
        named = [answer for answer in mine if answer.request_id == one.request_id]
        recent = [answer for answer in mine if answer.at <= at <= answer.at + attribution]
        return named[0] if named else max(recent, key=lambda answer: (answer.at, answer.request_id), default=None)

    def _first(self, one: Interaction) -> Interaction | None:
        """The event that came first under its id."""
        mine = (row[0] for row in self.done if one.id is not None and (row[0].recommender, row[0].id) == (one.recommender, one.id))
        return next(mine, None)

    def _reactions(self) -> Iterator[tuple[Interaction, datetime, Impression]]:
        for (one, at, good), within in zip(self.done, self.within, strict=True):
            answer = self._answer(one, at, within) if good else None
            if answer is not None:
                yield one, at, answer

    def _hit(self, id: str, attribution: timedelta) -> bool:
        return id in self.hits and self.hits[id] - self.shown[id].at <= attribution

    def _rate(self, answers: Sequence[Impression], attribution: timedelta) -> HitRate:
        return HitRate(len(answers), sum(self._hit(one.request_id, attribution) for one in answers))

    def _under(self, recommender: str, generation: int) -> list[Impression]:
        return [one for one in self.shown.values() if (one.recommender, one.generation) == (recommender, generation)]

    def _of(self, recommender: str, version: int, since: datetime) -> list[Impression]:
        mine = (one for one in self.shown.values() if (one.recommender, one.version) == (recommender, version) and one.at >= since)
        return [one for one in mine if one.fallback not in REFUSED]

    def _between(self, recommender: str, since: datetime | None, until: datetime | None) -> list[tuple[Interaction, datetime, bool]]:
        mine = [row for row in self.done if row[0].recommender == recommender]
        return [row for row in mine if (since is None or row[1] >= since) and (until is None or row[1] < until)]


class FakeMirrors:
    """Mirrors, in a dictionary."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int, str], Mirror] = {}

    def add(self, recommender: str, generation: int, gateway: str, mirror: Mirror) -> None:
        self.rows[recommender, generation, gateway] = mirror

    def total(self, recommender: str, generation: int) -> Mirror:
        mine = [row for key, row in self.rows.items() if key[:2] == (recommender, generation)]
        stable: Counter[int] = Counter()
        candidate: Counter[int] = Counter()
        for row in mine:
            stable.update(row.stable)
            candidate.update(row.candidate)
        counts = [sum(getattr(row, name) for row in mine) for name in ("compared", "errors", "dropped")]
        return Mirror(counts[0], counts[1], dict(stable), dict(candidate), sum(row.overlap for row in mine), counts[2])


def _time(one: Interaction) -> datetime:
    if one.at is None:
        raise Invalid("an interaction is stored with its time")
    return one.at


def _with(sample: Sample, answers: int, hits: int) -> Sample:
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
    return [one for one in answers if one.fallback in ANSWERED_BY_VERSION]


def _shares(answers: Iterable[Impression], fallbacks: Collection[str]) -> UserShares:
    users: dict[int, list[bool]] = {}
    for one in answers:
        users.setdefault(one.user, []).append(one.fallback in fallbacks)
    shares = [sum(mine) / len(mine) for mine in users.values()]
    return UserShares(len(shares), sum(shares), sum(share * share for share in shares))


def _traffic(answers: Sequence[Impression], looked: int) -> Traffic:
    """Of one variant, the newest answer first."""
    own = _own(answers)
    scores = [one.score for one in own if one.score is not None]
    counted = [one for one in answers if one.fallback != SERVER_AWAY]
    newest = _own(answers[:_LOOKED])[:looked]
    return Traffic(
        users=len({one.user for one in answers}),
        answers=len(counted),
        errors=len([one for one in answers if one.fallback in VERSION_ERRORS]),
        fallback=_shares(counted, NOT_PERSONAL),
        empty=_shares(counted, (NOTHING_LEFT,)),
        latency=dict(Counter(one.bucket for one in own if one.bucket is not None)),
        scored=len(scores),
        score_total=sum(scores),
        score_squares=sum(score * score for score in scores),
        looked=len(newest),
        shown=len({item for one in newest for item in one.items}),
    )
