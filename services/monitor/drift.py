"""Looks at what users like and are shown: the version's first days against now.

A look is taken when a quarter of a window is new, and stands until the next one: whoever asks in between gets the same. Training
logs would be the wrong reference: what is recommended changes what is liked, on the first day already.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from services.monitor.features import ItemFeatures
from shared.contracts.retraining import DriftTrigger
from shared.domain.drift.detectors import LOOKS, detected
from shared.domain.drift.reading import Column, Look, Value
from shared.ports import Like, Sightings

SCORES = "scores"
"""The column of what answers promise."""

_JUST_AFTER = timedelta(microseconds=1)


@dataclass(frozen=True)
class Served:
    """Which version is looked at."""

    recommender: str
    version: int
    since: datetime


@dataclass(frozen=True)
class _Reference:
    """What is as it was: a version's first window."""

    served: Served
    count: int
    likes: tuple[Like, ...]
    until: datetime
    """Its newest like."""


class DriftLooks:
    """Keeps one reference and one look for each recommender; both can be had again from the events."""

    def __init__(self, sightings: Sightings, features: ItemFeatures) -> None:
        self._sightings = sightings
        self._features = features
        self._references: dict[str, _Reference] = {}
        self._looks: dict[str, tuple[_Reference, Look]] = {}

    def newest(self, served: Served, rule: DriftTrigger) -> Look | None:
        """None while there are too few likes for two windows apart."""
        reference = self._reference(served, rule.min_events)
        if reference is None:
            return None
        known = self._looks.get(served.recommender)
        last = known[1].at if known is not None and known[0] == reference else None
        wanted, since = (rule.min_events, reference.until) if last is None else (max(rule.min_events // LOOKS, 1), last)
        fresh = self._sightings.likes(served.recommender, since + _JUST_AFTER, wanted, newest=False)
        if len(fresh) < wanted:
            return known[1] if known is not None and last is not None else None
        look = self._look(reference)
        self._looks[served.recommender] = (reference, look)
        return look

    def liked(self, served: Served, most: int) -> int:
        """Likes since the version serves, counted up to so many."""
        return len(self._sightings.likes(served.recommender, served.since, most, newest=False))

    def _reference(self, served: Served, count: int) -> _Reference | None:
        known = self._references.get(served.recommender)
        if known is not None and (known.served, known.count) == (served, count):
            return known
        likes = self._sightings.likes(served.recommender, served.since, count, newest=False)
        if len(likes) < count:
            return None
        made = _Reference(served, count, tuple(likes), likes[-1].at)
        self._references[served.recommender] = made
        return made

    def _look(self, reference: _Reference) -> Look:
        served, count = reference.served, reference.count
        now = self._sightings.likes(served.recommender, reference.until + _JUST_AFTER, count, newest=True)
        columns = self._features.of(served.recommender, served.version).columns(reference.likes, now)
        shown = self._scores(served, count, newest=False), self._scores(served, count, newest=True)
        return Look(served.version, now[0].at, detected([*columns, Column("scores", SCORES, *shown)]))

    def _scores(self, served: Served, count: int, newest: bool) -> tuple[Value, ...]:
        shown = self._sightings.scores(served.recommender, served.version, served.since, count, newest)
        return tuple(Value(one.user, (), one.score) for one in shown)
