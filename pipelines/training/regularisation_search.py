"""Searches the regularisation, and other settings of a solver, on likes held out of the training rows.

If likes have times, the newest are held out, because settings for a stable catalogue lose on a changing one; else a random like of each
user. Each choice is judged by ndcg@10 over the full catalogue, as the evaluation judges the model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.training.likes import Ints, LikePairs, LikesByRow

Every = Callable[[Ints], NDArray[Any]]
"""Returns a row of scores for all items for each of these users."""
FEWEST, MOST_CASES = 100, 2_000
_CHUNK = 1 << 22


@dataclass(frozen=True)
class HeldOut:
    """Likes to learn from, and held-out likes to judge by."""

    before: LikePairs
    liked: LikesByRow
    users: Ints
    items: Ints

    def ndcg(self, every: Every) -> float:
        """Returns ndcg@10; equal scores share the middle rank, so constant scores earn nothing."""
        return sum(self.gain(np.array(every(users)), users, items) for users, items in self.chunks()) / len(self.users)

    def chunks(self) -> Iterator[tuple[Ints, Ints]]:
        """Yields the held-out likes, users and items, in parts whose scores fit into memory."""
        step = max(1, _CHUNK // self.before.item_count)
        for at in range(0, len(self.users), step):
            yield self.users[at : at + step], self.items[at : at + step]

    def gain(self, scores: NDArray[Any], users: Ints, items: Ints) -> float:
        """Returns the sum of ndcg@10 of these likes; overwrites the scores of known likes."""
        targets = scores[np.arange(len(scores)), items]
        for row, user in enumerate(users):
            scores[row, self.liked.of(user)] = -np.inf
        ranks = 1 + (scores > targets[:, None]).sum(axis=1) + (scores == targets[:, None]).sum(axis=1) / 2
        return float(np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0.0).sum())


def hold_out_likes(pairs: LikePairs, seed: int, most: int = MOST_CASES) -> HeldOut | None:
    """Holds likes out; returns None if too few are left to judge by, and at most `most` cases."""
    random = np.random.default_rng((seed, 43))
    held_mask = np.zeros(len(pairs), dtype=bool)
    if pairs.in_order:
        held_mask[len(pairs) - len(pairs) // 10 :] = True
    else:
        held_mask[_one_of_each(pairs, random, most)] = True
    before, after = pairs.take(np.flatnonzero(~held_mask)), pairs.take(np.flatnonzero(held_mask))
    judgeable = np.isin(after.users, before.users) & np.isin(after.items, before.items)
    cases = np.flatnonzero(judgeable)
    if len(cases) < FEWEST:
        return None
    cases = np.sort(random.permutation(cases)[:most])
    return HeldOut(before, before.by_user(), after.users[cases], after.items[cases])


def _one_of_each(pairs: LikePairs, random: np.random.Generator, most: int) -> Ints:
    """Chooses a like of each of up to `most` users with at least two likes."""
    order = random.permutation(len(pairs))
    _, first, counts = np.unique(pairs.users[order], return_index=True, return_counts=True)
    chosen = random.permutation(np.flatnonzero(counts > 1))[:most]
    places: Ints = order[first[chosen]]
    return places


def climb(grid: Sequence[float], start: float, judge: Callable[[float], float]) -> dict[float, float]:
    """Tries values from `start` upwards, then downwards, while they improve; returns the tried values with their results."""
    at = grid.index(start)
    tried = {start: judge(start)}
    for way in (1, -1):
        place = at + way
        while 0 <= place < len(grid):
            tried[grid[place]] = judge(grid[place])
            if tried[grid[place]] <= tried[grid[place - way]]:
                break
            place += way
        if place != at + way:  # values above improved
            break
    return tried


def best(tried: dict[float, float], name: str, log: logging.Logger) -> float:
    chosen = max(tried, key=lambda setting: tried[setting])
    trials = ",".join(f"{setting:g}:{value:.4f}" for setting, value in sorted(tried.items()))
    log.info("%s: chosen by ndcg@10 of held-out positives value=%g trials=%s", name, chosen, trials)
    return chosen
