"""Drift looks: compares what users like and are shown now with the version's first days.

A look is taken when a quarter of a window is new, and stands until the next look. Training logs would be the wrong reference:
recommendations change what users like, on the first day already.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from services.monitor.features import ItemFeatures
from shared.contracts.retraining import DriftTrigger
from shared.domain.drift.detectors import LOOKS, detected
from shared.domain.drift.reading import DriftColumn, DriftLook, DriftValue
from shared.domain.drift.seasons import Season, seasons_back, waits_for
from shared.ports import DriftSamples, Like

SCORES = "scores"
"""Column with the scores of answers."""

_JUST_AFTER = timedelta(microseconds=1)


@dataclass(frozen=True)
class MeasuredVersion:
    """Version that is measured."""

    recommender: str
    version: int
    since: datetime


@dataclass(frozen=True)
class _Reference:
    """Fixed reference: a version's first window."""

    served: MeasuredVersion
    count: int
    likes: tuple[Like, ...]
    until: datetime
    """Time of its newest like."""


class DriftLooks:
    """Caches a reference and a look per recommender; both can be computed again from the events."""

    def __init__(self, sightings: DriftSamples, features: ItemFeatures) -> None:
        self._sightings = sightings
        self._features = features
        self._references: dict[str, _Reference] = {}
        self._looks: dict[str, tuple[_Reference, DriftLook]] = {}
        self._seasonal: dict[str, tuple[tuple[MeasuredVersion, int, Season], DriftLook]] = {}

    def newest(self, served: MeasuredVersion, rule: DriftTrigger) -> DriftLook | None:
        """Returns None while there are too few likes for two separate windows."""
        if rule.season != "none":
            return self._newest_of_season(served, rule.min_events, rule.season)
        reference = self._reference(served, rule.min_events)
        if reference is None:
            return None
        cached = self._looks.get(served.recommender)
        last = cached[1].at if cached is not None and cached[0] == reference else None
        wanted, since = (rule.min_events, reference.until) if last is None else (max(rule.min_events // LOOKS, 1), last)
        fresh = self._sightings.likes(served.recommender, since + _JUST_AFTER, wanted, newest=False)
        if len(fresh) < wanted:
            return cached[1] if cached is not None and last is not None else None
        look = self._look(reference)
        self._looks[served.recommender] = (reference, look)
        return look

    def _newest_of_season(self, served: MeasuredVersion, count: int, season: Season) -> DriftLook | None:
        """Compares the newest window with the same hours of the version's first day, or week."""
        question = served, count, season
        cached = self._seasonal.get(served.recommender)
        last = cached[1] if cached is not None and cached[0] == question else None
        wanted, since = (count, served.since) if last is None else (max(count // LOOKS, 1), last.at + _JUST_AFTER)
        if len(self._sightings.likes(served.recommender, since, wanted, newest=False)) < wanted:
            return last
        now = self._sightings.likes(served.recommender, served.since, count, newest=True)
        begin = now[-1].at
        look = DriftLook(served.version, now[0].at, (), waits_for(season, begin - served.since))
        if not look.note:
            back = seasons_back(season, begin - served.since)
            first = self._sightings.likes(served.recommender, begin - back, count, newest=False)
            if len(first) < count or first[-1].at >= begin:
                return last
            columns = self._features.of(served.recommender, served.version).columns(first, now)
            look = replace(look, readings=detected([*columns, self._scores(served, count, season)]))
        self._seasonal[served.recommender] = question, look
        return look

    def liked(self, served: MeasuredVersion, most: int) -> int:
        """Counts likes since the version serves, up to `most`."""
        return len(self._sightings.likes(served.recommender, served.since, most, newest=False))

    def _reference(self, served: MeasuredVersion, count: int) -> _Reference | None:
        cached = self._references.get(served.recommender)
        if cached is not None and (cached.served, cached.count) == (served, count):
            return cached
        likes = self._sightings.likes(served.recommender, served.since, count, newest=False)
        if len(likes) < count:
            return None
        made = _Reference(served, count, tuple(likes), likes[-1].at)
        self._references[served.recommender] = made
        return made

    def _look(self, reference: _Reference) -> DriftLook:
        served, count = reference.served, reference.count
        now = self._sightings.likes(served.recommender, reference.until + _JUST_AFTER, count, newest=True)
        columns = self._features.of(served.recommender, served.version).columns(reference.likes, now)
        return DriftLook(served.version, now[0].at, detected([*columns, self._scores(served, count, "none")]))

    def _scores(self, served: MeasuredVersion, count: int, season: Season) -> DriftColumn:
        """Returns the scores of answers, at first and now."""
        now = self._sightings.scores(served.recommender, served.version, served.since, count, newest=True)
        since = served.since
        if season != "none" and now:
            since = now[-1].at - seasons_back(season, now[-1].at - served.since)
        first = self._sightings.scores(served.recommender, served.version, since, count, newest=False)
        sides = (tuple(DriftValue(scored.user, (), scored.score) for scored in side) for side in (first, now))
        return DriftColumn("scores", SCORES, *sides)
