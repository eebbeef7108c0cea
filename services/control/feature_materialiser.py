"""Puts into the feature store what versions are to be asked with: desired against marked, at every step.

Desired is what a version was published with, of every version that the model server is to have; a version takes no traffic before all of
it is there. Parts are loaded one at a time, each marked when it is in, so memory is bounded, whoever is killed goes on where it was, and
a store that lost everything (its marks with the rows) is filled anew, with what others wrote to the views as well. What no version needs
any more is forgotten.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from shared.contracts.online import ONLINE, Online, OnlineView
from shared.contracts.serving import Store
from shared.contracts.strict import read
from shared.domain.errors import Damaged, EyasError, Invalid, NotFound, Unavailable, Unreadable
from shared.domain.feature_values import own_place, version_of
from shared.ports import ArtifactStore, Clock, FeatureHistory, FeatureStore, RecommenderStore, Registry, RolloutStore, RouteStore
from shared.serving.values_file import Values, read_values
from shared.telemetry import metrics

log = logging.getLogger(__name__)

AT_ONCE = 5_000
"""Rows of one write."""
REPLAYED = 1
"""The mark of a view that holds the newest of its history."""
TRIM_EVERY = timedelta(hours=1)

_DEAD = (Damaged, NotFound, Invalid, Unreadable, ValueError)
"""What no other try can mend."""

Key = tuple[str, int]
Desired = Callable[[], Mapping[str, frozenset[int]]]


def named(routes: RouteStore, rollouts: RolloutStore) -> Mapping[str, frozenset[int]]:
    """The versions that a route names, and those of rollouts under way."""
    versions_by_recommender: dict[str, set[int]] = {}
    for record in rollouts.list(active=True, limit=100_000):  # first: a rollout puts its route before it ends
        versions_by_recommender.setdefault(record.recommender, set()).add(record.spec.version)
    for name, route in routes.all().items():
        versions_by_recommender.setdefault(name, set()).update(route.named())
    return {name: frozenset(versions) for name, versions in versions_by_recommender.items()}


class FeatureMaterialiser:
    """One of several control planes does `step`; all may ask `loaded`, which the marks answer."""

    def __init__(
        self,
        desired: Desired,
        registry: Registry,
        artifacts: ArtifactStore,
        recommenders: RecommenderStore,
        stores: tuple[FeatureStore, FeatureHistory],
        clock: Clock,
        named: Desired | None = None,
    ) -> None:
        """`desired`: the versions that the model server is to have, which takes many questions; `named`: those that are routed or on their
        way, which takes two."""
        self._desired = desired
        self._named = named or desired
        self._registry = registry
        self._artifacts = artifacts
        self._recommenders = recommenders
        self._store, self._history = stores
        self._clock = clock
        self._views: dict[Key, tuple[OnlineView, ...]] = {}
        self._faults: dict[Key, str] = {}
        self._trimmed: dict[str, datetime] = {}
        self._looked_at: datetime | None = None
        self._waiting = 0

    def due(self) -> float | None:
        """In how many seconds a step has something to do although nothing has changed; None if never."""
        return 0.0 if self._waiting or self._faults else None

    def step(self) -> None:
        """One part of each version that lacks some. A fault of one version holds up no other."""
        named = self._named()
        marks = self._store.marks()
        waiting, fault = 0, None
        for key in [(name, version) for name, versions in named.items() for version in sorted(versions)]:
            try:
                waiting += self._version(*key, marks)
            except Unavailable as error:  # said when all others had their turn
                fault = error
        self._waiting = waiting
        metrics.FEATURE_PARTS_WAITING.set(waiting)
        self._forget(named, marks)
        self._trim(named)
        if fault is not None:
            raise fault

    def loaded(self, recommender: str, version: int) -> bool:
        """Whether all that the version was published with is in the store."""
        if self.fault(recommender, version) is not None:
            return False
        try:
            views = self.views(recommender, version)
            marks = self._store.marks() if any(view.parts for view in views) else {}
        except (EyasError, ValueError) as error:  # nobody knows
            log.debug("features of %s version %d: %s", recommender, version, error)
            return False
        return all(marks.get((recommender, own_place(view.name, version)), 0) >= len(view.parts) for view in views)

    def fault(self, recommender: str, version: int) -> str | None:
        """Why what it was published with can't be loaded, if it was tried and can't."""
        return self._faults.get((recommender, version))

    def views(self, recommender: str, version: int) -> tuple[OnlineView, ...]:
        """What the version reads out of the store; it never changes."""
        key = (recommender, version)
        if key not in self._views:
            files = self._registry.get(recommender, version).files
            content = self._artifacts.read(files[ONLINE]) if ONLINE in files else b'{"views": []}'
            self._views[key] = read(Online, json.loads(content), f"{ONLINE} of {recommender} version {version}").views
        return self._views[key]

    def again(self, recommender: str) -> int:
        """All that is held of it will be loaded anew, while the rows stand. Returns of how many views."""
        views = [view for name, view in self._store.marks() if name == recommender]
        for view in views:
            self._store.mark(recommender, view, 0)
        return len(views)

    def drop(self, recommender: str) -> None:
        """All that was held or written of it: it was deleted. What can't be dropped now goes with a later step."""
        try:
            self._history.forget(recommender)
            for view in [view for name, view in self._store.marks() if name == recommender]:
                self._store.forget(recommender, view)
        except Unavailable as error:
            log.warning("features of %s, which was deleted, are dropped later: %s", recommender, error)

    def _version(self, recommender: str, version: int, marks: Mapping[tuple[str, str], int]) -> int:
        """Returns how many parts are still to be loaded."""
        left = 0
        try:
            views = self.views(recommender, version)
        except _DEAD as error:
            self._failed(recommender, version, error)
            return 0
        for view in views:
            place = own_place(view.name, version)
            done = marks.get((recommender, place), -1)
            if not view.fitted and marks.get((recommender, view.name), 0) < REPLAYED:
                self._replay(recommender, view.name)
            if done < len(view.parts):
                left += len(view.parts) - done - 1
                self._load(recommender, version, view, max(0, done))
        return left

    def _load(self, recommender: str, version: int, view: OnlineView, number: int) -> None:
        place = own_place(view.name, version)
        if number < len(view.parts):
            values = self._part(recommender, version, view, view.parts[number])
            if values is None:
                return
            for start in range(0, len(values), AT_ONCE):
                rows = [values.row(n, view.columns) for n in range(start, min(start + AT_ONCE, len(values)))]
                self._store.write(recommender, place, rows)
            metrics.FEATURES_LOADED.labels(recommender).inc(len(values))
        if self._faults.pop((recommender, version), None) is not None:
            log.info("features of %s version %d: going on", recommender, version)
        self._store.mark(recommender, place, min(number + 1, len(view.parts)))
        if number + 1 >= len(view.parts):
            log.info("features of %s version %d: view '%s' holds %d rows", recommender, version, view.name, view.rows)

    def _part(self, recommender: str, version: int, view: OnlineView, name: str) -> Values | None:
        """None where it will never be had."""
        label = f"version {version} of {recommender}: {name}"
        try:
            file = self._registry.get(recommender, version).files.get(name)
            if file is None:
                raise NotFound(f"{label}: it isn't among the version's files")
            content = self._artifacts.read(file)
        except _DEAD as error:
            self._failed(recommender, version, error)
            return None
        try:
            return read_values(content, view, label)
        except Unavailable as error:
            self._failed(recommender, version, error)
            return None

    def _replay(self, recommender: str, view: str) -> None:
        """What was written to the view, as far as it still counts."""
        after: int | None = None
        while rows := self._history.latest(recommender, view, AT_ONCE, after):
            self._store.write(recommender, view, rows)
            after = rows[-1].key
        self._store.mark(recommender, view, REPLAYED)

    def _forget(self, named: Mapping[str, frozenset[int]], marks: Mapping[tuple[str, str], int]) -> None:
        for recommender in self._gone({name for name, _ in marks} | self._written()):
            self.drop(recommender)
        of_versions = [(*place, version) for place in marks if (version := version_of(place[1])) is not None]
        doubted = [stored_view for stored_view in of_versions if stored_view[2] not in named.get(stored_view[0], ())]
        desired = self._desired() if doubted else {}
        for recommender, view, version in doubted:
            if version not in desired.get(recommender, ()):
                self._store.forget(recommender, view)

    def _written(self) -> set[str]:
        """The recommenders that anything was written of; looked up now and then."""
        now = self._clock.now()
        if self._looked_at is not None and now - self._looked_at < TRIM_EVERY:
            return set()
        self._looked_at = now
        return {name for name, _ in self._history.views()}

    def _gone(self, names: Iterable[str]) -> set[str]:
        living = self._recommenders.heads()
        return {name for name in names if name not in living}

    def _trim(self, recommenders: Iterable[str]) -> None:
        now = self._clock.now()
        for recommender in recommenders:
            if now - self._trimmed.get(recommender, now - TRIM_EVERY) >= TRIM_EVERY:
                self._trimmed[recommender] = now
                self._history.trim(recommender, now - self._keep(recommender))

    def _keep(self, recommender: str) -> timedelta:
        try:
            return self._recommenders.get(recommender).spec.serve.store.keep
        except (NotFound, Unreadable):
            return Store().keep

    def _failed(self, recommender: str, version: int, error: Exception) -> None:
        """Said once."""
        message = str(error)
        if self._faults.get((recommender, version)) != message:
            self._faults[recommender, version] = message
            log.error("features of %s version %d can't be loaded: %s", recommender, version, message)
