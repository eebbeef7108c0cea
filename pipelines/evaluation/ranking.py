"""From scores to ranks: where each target stands in the full catalogue and among its negatives, and what its user would have been shown.

Users are scored many at a time, against the whole catalogue; one user's scores are in hand at a time, so memory doesn't grow with users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.evaluation.cases import Cases, Ints, UserCases
from pipelines.evaluation.metrics import middle_rank
from pipelines.evaluation.scorers import Every, Scorer
from shared.domain.errors import BadData

CELLS = 1 << 22
"""Scores in hand at most: 16 MiB of float32."""
CHUNK = 131_072
"""Pairs that a model is asked for at a time."""
SHOWN = 10
Floats = NDArray[np.float64]
Scores = NDArray[Any]


@dataclass(frozen=True)
class Ranked:
    """Of cases, in their order; ranks begin with 1."""

    owners: Ints
    """The user of each, by place among the cases' users."""
    full: Floats
    """In the catalogue, without what the user is known to like but the target."""
    among: Ints
    """How many that rank is among."""
    places: Floats
    """The same with the user's other targets in the way: a place in the list that the user is shown."""
    sampled: Mapping[int, Floats]
    """Among negatives, by how many there are to be."""
    against: Mapping[int, Ints]
    """How many negatives there were."""
    shown: NDArray[np.int32]
    """[users, at most SHOWN]: what each user is shown, the best first; -1 behind the last."""
    lost: NDArray[np.bool_] = field(repr=False)
    """Of cases whose user or target no model can know: they stand last, whatever its scores."""

    def __len__(self) -> int:
        return len(self.owners)


def by_pairs(scorer: Scorer, catalogue: int) -> Every:
    """A model that is asked pair by pair."""
    rows, step = np.arange(catalogue, dtype=np.int64), max(1, CHUNK // catalogue)

    def every(users: Ints) -> Scores:
        parts = [users[at : at + step] for at in range(0, len(users), step)]
        found = [scorer(np.repeat(part, catalogue), np.tile(rows, len(part))).reshape(len(part), catalogue) for part in parts]
        return found[0] if len(found) == 1 else np.concatenate(found)

    return every


Tell = Callable[[int], None]
"""Is told how many users have been scored more."""


def rank(
    every: Every, cases: Cases, negatives: Mapping[int, Sequence[Sequence[Ints]]], shown: int = SHOWN, tell: Tell | None = None
) -> Ranked:
    """`negatives`: for each count, each user and each target the rows that it is ranked among; -1 is one that nobody knows, and is
    behind every target that is known."""
    size, count = cases.catalogue, cases.count
    owners = cases.owners
    full, places, among = np.empty(count), np.empty(count), np.empty(count, np.int64)
    sampled = {wanted: np.empty(count) for wanted in negatives}
    against = {wanted: np.array([len(rows) for drawn in lists for rows in drawn], np.int64) for wanted, lists in negatives.items()}
    lists = np.full((len(cases.users), min(shown, size)), -1, np.int32)
    lost = np.zeros(count, bool)
    at = 0
    for number, (one, scores) in enumerate(zip(cases.users, scored(every, cases, tell), strict=True)):
        part = slice(at, at + len(one.targets))
        at = part.stop
        left = _left(one, size)
        among[part] = left
        lost[part] = (one.targets < 0) | (scores is None)
        if scores is None:
            full[part] = places[part] = left
            for wanted, drawn in negatives.items():
                sampled[wanted][part] = [1 + len(rows) for rows in drawn[number]]
            continue
        visible = scores.copy()
        visible[one.liked] = -np.inf
        known = one.targets[one.targets >= 0]
        visible[known] = scores[known]
        full[part], places[part] = _ranks(one.targets, scores, visible, left)
        for wanted, drawn in negatives.items():
            sampled[wanted][part] = [
                1 + len(rows) if row < 0 else middle_rank(scores[row], scores[rows[rows >= 0]])
                for row, rows in zip(one.targets, drawn[number], strict=True)
            ]
        best = _best(visible, lists.shape[1])
        lists[number, : len(best)] = best
    return Ranked(owners, full, among, places, sampled, against, lists, lost)


def scored(every: Every, cases: Cases, tell: Tell | None = None) -> Iterator[Scores | None]:
    """Each user's scores over the whole catalogue; None for who isn't known to any model."""
    step = max(1, CELLS // cases.catalogue)
    for at in range(0, len(cases.users), step):
        part = cases.users[at : at + step]
        keys = np.array([one.user for one in part if one.known], dtype=np.int64)
        rows = iter(checked(every(keys)) if len(keys) else ())
        for one in part:
            yield next(rows) if one.known else None
        if tell is not None:
            tell(len(part))


def checked(scores: Scores) -> Scores:
    if not np.isfinite(scores).all():
        wrong = int(np.count_nonzero(~np.isfinite(scores)))
        raise BadData(f"the model answers with values that are no numbers: {wrong:,} of {scores.size:,} scores are NaN or infinite")
    return scores


def _left(one: UserCases, size: int) -> int:
    """What a target is ranked among, itself counted."""
    known = one.targets[one.targets >= 0]
    return size - len(np.union1d(one.liked, known)) + 1


def _ranks(targets: Ints, scores: Scores, visible: Scores, last: int) -> tuple[list[float], list[float]]:
    full, places = [], []
    own = scores[targets[targets >= 0]]
    for row in targets:
        if row < 0:
            full.append(float(last))
            places.append(float(last + len(own)))
            continue
        score = scores[row]
        place = middle_rank(score, visible) - 0.5  # it is among them itself
        others = middle_rank(score, own) - 0.5
        places.append(place)
        full.append(place - others + 1)
    return full, places


def _best(visible: Scores, count: int) -> NDArray[np.int64]:
    """The best rows, the best first; of equal ones the first. Without those that are hidden."""
    found = np.argpartition(-visible, count - 1)[:count] if count < len(visible) else np.arange(len(visible))
    found = found[np.lexsort((found, -visible[found]))]
    there: NDArray[np.int64] = found[visible[found] > -np.inf]
    return there
