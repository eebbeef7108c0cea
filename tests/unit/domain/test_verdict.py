"""The canary's test keeps its promises, by simulation through the code that judges."""

from __future__ import annotations

import random

import pytest

from shared.domain.gate import Verdict
from shared.domain.verdict import Sample, bounds, verdict


def look_often(rng: random.Random, stable: float, candidate: float, weight: float, users: int, *, max_harm: float) -> Verdict:
    """A last step in which the judge looks after every batch of 100 users; ends at the first verdict."""
    counts = {True: [0, 0], False: [0, 0]}
    for seen in range(1, users + 1):
        arm = rng.random() < weight
        counts[arm][0] += 1
        counts[arm][1] += rng.random() < (candidate if arm else stable)
        if seen % 100 == 0:
            samples = {arm: Sample(n, hits, hits, n, hits) for arm, (n, hits) in counts.items()}
            found = verdict(samples[False], samples[True], max_harm=max_harm, min_users=30, steps=1, final=True, weight=weight)
            if found is not Verdict.INCONCLUSIVE:
                return found
    return Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("rate", "weight"), [(0.5, 0.5), (0.1, 0.1), (0.3, 0.05)])
def test_an_equal_version_is_hardly_ever_rolled_back_however_often_one_looks(rate: float, weight: float) -> None:
    rng = random.Random(7)
    rolled_back = sum(look_often(rng, rate, rate, weight, 3000, max_harm=0.02) is Verdict.FAIL for _ in range(200))
    assert rolled_back <= 4  # 1% of 200 expected at the most; 5 or more would have a chance below 6%


def test_a_version_that_harms_as_much_as_allowed_is_hardly_ever_promoted() -> None:
    rng = random.Random(8)
    promoted = sum(look_often(rng, 0.5, 0.45, 0.5, 3000, max_harm=0.1) is Verdict.PASS for _ in range(200))
    assert promoted <= 4


def test_a_halved_hit_rate_is_rolled_back_at_a_tenth_of_the_users() -> None:
    rng = random.Random(9)
    assert all(look_often(rng, 0.5, 0.25, 0.1, 5000, max_harm=0.05) is Verdict.FAIL for _ in range(50))


def test_a_much_better_version_is_promoted() -> None:
    rng = random.Random(10)
    assert all(look_often(rng, 0.4, 0.5, 0.5, 5000, max_harm=0.05) is Verdict.PASS for _ in range(50))


def test_the_bounds_hold_the_estimate_and_narrow_with_users() -> None:
    widths = []
    for users in (200, 2000, 20000):
        sample = Sample(users, users / 2, users / 2)
        lower, upper = bounds(sample, sample, max_harm=0.02, steps=1, weight=0.5)
        assert lower < 0 < upper
        widths.append(upper - lower)
    assert widths == sorted(widths, reverse=True)


def test_a_few_users_who_all_agree_are_not_certainty() -> None:
    lower, upper = bounds(Sample(30, 30, 30), Sample(30, 30, 30), max_harm=0.02, steps=1, weight=0.5)
    assert upper - lower > 0.1
