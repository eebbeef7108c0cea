"""KPI history of a recommender: what each version earned over time, with confidence intervals."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from shared.domain.errors import Invalid
from shared.domain.route import Route
from shared.domain.sequential_test import VariantSample
from shared.ports import Clock, DriftSamples, NewestTimes, Recommender, RecommenderStore, RouteStore

MOST_STRETCHES = 200
MOST_VERSIONS = 12
"""Versions of one chart: those that answered last."""
_BEGAN = datetime(1970, 1, 1, tzinfo=UTC)
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_MOST_CACHED = 256
_CACHED_SECONDS = 60.0
"""Seconds until a finished stretch is counted again: late events change it."""
_SHARE = 100
"""Multiple of a count's duration until the next count: an open page takes a hundredth of a core at most."""
_TELLING = 30
"""Users from which on a stretch is representative: the hit rate of fewer users is chance."""
_LOOK_BACK = 1000
_BEFORE = 10
_Z = 1.959963984540054


@dataclass(frozen=True)
class KpiPeriod:
    """Stretch of time. Counts users: each is worth the share of their answers that were hits."""

    since: datetime
    until: datetime
    sample: VariantSample

    @property
    def bounds(self) -> tuple[float, float]:
        return bounds(self.sample.mean, self.sample.users)


@dataclass(frozen=True)
class LifeQuery:
    points: int
    since: datetime | None = None
    until: datetime | None = None
    window: timedelta | None = None
    """Without `since`: length of the time before the end, at most back to the recommender's creation."""


@dataclass(frozen=True)
class RecentKpis:
    """Recent earnings of the serving version."""

    newest: datetime | None
    stretches: Sequence[KpiPeriod]


@dataclass(frozen=True)
class VersionHistories:
    since: datetime
    until: datetime
    every: timedelta
    newest: datetime | None
    """Newest answer of the serving version."""
    versions: Mapping[int, Sequence[KpiPeriod]]
    left_out: int
    """Versions that answered earlier in this time, above the limit."""


def bounds(mean: float, users: int) -> tuple[float, float]:
    """Returns Wilson's 95 % interval over users. A user's share of hits varies at most as much as a coin of the same mean, so for users of
    several answers it is rather too wide than too narrow."""
    if not users:
        return 0.0, 1.0
    room = _Z * _Z / users
    middle = (mean + room / 2) / (1 + room)
    half = _Z / (1 + room) * math.sqrt(max(0.0, mean * (1 - mean)) / users + room / users / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def telling(line: Sequence[KpiPeriod]) -> KpiPeriod | None:
    """Returns the newest stretch with enough users; without one, the stretch with most users."""
    enough = [stretch for stretch in line if stretch.sample.users >= _TELLING]
    return enough[-1] if enough else max(line, key=lambda stretch: stretch.sample.users, default=None)


class KpiHistories:
    def __init__(self, recommenders: RecommenderStore, routes: RouteStore, sightings: DriftSamples, clock: Clock) -> None:
        self._recommenders = recommenders
        self._routes = routes
        self._sightings = sightings
        self._clock = clock
        self._counted: OrderedDict[tuple[str, int, timedelta, datetime, timedelta], _Counted] = OrderedDict()

    def of(self, name: str, query: LifeQuery) -> VersionHistories:
        """Returns about `points` periods of equal and round length. Leaves out answers whose attribution hasn't closed. Ends by default
        when the newest answer was counted, so that an unused recommender shows the time of its use."""
        recommender = self._recommenders.get(name)
        now, attribution = self._clock.now(), recommender.spec.rollout.analysis.attribution
        serving = self._routes.get(name)
        activity = self._sightings.newest({name: serving.stable}).get(name) if serving else None
        newest = activity.answer if activity else None
        ends = min(query.until or _last(self._newest_of_any(name, serving, newest), attribution, now), now)
        begins = query.since or (recommender.created_at if query.window is None else max(recommender.created_at, ends - query.window))
        if begins >= ends:
            if query.since or query.until:
                raise Invalid("since: expected a time before `until`, and before now")
            ends = begins + timedelta(seconds=1)
        start, every = _stepped(begins, ends, query.points)
        numbers = self._numbers(name, begins, ends)
        chosen = sorted(sorted(numbers, key=lambda number: numbers[number])[-MOST_VERSIONS:])
        stretches = {number: self._stretches(name, number, start, min(ends, now - attribution), every, attribution) for number in chosen}
        drawn = {number: line for number, line in stretches.items() if line}
        return VersionHistories(start, ends, every, newest, drawn, len(numbers) - len(chosen))

    def _newest_of_any(self, name: str, serving: Route | None, newest: datetime | None) -> datetime | None:
        """Returns the newest answer of the serving version or, if that has had no request since it serves, of versions of earlier routes:
        their earnings are shown after a rollback too."""
        if serving is None or (newest is not None and serving.since is not None and newest >= serving.since):
            return newest
        past = (entry.route for entry in self._routes.history(name, _BEFORE))
        others = {number for route in past for number in (route.stable, route.candidate)} - {None, serving.stable}
        activities = [self._sightings.newest({name: number}).get(name) for number in others if number is not None]
        return max(
            (answer for answer in (newest, *(activity.answer for activity in activities if activity)) if answer is not None), default=None
        )

    def lately(self, recommenders: Sequence[Recommender], points: int, window: timedelta) -> Mapping[str, RecentKpis]:
        """Returns, for each serving recommender, its version's earnings in the last `window` of requests, or since its creation if that is
        shorter."""
        now, routes = self._clock.now(), self._routes.all()
        serving = {recommender.name: routes[recommender.name].stable for recommender in recommenders if recommender.name in routes}
        activities = self._sightings.newest(serving)
        return {
            recommender.name: self._lately(recommender, serving[recommender.name], activities.get(recommender.name), points, window, now)
            for recommender in recommenders
            if recommender.name in serving
        }

    def _lately(
        self, recommender: Recommender, version: int, activity: NewestTimes | None, points: int, window: timedelta, now: datetime
    ) -> RecentKpis:
        if activity is None or activity.answer is None:
            return RecentKpis(None, ())
        attribution = recommender.spec.rollout.analysis.attribution
        ends = _last(activity.answer, attribution, now)
        start, every = _stepped(max(recommender.created_at, ends - window), ends, points)
        return RecentKpis(
            activity.answer, self._stretches(recommender.name, version, start, min(ends, now - attribution), every, attribution)
        )

    def _numbers(self, name: str, since: datetime, until: datetime) -> dict[int, datetime]:
        """Returns the versions that were on the route in this time, and until when."""
        numbers: dict[int, datetime] = {}
        for entry in self._routes.history(name, _LOOK_BACK):
            began = entry.route.since
            if began is not None and began < until:
                for number in (entry.route.stable, entry.route.candidate):
                    if number is not None and (entry.until is None or entry.until > since):
                        numbers.setdefault(number, entry.until or until)
            if began is not None and began <= since:
                break
        return numbers

    def _stretches(
        self, name: str, number: int, start: datetime, until: datetime, every: timedelta, attribution: timedelta
    ) -> Sequence[KpiPeriod]:
        """Counts finished stretches once a minute at most, and the current stretch whenever there is more of it."""
        if until <= start:
            return ()
        key = (name, number, every, start, attribution)
        counted, began = self._counted.get(key), time.monotonic()
        if counted is None or began >= counted.expires or counted.until > until:
            counted = _Counted(start, {}, 0.0)
        if counted.until < until:
            over = (counted.until - start) // every
            samples = {index: sample for index, sample in counted.samples.items() if index < over}
            latest = self._sightings.blocks(name, number, start + over * every, until, every, attribution)
            took = time.monotonic() - began
            expires = counted.expires if samples else began + max(_CACHED_SECONDS, _SHARE * took)
            counted = _Counted(until, {**samples, **{over + index: sample for index, sample in latest.items()}}, expires)
            self._counted[key] = counted
        self._counted.move_to_end(key)
        while len(self._counted) > _MOST_CACHED:
            self._counted.popitem(last=False)
        return [
            KpiPeriod(start + at * every, min(until, start + (at + 1) * every), sample)
            for at, sample in sorted(counted.samples.items())
            if sample.users
        ]


@dataclass(frozen=True)
class _Counted:
    """Counts of a version up to a time; `expires` is a time of the monotonic clock."""

    until: datetime
    samples: Mapping[int, VariantSample]
    expires: float


def _last(newest: datetime | None, attribution: timedelta, now: datetime) -> datetime:
    """Returns when the newest answer was counted."""
    return now if newest is None else min(now, newest + attribution + timedelta(seconds=1))


def _stepped(begins: datetime, ends: datetime, points: int) -> tuple[datetime, timedelta]:
    """Returns the start of the first of about `points` periods, and their length."""
    every = _round((ends - begins) / points)
    return _BEGAN + (begins - _BEGAN) // every * every, every


def _round(wanted: timedelta) -> timedelta:
    """Returns the next longer step of a clock or a calendar."""
    days = math.ceil(wanted / timedelta(days=1))
    return next((timedelta(seconds=seconds) for seconds in _STEPS if timedelta(seconds=seconds) >= wanted), timedelta(days=days))
