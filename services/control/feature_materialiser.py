"""Loads the features of versions into the feature store: compares desired state with marks at every step.

Desired are the features that were published with each version that the model server must have; a version gets no traffic before all of them
are loaded. Each part is marked after it is loaded: memory stays bounded, and a restart continues at the mark. A store that lost its rows
lost its marks too: it is filled again, including what clients wrote to the views. Features that no version needs are removed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from services.control.forgetting import forgotten_times
from services.control.worker_loop import in_turn
from shared.contracts.online import ONLINE, Online, OnlineView
from shared.contracts.serving import Store
from shared.contracts.strict import read
from shared.domain.errors import Damaged, EyasError, Invalid, NotFound, Unavailable, Unreadable
from shared.domain.feature_values import StoredRow, own_place, version_of
from shared.ports import (
    ArtifactStore,
    Clock,
    FeatureHistory,
    FeatureStore,
    ForgottenUsers,
    RecommenderStore,
    Registry,
    RolloutStore,
    RouteStore,
)
from shared.serving.values_file import ValueRows, read_values
from shared.telemetry import metrics

log = logging.getLogger(__name__)

AT_ONCE = 5_000
"""Rows per write."""
REPLAYED = 1
"""Mark of a view that holds the newest rows of its history."""
TRIM_EVERY = timedelta(hours=1)

_DEAD = (Damaged, NotFound, Invalid, Unreadable, ValueError)
"""Errors that a retry cannot fix."""

Key = tuple[str, int]
Desired = Callable[[], Mapping[str, frozenset[int]]]


def named(routes: RouteStore, rollouts: RolloutStore) -> Mapping[str, frozenset[int]]:
    """Returns the versions that routes name, and those of active rollouts."""
    versions_by_recommender: dict[str, set[int]] = {}
    for record in rollouts.list(active=True, limit=100_000):  # first: a rollout sets its route before it ends
        versions_by_recommender.setdefault(record.recommender, set()).add(record.spec.version)
    for name, route in routes.all().items():
        versions_by_recommender.setdefault(name, set()).update(route.named())
    return {name: frozenset(versions) for name, versions in versions_by_recommender.items()}


class FeatureMaterialiser:
    """Control loop: one control plane at a time calls `step`; all may call `loaded`, which reads the marks."""

    def __init__(
        self,
        desired: Desired,
        registry: Registry,
        artifacts: ArtifactStore,
        recommenders: RecommenderStore,
        stores: tuple[FeatureStore, FeatureHistory],
        clock: Clock,
        forgotten: ForgottenUsers,
        named: Desired | None = None,
    ) -> None:
        """`desired`: the versions that the model server must have (many queries); `named`: versions of routes and active rollouts (two)."""
        self._desired = desired
        self._named = named or desired
        self._registry = registry
        self._artifacts = artifacts
        self._recommenders = recommenders
        self._store, self._history = stores
        self._clock = clock
        self._forgotten = forgotten
        self._views: dict[Key, tuple[OnlineView, ...]] = {}
        self._faults: dict[Key, str] = {}
        self._trimmed: dict[str, datetime] = {}
        self._looked_at: datetime | None = None
        self._waiting = 0

    def due(self) -> float | None:
        """Returns the seconds until a step has work without any change; None if never."""
        return 0.0 if self._waiting or self._faults else None

    def step(self) -> None:
        """Loads one part of each version that lacks some. A fault of one version does not block the others."""
        named = self._named()
        marks = self._store.marks()
        keys = [(name, version) for name, versions in named.items() for version in sorted(versions)]
        self._waiting, fault = in_turn(keys, lambda key: self._version(*key, marks))
        metrics.FEATURE_PARTS_WAITING.set(self._waiting)
        self._forget(named, marks)
        self._trim(named)
        if fault is not None:
            raise fault

    def loaded(self, recommender: str, version: int) -> bool:
        """Returns whether everything that the version was published with is in the store."""
        if self.fault(recommender, version) is not None:
            return False
        try:
            views = self.views(recommender, version)
            marks = self._store.marks() if any(view.parts for view in views) else {}
        except (EyasError, ValueError) as error:  # state unknown
            log.debug("features: reading failed recommender=%s version=%d error=%s", recommender, version, error)
            return False
        return all(marks.get((recommender, own_place(view.name, version)), 0) >= len(view.parts) for view in views)

    def fault(self, recommender: str, version: int) -> str | None:
        """Returns why the version's features can't be loaded; None if no load has failed."""
        return self._faults.get((recommender, version))

    def views(self, recommender: str, version: int) -> tuple[OnlineView, ...]:
        """Returns the views that the version reads from the store; they never change."""
        key = (recommender, version)
        if key not in self._views:
            files = self._registry.get(recommender, version).files
            content = self._artifacts.read(files[ONLINE]) if ONLINE in files else b'{"views": []}'
            self._views[key] = read(Online, json.loads(content), f"{ONLINE} of {recommender} version {version}").views
        return self._views[key]

    def again(self, recommender: str) -> int:
        """Marks all views of a recommender for loading again, while their rows stay; returns the number of views."""
        views = [view for name, view in self._store.marks() if name == recommender]
        for view in views:
            self._store.mark(recommender, view, 0)
        return len(views)

    def drop(self, recommender: str) -> None:
        """Removes rows and history of a deleted recommender. If the store is unavailable, a later step does so."""
        try:
            self._history.forget(recommender)
            for view in [view for name, view in self._store.marks() if name == recommender]:
                self._store.forget(recommender, view)
        except Unavailable as error:
            log.warning("features: dropping failed, it is repeated later recommender=%s error=%s", recommender, error)

    def _version(self, recommender: str, version: int, marks: Mapping[tuple[str, str], int]) -> int:
        """Loads the next part of each view; returns how many parts are left."""
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
                self._forget_users(recommender, place, rows)
            metrics.FEATURES_LOADED.labels(recommender).inc(len(values))
        if self._faults.pop((recommender, version), None) is not None:
            log.info("features: loading recovered recommender=%s version=%d", recommender, version)
        self._store.mark(recommender, place, min(number + 1, len(view.parts)))
        if number + 1 >= len(view.parts):
            log.info("features: view loaded recommender=%s version=%d view=%s rows=%d", recommender, version, view.name, view.rows)

    def _forget_users(self, recommender: str, place: str, rows: Sequence[StoredRow]) -> None:
        """Deletes rows of users who were forgotten later. Called after the write: a forgetting after this call deletes the rows itself."""
        times = forgotten_times(self._forgotten, recommender, (row.key for row in rows))
        for row in rows:
            if row.key in times and row.at <= times[row.key]:
                self._store.forget_key(recommender, place, row.key)

    def _part(self, recommender: str, version: int, view: OnlineView, name: str) -> ValueRows | None:
        """Returns None if the part can never be read."""
        label = f"version {version} of {recommender}: {name}"
        try:
            file = self._registry.get(recommender, version).files.get(name)
            if file is None:
                raise NotFound(f"{label}: not among the version's files")
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
        """Writes the newest rows of the view's history into the store."""
        after: int | None = None
        while rows := self._history.latest(recommender, view, AT_ONCE, after):
            self._store.write(recommender, view, rows)
            self._forget_users(recommender, view, rows)
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
        """Returns the recommenders that have a history; queried once per `TRIM_EVERY`, else empty."""
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
        """Keeps the fault; logs it once."""
        message = str(error)
        if self._faults.get((recommender, version)) != message:
            self._faults[recommender, version] = message
            log.error("features: loading failed recommender=%s version=%d error=%s", recommender, version, message)
