"""Forgets users: deletes their events and feature values, and names the versions that may have learned from them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from services.control.model_lineage import learned_at
from shared.domain.feature_values import StoredRow
from shared.domain.forgetting import ForgottenUser
from shared.ports import Clock, FeatureHistory, FeatureStore, ForgottenUsers, Registry

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Forgotten:
    """What was deleted of a user, and which versions may still know it."""

    at: datetime
    """Data up to this time is forgotten; later data is that of a new user."""
    interactions: int
    impressions: int
    feature_values: int
    versions: tuple[int, ...]
    """Versions whose data was read before, and that are not collected yet."""
    collected_by: datetime
    """Time by which these versions are collected, unless one still serves or has a tag."""


class Forgetting:
    def __init__(
        self,
        users: ForgottenUsers,
        features: tuple[FeatureStore, FeatureHistory],
        registry: Registry,
        clock: Clock,
        within: timedelta,
    ) -> None:
        self._users = users
        self._store, self._history = features
        self._registry = registry
        self._clock = clock
        self._within = within

    def forget(self, recommender: str, key: int) -> Forgotten:
        """Deletes everything that the database and the feature store have of a user. Can be repeated."""
        values = self._forget_values(recommender, key)
        rows = self._users.forget(recommender, key, self._clock.now)
        values += self._forget_values(recommender, key)  # written meanwhile
        log.info("forgetting: user deleted recommender=%s digest=%s", recommender, self._users.digest.of(key))
        collected = self._registry.collected(recommender)
        versions = tuple(
            version.number
            for version in self._registry.list(recommender)
            if version.number not in collected and learned_at(version, self._registry.get) <= rows.at
        )
        return Forgotten(rows.at, rows.interactions, rows.impressions, values, versions, rows.at + self._within)

    def write_values(self, recommender: str, view: str, rows: Sequence[StoredRow]) -> int:
        """Writes feature values, but those of users who were forgotten later than their event times. Returns how many rows are new."""
        accepted = self._without_forgotten(recommender, rows)
        self._history.append(recommender, view, accepted)
        written = self._store.write(recommender, view, accepted) if accepted else 0
        left = {row.key for row in self._without_forgotten(recommender, accepted)}
        for key in {row.key for row in accepted} - left:  # forgotten meanwhile
            self._forget_values(recommender, key)
        return written

    def replay(self, recommender: str, users: Sequence[ForgottenUser]) -> None:
        """Forgets the users of another ledger, after a restore."""
        times = {user.digest: user.at for user in users}
        for key, at in self._users.digest.matches(self._users.keys(recommender), times).items():
            self._users.forget(recommender, key, partial(_same, at))
        self._users.replay(recommender, users)
        keys = set(self._history.keys(recommender)).union(*(self._store.keys(recommender, view) for view in self._views(recommender)))
        for key in self._users.digest.matches(keys, times):
            self._forget_values(recommender, key)

    def _without_forgotten(self, recommender: str, rows: Sequence[StoredRow]) -> list[StoredRow]:
        times = forgotten_times(self._users, recommender, (row.key for row in rows))
        return [row for row in rows if row.key not in times or row.at > times[row.key]]

    def _forget_values(self, recommender: str, key: int) -> int:
        """Deletes the user's values. Stages publish views of users only."""
        in_store = sum(self._store.forget_key(recommender, view, key) for view in self._views(recommender))
        return self._history.forget_key(recommender, key) + in_store

    def _views(self, recommender: str) -> list[str]:
        return [view for name, view in self._store.marks() if name == recommender]


def forgotten_times(users: ForgottenUsers, recommender: str, keys: Iterable[int]) -> Mapping[int, datetime]:
    """Returns, of these users, when the forgotten ones were forgotten."""
    return users.digest.matches(keys, {user.digest: user.at for user in users.all(recommender)})


def _same(at: datetime) -> datetime:
    return at
