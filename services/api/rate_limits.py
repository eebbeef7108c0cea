"""Rate limits of this process: what each token, and each recommender, may cost.

A request costs units, the more work it makes the more. Each token has two budgets: `control` for writes of the control plane, `online` for
recommendations and data. Recommendations also count against the budget of their recommender, which all tokens share. Reads cost nothing. No
token is exempt, not even an admin's: an operator's script that loops stalls others as well, and no token can spend the budget of another.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from shared.domain.errors import Crowded
from shared.telemetry import metrics

MAX_BUCKETS = 10_000
"""Maximum of one kind. Above it, the buckets nearest to full are dropped."""
_ROUNDING = 1e-6
"""Rounding error, in seconds, of sums of times: far less than any request takes."""


class TooFast(Crowded):
    """Budget is used up: `retry_after` says when it has enough again."""

    kind = "rate-limited"

    def __init__(self, message: str, wait: float) -> None:
        super().__init__(message)
        self.retry_after = max(1, math.ceil(wait))


@dataclass(frozen=True)
class RequestCost:
    """Cost and limits of a route's requests."""

    budget: Literal["none", "control", "online"]
    units: int
    """Units of each request; its body costs more."""
    bytes: int = 64 * 1024
    """The largest body."""
    values: int = 16_000
    """The most values of a JSON body."""


FREE = RequestCost("none", 0)
WRITE = RequestCost("control", 1)
RUN = RequestCost("control", 2)
HEAVY = RequestCost("control", 5)
"""Reads a spec, or much of what is stored."""
ALERTS = RequestCost("control", 1, 1024 * 1024, 150_000)
KEYS = RequestCost("online", 1, 256 * 1024)
"""Enough for 10,000 keys of any length."""
ONLINE = RequestCost("online", 1)
BULK = RequestCost("online", 1, 1024 * 1024, 150_000)
"""Events, items, rows of features."""


@dataclass(frozen=True)
class RateLimit:
    """Units per second; 0 switches a limit off."""

    control: float = 0
    online: float = 0
    recommender: float = 0
    failures: float = 0
    """Requests with an unknown token, per client address (IPv6: per /64)."""


BURST = {"control": 20, "online": 5, "recommender": 5, "failures": 10}
"""Seconds' worth of units that a bucket holds."""


class Buckets:
    """Token buckets of one kind, by key. A bucket is a single number, the time at which it is full again; a full bucket needs no entry.

    Only the event loop's thread uses it, so it needs no lock.
    """

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float], most: int = MAX_BUCKETS) -> None:
        """`burst`: seconds in which an empty bucket becomes full."""
        self._unit = 1 / per_second
        self._burst = burst
        self._clock = clock
        self._most = most
        self._full_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def spend(self, key: str, cost: float) -> float:
        """Returns 0, or the seconds to wait without spending. Nothing costs more than a whole bucket holds."""
        now = self._clock()
        before = self._full_at.get(key, 0.0)
        seconds = cost * self._unit
        after = (before if before > now else now) + (seconds if seconds < self._burst else self._burst)
        wait = after - now - self._burst
        if wait > _ROUNDING:
            return wait
        self._full_at[key] = after
        if not before and len(self._full_at) > self._most:
            self._forget(now)
        return 0.0

    def wait(self, key: str) -> float:
        """Returns the seconds until a unit can be spent; spends nothing."""
        wait = self._full_at.get(key, 0.0) - self._clock() + min(self._unit, self._burst) - self._burst
        return wait if wait > _ROUNDING else 0.0

    def _forget(self, now: float) -> None:
        """Drops full buckets first, then those nearest to full, so that an empty bucket stays empty."""
        ordered = sorted((at, key) for key, at in self._full_at.items() if at > now)
        self._full_at = {key: at for at, key in ordered[-self._most // 2 :]}


class RateLimits:
    def __init__(self, limits: RateLimit = RateLimit(), clock: Callable[[], float] = time.monotonic) -> None:
        self._control = _buckets("control", limits.control, clock)
        self._online = _buckets("online", limits.online, clock)
        self._recommenders = _buckets("recommender", limits.recommender, clock)
        self._failures = _buckets("failures", limits.failures, clock)

    def charge(self, work: RequestCost, token: str, recommender: str | None, size: int) -> None:
        """Charges the request, or raises TooFast. `size`: bytes of its body."""
        if work.budget == "online":
            self.charge_online(token, recommender, size)
        elif work.budget == "control" and self._control is not None and (wait := self._control.spend(token, work.units + (size >> 12))):
            raise _too_fast("control", "the token is above its rate of writes", "EYAS_CONTROL_RATE", wait)

    def charge_online(self, token: str, recommender: str | None, size: int) -> None:
        """Charges a unit for the request, and a unit for each KiB of its body."""
        cost = 1 + (size >> 10)
        if self._online is not None and (wait := self._online.spend(token, cost)):
            raise _too_fast("online", "the token is above its rate of requests", "EYAS_ONLINE_RATE", wait)
        if recommender is not None and self._recommenders is not None and (wait := self._recommenders.spend(recommender, cost)):
            raise _too_fast("recommender", f"'{recommender}' is above its rate of requests", "EYAS_RECOMMENDER_RATE", wait)

    def count_failure(self, address: str) -> None:
        """Counts a request with an invalid token from the address."""
        if self._failures is not None:
            self._failures.spend(_client(address), 1)

    def check_failures(self, address: str) -> None:
        if self._failures is not None and (wait := self._failures.wait(_client(address))):
            reason = "too many requests with unknown tokens from this address"
            raise _too_fast("failures", reason, "EYAS_FAILURE_RATE", wait)


def _client(address: str) -> str:
    """Returns the key of a client: its IPv4 address, or its IPv6 network, because one client can use all addresses of a /64."""
    try:
        ip = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    return str(ip.ipv4_mapped or ipaddress.IPv6Network((int(ip), 64), strict=False))


def _buckets(kind: str, per_second: float, clock: Callable[[], float]) -> Buckets | None:
    return Buckets(per_second, BURST[kind], clock) if per_second else None


def _too_fast(limit: str, reason: str, setting: str, wait: float) -> TooFast:
    metrics.LIMITED.labels(limit).inc()
    return TooFast(f"{reason}: wait the seconds of Retry-After, or ask the operator to raise {setting}", wait)
