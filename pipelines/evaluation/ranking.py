"""Ranks from scores: each target's rank in the full catalogue and among its negatives, and the items that its user would be shown.

Users are scored in chunks, against the whole catalogue. Memory holds a chunk's scores and negatives, and a few numbers of each case.
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
"""Most scores in memory, negatives included: 16 MiB of float32."""
CHUNK = 131_072
"""Pairs per call of a model."""
SHOWN = 10
_EXACT = 1 << 22
"""Catalogue size up to which float32 holds every half rank."""
_CELLS_PER_NEGATIVE = 4
_SORT_FROM, _MOST_PASSES = 256, 512
"""Scores are sorted, not compared with each target, for more than a target per `_SORT_FROM` scores or `_MOST_PASSES` targets."""
Ranks = NDArray[np.floating[Any]]
Scores = NDArray[Any]


@dataclass(frozen=True)
class CaseRanks:
    """Ranks of cases, in order, from 1."""

    owners: Ints
    """User of each case, by place among the cases' users."""
    full: Ranks
    """Rank in the catalogue without the user's other known likes."""
    among: NDArray[np.int32]
    """Number of items that each rank is among."""
    places: Ranks
    """Rank with the user's other targets included: a place in the list that the user is shown."""
    sampled: Mapping[int, Ranks]
    """Ranks among negatives, by their wanted number."""
    against: Mapping[int, NDArray[np.int32]]
    """Actual number of negatives."""
    shown: NDArray[np.int32]
    """[users, at most SHOWN]: the items that each user is shown, the best first; padded with -1."""
    lost: NDArray[np.bool_] = field(repr=False)
    """Cases whose user or target no model can know: they rank last."""

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def users(self) -> int:
        """Number of ranked users: the first users of the evaluation's sample."""
        return len(self.shown)

    def first(self, users: int) -> CaseRanks:
        """Returns the ranks of the first users."""
        if users >= self.users:
            return self
        end = int(np.searchsorted(self.owners, users))
        cut: dict[str, Any] = {name: getattr(self, name)[:end] for name in ("owners", "full", "among", "places", "lost")}
        several: dict[str, Any] = {
            name: {count: values[:end] for count, values in getattr(self, name).items()} for name in ("sampled", "against")
        }
        return replace(self, shown=self.shown[:users], **cut, **several)


def by_pairs(scorer: Scorer, catalogue: int) -> Every:
    """Wraps a model that scores pair by pair."""

    def every(users: Ints) -> Scores:
        pairs, scores = len(users) * catalogue, np.empty(0)
        for start in range(0, pairs, CHUNK):
            owners, rows = np.divmod(np.arange(start, min(start + CHUNK, pairs)), catalogue)
            part = scorer(users[owners], rows)
            if start == 0:
                scores = np.empty(pairs, part.dtype)
            scores[start : start + CHUNK] = part
        return scores.reshape(len(users), catalogue)

    return every


Tell = Callable[[int], None]
"""Receives the number of further users that have been scored."""


def rank(every: Every, cases: Cases, negatives: Mapping[int, Negatives], shown: int = SHOWN, tell: Tell | None = None) -> CaseRanks:
    """Ranks the cases; `negatives` is keyed by the number of negatives per case. An unknown negative ranks behind every known target."""
    size, count = cases.catalogue, cases.count
    dtype = np.float32 if size < _EXACT else np.float64
    ranked = CaseRanks(
        cases.owners,
        np.empty(count, dtype),
        np.empty(count, np.int32),
        np.empty(count, dtype),
        {wanted: np.empty(count, dtype) for wanted in negatives},
        {wanted: np.empty(count, np.int32) for wanted in negatives},
        np.full((len(cases.users), min(shown, size)), -1, np.int32),
        np.empty(count, bool),
    )
    rows = np.arange(size)
    for first, end in _user_chunks(cases, sum(negatives)):
        _rank_chunk(ranked, every, cases, negatives, first, end, rows)
        if tell is not None:
            tell(end - first)
    return ranked


def _user_chunks(cases: Cases, negatives: int) -> Iterator[tuple[int, int]]:
    """Yields the first user and the end of each chunk: as many users as fit into `CELLS`, at least one."""
    cells = np.cumsum(cases.catalogue + np.diff(cases.offsets) * negatives * _CELLS_PER_NEGATIVE)
    first = 0
    while first < len(cases.users):
        used = cells[first - 1] if first else 0
        end = max(first + 1, int(np.searchsorted(cells, used + CELLS, "right")))
        yield first, end
        first = end


def _rank_chunk(
    ranked: CaseRanks, every: Every, cases: Cases, negatives: Mapping[int, Negatives], first: int, end: int, rows: Ints
) -> None:
    """Writes the ranks of the users `first` to `end` into `ranked`."""
    users = cases.users[first:end]
    keys = np.array([user.user for user in users if user.scorable], dtype=np.int64)
    scores = checked(every(keys)) if len(keys) else np.zeros((1, cases.catalogue), np.float32)
    score_rows = np.maximum(np.cumsum([user.scorable for user in users]) - 1, 0)
    for number, (user, row) in enumerate(zip(users, score_rows, strict=True), first):
        part = slice(int(cases.offsets[number]), int(cases.offsets[number + 1]))
        _rank_targets(ranked, part, user, scores[row] if user.scorable else None, cases.catalogue)
        if user.scorable:
            hidden = np.setdiff1d(user.liked, user.targets)
            shown = best(scores[row], rows, ranked.shown.shape[1] + len(hidden))
            shown = shown[~np.isin(shown, hidden)][: ranked.shown.shape[1]]
            ranked.shown[number, : len(shown)] = shown
    chunk = slice(int(cases.offsets[first]), int(cases.offsets[end]))
    owners = np.repeat(score_rows, np.diff(cases.offsets[first : end + 1]))
    targets, lost = np.concatenate([user.targets for user in users]), ranked.lost[chunk]
    for count, draw in negatives.items():
        drawn = draw(first, end)
        present = np.count_nonzero(drawn != ABSENT, axis=1)
        ranked.against[count][chunk] = present
        ranked.sampled[count][chunk] = np.where(lost, 1 + present, _ranks_among(scores, owners, targets, drawn))


def _rank_targets(ranked: CaseRanks, part: slice, user: UserCases, scores: Scores | None, size: int) -> None:
    """Writes the ranks of a user's targets in the catalogue; `scores` is None for an unknown user."""
    targets = user.known_targets
    excluded = np.union1d(user.liked, targets)
    last = size - len(excluded) + 1
    ranked.among[part] = last
    if scores is None:
        ranked.lost[part], ranked.full[part], ranked.places[part] = True, last, last
        return
    is_known, own = user.targets >= 0, scores[targets]
    above, equal = count_above(scores, own)
    excluded_above, excluded_equal = count_above(scores[excluded], own)
    own_above, own_equal = count_above(own, own)
    full = 1 + (above - excluded_above) + (equal - excluded_equal) / 2
    ranked.lost[part], ranked.full[part], ranked.places[part] = ~is_known, last, last + len(targets)
    ranked.full[part][is_known] = full
    ranked.places[part][is_known] = full + own_above + (own_equal - 1) / 2


def _ranks_among(scores: Scores, owners: Ints, targets: Rows, negatives: NDArray[np.int32]) -> Ranks:
    """Returns the rank of each case's target among its negatives; `owners` holds each case's row of `scores`."""
    own = scores[owners, np.maximum(targets, 0)][:, None]
    others = scores[owners[:, None], np.maximum(negatives, 0)]
    is_known = negatives >= 0
    above, equal = (np.count_nonzero(chosen & is_known, axis=1) for chosen in (others > own, others == own))
    ranks: Ranks = 1 + above + equal / 2
    return ranks


def count_above(scores: Scores, targets: Scores) -> tuple[Ints, Ints]:
    """Returns for each target the number of scores above it, and the number of equal scores."""
    if len(targets) > min(len(scores) // _SORT_FROM, _MOST_PASSES):
        ordered = np.sort(scores)
        ends = np.searchsorted(ordered, targets, "right")
        return len(scores) - ends, ends - np.searchsorted(ordered, targets, "left")
    above = np.array([np.count_nonzero(scores > target) for target in targets], np.int64)
    return above, np.array([np.count_nonzero(scores == target) for target in targets], np.int64)


def checked(scores: Scores) -> Scores:
    if not np.isfinite(scores).all():
        wrong = int(np.count_nonzero(~np.isfinite(scores)))
        raise BadData(f"model scores are not finite: {wrong:,} of {scores.size:,} are NaN or infinite")
    return scores
