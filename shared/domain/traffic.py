"""What the answers of one variant looked like, whether or not anybody liked them: how many, how fast, how many not scored.

Latencies are counted in buckets whose bounds grow by a tenth, so that counts of several gateways add up and a quantile is known to
within a tenth, however many answers there are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

_RATIO = 1.1
_FIRST = 1e-5
MOST_BUCKET = 200
"""The last bucket takes whatever is slower (half an hour)."""

Buckets = Mapping[int, int]


def bucket_of(seconds: float) -> int:
    """The bucket of a latency: the first whose upper bound isn't below it."""
    if seconds <= _FIRST:
        return 0
    return min(MOST_BUCKET, math.ceil(math.log(seconds / _FIRST) / math.log(_RATIO) - 1e-9))


def upper(bucket: int) -> float:
    """The upper bound of a bucket, in seconds."""
    return _FIRST * _RATIO**bucket


def quantile(buckets: Buckets, q: float) -> float | None:
    """The upper bound, in seconds, of the bucket that holds the q-quantile; None where nothing was counted."""
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
    """How many were surely slower: those in buckets that begin at this latency or above it."""
    return sum(count for bucket, count in buckets.items() if bucket and upper(bucket - 1) >= seconds * (1 - 1e-9))


@dataclass(frozen=True)
class UserShares:
    """The share of each user's answers that have a property, summed over users: a user is one observation."""

    users: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.users if self.users else 0.0


@dataclass(frozen=True)
class Traffic:
    """The requests that were assigned to one variant under one generation of a route, whatever their answers were.

    Requests made while the model server as a whole was away count as users only.
    """

    users: int = 0
    """Everybody who was assigned: what the split is checked on."""
    answers: int = 0
    errors: int = 0
    """Of these, how many the version failed: no scores in time, invalid scores, a full queue, an exception."""
    latency: Buckets = field(default_factory=dict)
    """Of the version's own answers: the time of its work for those that were answered together, counted once."""
    scored: int = 0
    score_total: float = 0.0
    score_squares: float = 0.0
    """Over the scored answers: the mean score of the items shown, its sum and the sum of its squares."""
    looked: int = 0
    shown: int = 0
    """Among the newest `looked` answers: how many different items were shown."""
    fallback: UserShares = UserShares()
    """Answers that are not the version's own order, for lack of knowledge of the user or of scores."""
    empty: UserShares = UserShares()
    """Answers without items, because the filters left none."""


@dataclass(frozen=True)
class Mirror:
    """What a shadow showed: requests that the stable version answered and the candidate was asked as well, for nobody to see."""

    compared: int = 0
    errors: int = 0
    """How often the candidate gave no scores, or scores that are no numbers."""
    stable: Buckets = field(default_factory=dict)
    candidate: Buckets = field(default_factory=dict)
    overlap: float = 0.0
    """Sum over the compared requests of the share of the stable's items that the candidate would have shown too."""
    dropped: int = 0
    """Requests that weren't mirrored, since the shadow's queue was full."""

    def plus(self, other: Mirror) -> Mirror:
        return Mirror(
            self.compared + other.compared,
            self.errors + other.errors,
            dict(Counter(self.stable) + Counter(other.stable)),
            dict(Counter(self.candidate) + Counter(other.candidate)),
            self.overlap + other.overlap,
            self.dropped + other.dropped,
        )
