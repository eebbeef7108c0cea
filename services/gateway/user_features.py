"""Current feature values of users: from the feature store in one round trip, or from the version's own files.

A view may have three rows of a user: values written later, the version's published values in the store, and the same values from the
version's files if they fit into memory. The newest row counts first; columns that it lacks come from older rows. Rows older than the view's
time to live are ignored. A slow or absent store never costs the answer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from dataclasses import dataclass
from datetime import datetime, timedelta

from services.gateway.breaker import Breaker
from services.gateway.loaded_version import LoadedVersion
from shared.contracts.online import AWAY, OnlineView
from shared.domain.errors import EyasError
from shared.domain.feature_values import Stored, StoredRow, is_over, own_place
from shared.ports import FeatureRows, FeatureStore
from shared.telemetry import metrics
from shared.telemetry.outages import QUIET, Outages

log = logging.getLogger(__name__)

FRESH = 1.0
"""Seconds for which a reading of the store is reused for a user."""
_CACHED_USERS = 20_000
_READERS = 8


@dataclass(frozen=True)
class _StoreRows:
    """A user's rows of the store, by view; they may still expire. `until`: end of reuse."""

    rows: Mapping[str, Sequence[StoredRow]]
    expired: frozenset[str]
    until: float


class UserFeatures:
    """Thread-safe."""

    def __init__(self, store: FeatureStore | None, fresh: float = FRESH, now: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._fresh = fresh
        self._now = now
        self._breaker = Breaker(now=now)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="features")
        self._cache: OrderedDict[tuple[str, int, int], _StoreRows] = OrderedDict()
        self._lock = threading.Lock()
        self._outages = Outages(log, QUIET, now)

    def of(
        self, recommender: str, unit: LoadedVersion, users: Sequence[int], now: datetime, patience: float
    ) -> Sequence[Mapping[str, Stored]]:
        """Returns known values by column for each user. Never raises for a fault of the store."""
        rows_by_user = self._read_rows(recommender, unit, users, now, patience)
        return [self._merged(recommender, unit, user, rows_by_user.get(user), now) for user in users]

    def close(self) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _read_rows(
        self, recommender: str, unit: LoadedVersion, users: Sequence[int], now: datetime, patience: float
    ) -> dict[int, _StoreRows]:
        rows_by_user: dict[int, _StoreRows] = {}
        moment = self._now()
        with self._lock:
            for user in set(users):
                cached = self._cache.get((recommender, unit.version, user))
                if cached is not None and cached.until > moment:
                    rows_by_user[user] = cached
        missing = sorted(set(users) - rows_by_user.keys())
        response = self._ask(recommender, unit, missing, now, patience) if missing else None
        if response is None:
            return rows_by_user
        until = self._now() + self._fresh
        with self._lock:
            for user in missing:
                rows_by_user[user] = self._cache[recommender, unit.version, user] = _of_user(response, unit, user, until)
                self._cache.move_to_end((recommender, unit.version, user))
            while len(self._cache) > _CACHED_USERS:
                self._cache.popitem(last=False)
        return rows_by_user

    def _ask(self, recommender: str, unit: LoadedVersion, users: Sequence[int], now: datetime, patience: float) -> FeatureRows | None:
        """Returns None if the store does not answer in time."""
        if self._store is None or not self._breaker.lets(recommender):
            return None
        views: dict[str, timedelta | None] = {}
        for view in unit.views:
            views |= dict.fromkeys(_places(view, unit), view.ttl)
        began = time.perf_counter()
        good = False
        future: Future[FeatureRows] = self._readers.submit(self._store.read, recommender, views, users, now)
        try:
            response = future.result(patience)
            good = True
        except TooLate:
            future.cancel()
            self._missed(f"no answer within {patience:g} s")
            return None
        except Exception as error:
            self._missed(str(error) if isinstance(error, EyasError) else f"{type(error).__name__}: {error}")
            return None
        finally:
            (self._breaker.answered if good else self._breaker.failed)(recommender)
            metrics.FEATURE_SECONDS.labels(recommender).observe(time.perf_counter() - began)
        self._outages.succeed("", "feature store: recovered")
        return response

    def _missed(self, why: str) -> None:
        self._outages.fail("", "feature store: unavailable, the versions' own values are used reason=%s", why)

    def _merged(
        self, recommender: str, unit: LoadedVersion, user: int, store_rows: _StoreRows | None, now: datetime
    ) -> Mapping[str, Stored]:
        values: dict[str, Stored] = {}
        for view in unit.views:
            view_rows = store_rows.rows[view.name] if store_rows is not None else ()
            good = [row for row in view_rows if not is_over(row.at, view.ttl, now)]
            metrics.FEATURE_READS.labels(recommender, view.name, _outcome(store_rows, view, view_rows, good)).inc()
            if good:
                age = now - max(row.at for row in good)
                metrics.FEATURE_AGE.labels(recommender, view.name).observe(age.total_seconds())
            own = unit.own_row(view, user)
            if own is not None and own.at <= now and not is_over(own.at, view.ttl, now):
                good.append(own)
            for row in sorted(good, key=lambda stored_row: stored_row.rank):
                values |= row.values
        return values


def _places(view: OnlineView, unit: LoadedVersion) -> list[str]:
    """Returns where the view's rows are stored. A fitted view has codes of one version, so rows of other writers do not fit."""
    own = own_place(view.name, unit.version)
    return [own] if view.fitted else [view.name, own]


def _of_user(response: FeatureRows, unit: LoadedVersion, user: int, until: float) -> _StoreRows:
    rows: dict[str, list[StoredRow]] = {}
    expired: set[str] = set()
    for view in unit.views:
        places = _places(view, unit)
        rows[view.name] = [response.rows[place, user] for place in places if (place, user) in response.rows]
        if any((place, user) in response.expired for place in places):
            expired.add(view.name)
    return _StoreRows(rows, frozenset(expired), until)


def _outcome(store_rows: _StoreRows | None, view: OnlineView, view_rows: Sequence[StoredRow], good: Sequence[StoredRow]) -> str:
    if store_rows is None:
        return AWAY
    if good:
        return "hit"
    return "expired" if view_rows or view.name in store_rows.expired else "missing"
