"""What is known of users at the moment: out of the feature store in one round trip, or, without it, by the version itself.

Of each view there may be three rows of a user: what somebody wrote since, what the version was published with, out of the store, and the
same out of the version's own files, where they are small enough to be held. The newest row counts, and one that doesn't name a column
leaves it to the next. A row that is older than the view's time to live counts nowhere. A store that is away or slow costs no answer.
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
from services.gateway.units import Unit
from shared.contracts.online import AWAY, OnlineView
from shared.domain.errors import EyasError
from shared.domain.stored import Stored, StoredRow, is_over, own_place
from shared.ports import FeatureStore, Found
from shared.telemetry import metrics
from shared.telemetry.outages import QUIET, Outages

log = logging.getLogger(__name__)

FRESH = 1.0
"""Seconds that an answer of the store is good for: a user's next request asks for nothing."""
_KEPT = 20_000
_READERS = 8


@dataclass(frozen=True)
class _Known:
    """What the store said of a user, by view: rows that may still grow too old. `until`: how long it is good for."""

    rows: Mapping[str, Sequence[StoredRow]]
    expired: frozenset[str]
    until: float


class UserValues:
    """Safe to share between threads."""

    def __init__(self, store: FeatureStore | None, fresh: float = FRESH, now: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._fresh = fresh
        self._now = now
        self._breaker = Breaker(now=now)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="features")
        self._cache: OrderedDict[tuple[str, int, int], _Known] = OrderedDict()
        self._lock = threading.Lock()
        self._outages = Outages(log, QUIET, now)

    def of(self, recommender: str, unit: Unit, users: Sequence[int], now: datetime, patience: float) -> Sequence[Mapping[str, Stored]]:
        """For each user, by column; what nobody knows isn't there. Never raises for what the store does."""
        known = self._known(recommender, unit, users, now, patience)
        return [self._merged(recommender, unit, user, known.get(user), now) for user in users]

    def close(self) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _known(self, recommender: str, unit: Unit, users: Sequence[int], now: datetime, patience: float) -> dict[int, _Known]:
        found: dict[int, _Known] = {}
        moment = self._now()
        with self._lock:
            for user in set(users):
                cached = self._cache.get((recommender, unit.version, user))
                if cached is not None and cached.until > moment:
                    found[user] = cached
        missing = sorted(set(users) - found.keys())
        asked = self._ask(recommender, unit, missing, now, patience) if missing else None
        if asked is None:
            return found
        until = self._now() + self._fresh
        with self._lock:
            for user in missing:
                found[user] = self._cache[recommender, unit.version, user] = _of_user(asked, unit, user, until)
                self._cache.move_to_end((recommender, unit.version, user))
            while len(self._cache) > _KEPT:
                self._cache.popitem(last=False)
        return found

    def _ask(self, recommender: str, unit: Unit, users: Sequence[int], now: datetime, patience: float) -> Found | None:
        """None where there is no answer in time."""
        if self._store is None or not self._breaker.lets(recommender):
            return None
        views: dict[str, timedelta | None] = {}
        for view in unit.views:
            views |= dict.fromkeys(_places(view, unit), view.ttl)
        began = time.perf_counter()
        good = False
        asked: Future[Found] = self._readers.submit(self._store.read, recommender, views, users, now)
        try:
            found = asked.result(patience)
            good = True
        except TooLate:
            asked.cancel()
            self._missed(f"it took more than {patience:g} s")
            return None
        except Exception as error:
            self._missed(str(error) if isinstance(error, EyasError) else f"{type(error).__name__}: {error}")
            return None
        finally:
            (self._breaker.answered if good else self._breaker.failed)(recommender)
            metrics.FEATURE_SECONDS.labels(recommender).observe(time.perf_counter() - began)
        self._outages.succeed("", "feature store: recovered")
        return found

    def _missed(self, why: str) -> None:
        self._outages.fail("", "feature store: no answer, the versions' own values are used: %s", why)

    def _merged(self, recommender: str, unit: Unit, user: int, known: _Known | None, now: datetime) -> Mapping[str, Stored]:
        values: dict[str, Stored] = {}
        for view in unit.views:
            held = known.rows[view.name] if known is not None else ()
            good = [row for row in held if not is_over(row.at, view.ttl, now)]
            metrics.FEATURE_READS.labels(recommender, view.name, _outcome(known, view, held, good)).inc()
            if good:
                age = now - max(row.at for row in good)
                metrics.FEATURE_AGE.labels(recommender, view.name).observe(age.total_seconds())
            own = unit.own_row(view, user)
            if own is not None and own.at <= now and not is_over(own.at, view.ttl, now):
                good.append(own)
            for row in sorted(good, key=lambda one: one.rank):
                values |= row.values
        return values


def _places(view: OnlineView, unit: Unit) -> list[str]:
    """Where its rows are held: what others write doesn't fit codes that the version made."""
    own = own_place(view.name, unit.version)
    return [own] if view.fitted else [view.name, own]


def _of_user(found: Found, unit: Unit, user: int, until: float) -> _Known:
    rows: dict[str, list[StoredRow]] = {}
    expired: set[str] = set()
    for view in unit.views:
        places = _places(view, unit)
        rows[view.name] = [found.rows[place, user] for place in places if (place, user) in found.rows]
        if any((place, user) in found.expired for place in places):
            expired.add(view.name)
    return _Known(rows, frozenset(expired), until)


def _outcome(known: _Known | None, view: OnlineView, held: Sequence[StoredRow], good: Sequence[StoredRow]) -> str:
    if known is None:
        return AWAY
    if good:
        return "hit"
    return "expired" if held or view.name in known.expired else "missing"
