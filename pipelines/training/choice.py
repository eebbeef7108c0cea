"""How strongly to regularise, found on the newest likes: what suits a catalogue with a stable taste loses on one that moves.

Each strength is tried for a few sweeps on all but the newest tenth of the likes, and judged by ndcg@10 of that tenth over the full
catalogue, as the evaluation will judge the model. Large data is thinned out by users first.
"""

from __future__ import annotations

import logging

import numpy as np

from pipelines.training.als import Factors, Ints, Likes, Pairs, Terms, begin, sweeps

STRENGTHS = (0.003, 0.01, 0.03, 0.1)
UNJUDGED = 0.03
"""Where there are too few likes to judge by."""
FEWEST, MOST_CASES, MOST_PAIRS = 100, 2_000, 1_000_000
_SWEEPS = 4
_CHUNK = 1 << 22


def choose_strength(pairs: Pairs, width: int, unobserved: float, seed: int, log: logging.Logger) -> float:
    random = np.random.default_rng((seed, 43))
    pairs = _thinned(pairs, random)
    cut = len(pairs) - len(pairs) // 10
    before, after = pairs.take(slice(0, cut)), pairs.take(slice(cut, None))
    known = np.isin(after.users, before.users) & np.isin(after.items, before.items)
    cases = np.flatnonzero(known)
    if len(cases) < FEWEST:
        log.info("too few likes to choose the regularisation by: %g it is", UNJUDGED)
        return UNJUDGED
    cases = np.sort(random.permutation(cases)[:MOST_CASES])
    liked = before.by_user()
    found: dict[float, float] = {}
    for strength in STRENGTHS:
        factors = begin(pairs.user_count, pairs.item_count, width, seed)
        for _ in sweeps(before, factors, Terms(unobserved, strength), _SWEEPS):
            pass
        found[strength] = _ndcg(factors, liked, after.users[cases], after.items[cases])
    best = max(found, key=lambda strength: found[strength])
    said = ", ".join(f"{strength:g}: {value:.4f}" for strength, value in found.items())
    log.info("regularisation %g, by ndcg@10 of the newest likes (%s)", best, said)
    return best


def _thinned(pairs: Pairs, random: np.random.Generator) -> Pairs:
    if len(pairs) <= MOST_PAIRS:
        return pairs
    kept = random.random(pairs.user_count) < MOST_PAIRS / len(pairs)
    return pairs.take(np.flatnonzero(kept[pairs.users]))


def _ndcg(factors: Factors, liked: Likes, users: Ints, items: Ints) -> float:
    """Ties are shared: an item that nothing tells from others earns no place in front."""
    gains = 0.0
    step = max(1, _CHUNK // len(factors.items))
    for at in range(0, len(users), step):
        scores = factors.users[users[at : at + step]] @ factors.items.T
        targets = scores[np.arange(len(scores)), items[at : at + step]]
        for row, user in enumerate(users[at : at + step]):
            scores[row, liked.of(user)] = -np.inf
        ranks = 1 + (scores > targets[:, None]).sum(axis=1) + (scores == targets[:, None]).sum(axis=1) / 2
        gains += float(np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0.0).sum())
    return gains / len(users)
