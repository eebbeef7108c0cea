"""Bootstrap confidence intervals of means over users, because the cases of a user are not independent.

Users are drawn with replacement, as many as there are, many times; the interval holds the middle 95 per cent of the drawn means. The draws
are vectorised and seeded; every contender gets the same draws, so that differences have intervals too. With more than `MOST` users, groups
of users are drawn: groups of independent users are independent as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

import numpy as np

from pipelines.evaluation.metrics import Floats
from pipelines.evaluation.per_user import Ints, PerUser

TIMES, LEVEL = 1_000, 0.95
MOST = 20_000
"""Most users to draw from; more users are put into this many groups."""
_CELLS, _DRAWN = 1 << 20, 1 << 18
Interval = tuple[float, float]
Name = TypeVar("Name", bound=Hashable)


def intervals(observed: Mapping[Name, PerUser], seed: int, times: int = TIMES, level: float = LEVEL) -> dict[Name, Interval | None]:
    """Returns intervals by name, with the same draws for all. None if draws cannot vary: equal values of all users, or a single user."""
    if not observed:
        return {}
    present = np.zeros(1 + max(int(observations.owners.max(initial=-1)) for observations in observed.values()), bool)
    for observations in observed.values():
        present[observations.owners] = True
    users = np.flatnonzero(present)
    names, width = list(observed), max(1, _CELLS // max(1, min(len(users), MOST)))
    bounds: dict[Name, Interval | None] = {}
    for at in range(0, len(names), width):
        bounds |= _of_some({name: observed[name] for name in names[at : at + width]}, users, seed, times, (1 - level) / 2)
    return bounds


def _of_some(observed: Mapping[Name, PerUser], users: Ints, seed: int, times: int, tail: float) -> dict[Name, Interval | None]:
    drawn = min(len(users), MOST)
    sums, counts = np.zeros((drawn, len(observed))), np.zeros((drawn, len(observed)))
    for column, observations in enumerate(observed.values()):
        places = np.searchsorted(users, observations.owners) % drawn
        sums[:, column] = np.bincount(places, observations.values, drawn)
        counts[:, column] = np.bincount(places, minlength=drawn)
    means = _drawn(sums, counts, np.random.default_rng((seed, 71)), times)
    sure = [_differ(sums[there, column] / counts[there, column]) for column, there in enumerate((counts > 0).T)]
    ends = np.nanquantile(means[:, sure], [tail, 1 - tail], axis=0) if any(sure) else np.empty((2, 0))
    end_pairs = iter(ends.T.tolist())
    return {name: _pair(next(end_pairs)) if is_sure else None for name, is_sure in zip(observed, sure, strict=True)}


def _differ(means: Floats) -> bool:
    """Returns whether the users' means differ by more than rounding."""
    return len(means) > 0 and float(np.ptp(means)) > 1e-12 * float(np.abs(means).max())


def _pair(ends: list[float]) -> Interval:
    return ends[0], ends[1]


def difference(first: PerUser, other: PerUser) -> PerUser:
    """Returns the difference of both values, case by case."""
    return PerUser(first.owners, first.values - other.values)


def _drawn(sums: Floats, counts: Floats, random: np.random.Generator, times: int) -> Floats:
    """Returns [times, metrics]: the mean of each draw."""
    users, means = len(sums), []
    step = max(1, _DRAWN // max(1, users))
    for at in range(0, times if users else 0, step):
        draws = min(step, times - at)
        chosen = random.integers(users, size=(draws, users)) + np.arange(draws)[:, None] * users
        weights = np.bincount(chosen.ravel(), minlength=draws * users).reshape(draws, users).astype(np.float64)
        totals = weights @ counts
        with np.errstate(invalid="ignore", divide="ignore"):
            means.append(np.where(totals > 0, weights @ sums / totals, np.nan))
    return np.concatenate(means) if means else np.empty((0, sums.shape[1]))
