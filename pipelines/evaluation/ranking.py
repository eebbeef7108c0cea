"""From scores to ranks: where each target stands in the full catalogue and among its negatives, and what its user would have been shown.

Users are scored many at a time, against the whole catalogue. Scores and negatives of those alone are in hand: what stays of a case is a
few numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.evaluation.cases import ABSENT, Cases, Ints, Negatives, Rows, UserCases
from pipelines.evaluation.scorers import Every, Scorer
from shared.domain.errors import BadData
from shared.serving.nearest import best

CELLS = 1 << 22
"""Scores in hand at most, and negatives with them: 16 MiB of float32."""
CHUNK = 131_072
"""Pairs that a model is asked for at a time."""
SHOWN = 10
_EXACT = 1 << 22
"""Up to here float32 holds every half rank."""
_PASS, _MOST_PASSES = 256, 512
"""Sorting scores costs as much as counting them for one target in so many scores, or for so many targets."""
Ranks = NDArray[np.floating[Any]]
Scores = NDArray[Any]


@dataclass(frozen=True)
class Ranked:
    """Of cases, in their order; ranks begin with 1."""

    owners: Ints
    """The user of each, by place among the cases' users."""
    full: Ranks
    """In the catalogue, without what the user is known to like but the target."""
    among: NDArray[np.int32]
    """How many that rank is among."""
    places: Ranks
    """The same with the user's other targets in the way: a place in the list that the user is shown."""
    sampled: Mapping[int, Ranks]
    """Among negatives, by how many there are to be."""
    against: Mapping[int, NDArray[np.int32]]
    """How many negatives there were."""
    shown: NDArray[np.int32]
    """[users, at most SHOWN]: what each user is shown, the best first; -1 behind the last."""
    lost: NDArray[np.bool_] = field(repr=False)
    """Of cases whose user or target no model can know: they stand last, whatever its scores."""

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def users(self) -> int:
        """How many of the evaluation's users were ranked: the first ones."""
        return len(self.shown)

    def first(self, users: int) -> Ranked:
        """The same of fewer users."""
        if users >= self.users:
            return self
        end = int(np.searchsorted(self.owners, users))
        cut: dict[str, Any] = {name: getattr(self, name)[:end] for name in ("owners", "full", "among", "places", "lost")}
        several: dict[str, Any] = {
            name: {count: one[:end] for count, one in getattr(self, name).items()} for name in ("sampled", "against")
        }
        return replace(self, shown=self.shown[:users], **cut, **several)


def by_pairs(scorer: Scorer, catalogue: int) -> Every:
    """A model that is asked pair by pair."""

    def every(users: Ints) -> Scores:
        ends = [*range(CHUNK, len(users) * catalogue, CHUNK), len(users) * catalogue]
        found = np.empty(0)
        for start, end in zip([0, *ends], ends, strict=False):
            owners, rows = np.divmod(np.arange(start, end, dtype=np.int64), catalogue)
            part = scorer(users[owners], rows)
            if start == 0:
                found = np.empty(len(users) * catalogue, part.dtype)
            found[start:end] = part
        return found.reshape(len(users), catalogue)

    return every


Tell = Callable[[int], None]
"""Is told how many users have been scored more."""


def rank(every: Every, cases: Cases, negatives: Mapping[int, Negatives], shown: int = SHOWN, tell: Tell | None = None) -> Ranked:
    """`negatives`: by how many there are to be. One that nobody knows is behind every target that is known."""
    size, count = cases.catalogue, cases.count
    kind = np.float32 if size < _EXACT else np.float64
    found = Ranked(
        cases.owners,
        np.empty(count, kind),
        np.empty(count, np.int32),
        np.empty(count, kind),
        {wanted: np.empty(count, kind) for wanted in negatives},
        {wanted: np.empty(count, np.int32) for wanted in negatives},
        np.full((len(cases.users), min(shown, size)), -1, np.int32),
        np.empty(count, bool),
    )
    rows = np.arange(size)
    for first, end in _parts(cases, sum(negatives)):
        _rank_some(found, every, cases, negatives, (first, end), rows)
        if tell is not None:
            tell(end - first)
    return found


def _parts(cases: Cases, negatives: int) -> Iterator[tuple[int, int]]:
    """Users, from one place to another, whose scores and negatives are in hand together."""
    ends = np.cumsum(cases.catalogue + np.diff(cases.offsets) * negatives * 4)  # a negative takes as much as four scores
    first = 0
    while first < len(cases.users):
        end = int(np.searchsorted(ends, (ends[first - 1] if first else 0) + CELLS, "right"))
        first, start = max(end, first + 1), first
        yield start, first


def _rank_some(found: Ranked, every: Every, cases: Cases, negatives: Mapping[int, Negatives], places: tuple[int, int], rows: Ints) -> None:
    first, end = places
    part = cases.users[first:end]
    keys = np.array([one.user for one in part if one.known], dtype=np.int64)
    scores = checked(every(keys)) if len(keys) else np.zeros((1, cases.catalogue), np.float32)
    row = 0
    for place, one in enumerate(part, first):
        mine = slice(int(cases.offsets[place]), int(cases.offsets[place + 1]))
        _stand(found, mine, one, scores[row] if one.known else None, cases.catalogue)
        if one.known:
            shown = best(scores[row], rows, found.shown.shape[1] + len(one.liked))
            shown = shown[~np.isin(shown, np.setdiff1d(one.liked, one.targets))][: found.shown.shape[1]]
            found.shown[place, : len(shown)] = shown
            row += 1
    mine = slice(int(cases.offsets[first]), int(cases.offsets[end]))
    known = np.cumsum([one.known for one in part]) - 1
    owners = np.repeat(np.maximum(known, 0), np.diff(cases.offsets[first : end + 1]))
    targets = np.concatenate([one.targets for one in part])
    for wanted, draw in negatives.items():
        drawn = draw(first, end)
        found.against[wanted][mine] = (drawn != ABSENT).sum(axis=1)
        found.sampled[wanted][mine] = _among(scores, owners, targets, drawn)
        found.sampled[wanted][mine][found.lost[mine]] = 1 + found.against[wanted][mine][found.lost[mine]]


def _stand(found: Ranked, mine: slice, one: UserCases, scores: Scores | None, size: int) -> None:
    """The ranks of one user's targets in the catalogue."""
    own = one.found
    taken = np.union1d(one.liked, own)
    last = size - len(taken) + 1
    found.among[mine] = last
    there = one.targets >= 0
    if scores is None:
        found.lost[mine], found.full[mine], found.places[mine] = True, last, last
        return
    targets = scores[own]
    (above, level), (hidden, alike), (siblings, same) = (_counts(some, targets) for some in (scores, scores[taken], targets))
    full = 1 + (above - hidden) + (level - alike) / 2
    found.lost[mine], found.full[mine], found.places[mine] = ~there, last, last + len(own)
    found.full[mine][there] = full
    found.places[mine][there] = full + siblings + (same - 1) / 2


def _among(scores: Scores, owners: Ints, targets: Rows, drawn: NDArray[np.int32]) -> Ranks:
    own = scores[owners, np.maximum(targets, 0)][:, None]
    others = scores[owners[:, None], np.maximum(drawn, 0)]
    there = drawn >= 0
    above, level = (np.count_nonzero(some & there, axis=1) for some in (others > own, others == own))
    found: Ranks = 1 + above + level / 2
    return found


def _counts(scores: Scores, targets: Scores) -> tuple[Ints, Ints]:
    """For each target how many scores are above it, and how many equal it."""
    if len(targets) > min(len(scores) // _PASS, _MOST_PASSES):
        ordered = np.sort(scores)
        ends = np.searchsorted(ordered, targets, "right")
        return len(scores) - ends, ends - np.searchsorted(ordered, targets, "left")
    above = np.array([np.count_nonzero(scores > one) for one in targets], np.int64)
    return above, np.array([np.count_nonzero(scores == one) for one in targets], np.int64)


def checked(scores: Scores) -> Scores:
    if not np.isfinite(scores).all():
        wrong = int(np.count_nonzero(~np.isfinite(scores)))
        raise BadData(f"the model answers with values that are no numbers: {wrong:,} of {scores.size:,} scores are NaN or infinite")
    return scores
