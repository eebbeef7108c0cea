"""How sure a mean is: bootstrap intervals over users, for the cases of one user are no independent looks.

Users are drawn with replacement, as many as there are, again and again; what the mean comes to in the middle 95 per cent of the draws is
the interval. Vectorised and seeded; equal users are drawn for every contender, so that differences can be drawn as well. With
more than `MOST` users, groups of users are drawn: groups of independent users are independent too.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

import numpy as np

from pipelines.evaluation.metrics import Floats
from pipelines.evaluation.per_user import Ints, PerUser

TIMES, LEVEL = 1_000, 0.95
MOST = 20_000
"""How many users are drawn from; of more users, so many groups of users."""
_CELLS, _DRAWN = 1 << 20, 1 << 18
Interval = tuple[float, float]
Name = TypeVar("Name", bound=Hashable)


def intervals(observed: Mapping[Name, PerUser], seed: int, times: int = TIMES, level: float = LEVEL) -> dict[Name, Interval | None]:
    """By name; the same draws for all. None where every user says the same, or there is but one: then draws can't tell how sure it is."""
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
    """Of users, by more than sums are rounded by."""
    return len(means) > 0 and float(np.ptp(means)) > 1e-12 * float(np.abs(means).max())


def _pair(ends: list[float]) -> Interval:
    return ends[0], ends[1]


def difference(first: PerUser, other: PerUser) -> PerUser:
    """By user, case by case: what the first earns more."""
    return PerUser(first.owners, first.values - other.values)


def _drawn(sums: Floats, counts: Floats, random: np.random.Generator, times: int) -> Floats:
    """[times, metrics]: the mean of each draw."""
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
