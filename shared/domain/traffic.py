"""Traffic of one variant, independent of feedback: counts, latencies, errors and fallbacks of its answers.

Latencies are counted in buckets whose bounds grow by a tenth. So counts of several gateways can be added, and a quantile is exact to a
tenth for any number of answers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

_RATIO = 1.1
_FIRST = 1e-5
MOST_BUCKET = 200
"""The last bucket has all slower answers (half an hour)."""

Buckets = Mapping[int, int]


def bucket_of(seconds: float) -> int:
    """Returns the bucket of a latency: the first with an upper bound that is not lower."""
    if seconds <= _FIRST:
        return 0
    return min(MOST_BUCKET, math.ceil(math.log(seconds / _FIRST) / math.log(_RATIO) - 1e-9))


def upper(bucket: int) -> float:
    """Returns the upper bound of a bucket, in seconds."""
    return _FIRST * _RATIO**bucket


def quantile(buckets: Buckets, q: float) -> float | None:
    """Returns the upper bound, in seconds, of the bucket with the q-quantile; None if nothing was counted."""
    total = sum(buckets.values())
    if not total:
        return None
    rank, counted = math.ceil(q * total), 0
    for bucket in sorted(buckets):
        counted += buckets[bucket]
        if counted >= rank:
            return upper(bucket)
    return upper(max(buckets))


def slower(buckets: Buckets, seconds: float) -> int:
    """Returns how many were certainly slower: the counts of buckets that begin at this latency or above."""
    return sum(count for bucket, count in buckets.items() if bucket and upper(bucket - 1) >= seconds * (1 - 1e-9))


@dataclass(frozen=True)
class UserShares:
    """Share of each user's answers with a property, summed over users: a user is one observation."""

    users: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.users if self.users else 0.0


@dataclass(frozen=True)
class Traffic:
    """Requests that were assigned to one variant under one generation of a route.

    Requests during an outage of the model server count only as users.
    """

    users: int = 0
    """All assigned users; the split is checked on them."""
    answers: int = 0
    errors: int = 0
    """Answers that the version failed: no scores in time, invalid scores, a full queue, an exception."""
    latency: Buckets = field(default_factory=dict)
    """Work time of the version's own answers; answers of one batch count once."""
    scored: int = 0
    score_total: float = 0.0
    score_squares: float = 0.0
    """Of the scored answers: the sum of the mean score of the shown items, and the sum of its squares."""
    looked: int = 0
    shown: int = 0
    """Number of different items in the newest `looked` answers."""
    fallback: UserShares = UserShares()
    """Answers that are not in the version's own order, because the user is unknown or scores are missing."""
    empty: UserShares = UserShares()
    """Answers without items, because the filters left none."""


@dataclass(frozen=True)
class ShadowCounts:
    """Result of a shadow: requests that both versions computed, with only the stable version's answers shown."""

    compared: int = 0
    errors: int = 0
    """Requests for which the candidate gave no scores, or scores that are not numbers."""
    stable: Buckets = field(default_factory=dict)
    candidate: Buckets = field(default_factory=dict)
    overlap: float = 0.0
    """Sum over the compared requests of the share of the stable version's items that the candidate would have shown too."""
    dropped: int = 0
    """Requests that were not mirrored, because the shadow's queue was full."""

    def plus(self, other: ShadowCounts) -> ShadowCounts:
        return ShadowCounts(
            self.compared + other.compared,
            self.errors + other.errors,
            dict(Counter(self.stable) + Counter(other.stable)),
            dict(Counter(self.candidate) + Counter(other.candidate)),
            self.overlap + other.overlap,
            self.dropped + other.dropped,
        )
