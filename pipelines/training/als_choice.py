"""Chooses the regularisation of `mf`; large data is first thinned by users."""

from __future__ import annotations

import logging

import numpy as np

from pipelines.training.als import AlsTerms, begin, sweeps
from pipelines.training.likes import LikePairs
from pipelines.training.regularisation_search import best, climb, hold_out_likes

STRENGTHS = (0.001, 0.002, 0.003, 0.005, 0.008, 0.015, 0.03, 0.06, 0.1)
UNJUDGED = 0.03
"""The value for too few likes to search with."""
MOST_PAIRS = 1_000_000
_BEGIN, _SWEEPS = 0.008, 4


def choose_strength(pairs: LikePairs, width: int, unobserved: float, seed: int, log: logging.Logger) -> float:
    held_out = hold_out_likes(_thinned(pairs, seed), seed)
    if held_out is None:
        log.info("regularisation: default used, too few positives to choose it value=%g", UNJUDGED)
        return UNJUDGED

    def judge(strength: float) -> float:
        factors = begin(pairs.user_count, pairs.item_count, width, seed)
        for _ in sweeps(held_out.before, factors, AlsTerms(unobserved, strength), _SWEEPS):
            pass
        return held_out.ndcg(lambda users: factors.users[users] @ factors.items.T)

    return best(climb(STRENGTHS, _BEGIN, judge), "regularisation", log)


def _thinned(pairs: LikePairs, seed: int) -> LikePairs:
    if len(pairs) <= MOST_PAIRS:
        return pairs
    chosen = np.random.default_rng((seed, 47)).random(pairs.user_count) < MOST_PAIRS / len(pairs)
    return pairs.take(np.flatnonzero(chosen[pairs.users]))
