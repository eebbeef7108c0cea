"""The split of users: what was asked for, sticky, and growing without moving anybody back."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from shared.domain.route import Route, choose, position

USERS = 100_000
WEIGHTS = (0.01, 0.05, 0.1, 0.25, 0.5)
users = some.integers(-(2**63), 2**63 - 1)
weights = some.floats(0, 1, allow_nan=False)


@pytest.mark.requirement("C-05")
def test_the_split_is_what_was_asked_and_a_growing_weight_moves_nobody_back(subtests: pytest.Subtests) -> None:
    """Of 100,000 users, and of 20,000 under each other salt and range: within three sigma at each weight; a user keeps the candidate."""
    for salt in ("o1", "films-0007", "01J9-rollout"):
        for first in (0, 10**12, -USERS // 2):
            count = USERS if (salt, first) == ("o1", 0) else USERS // 5
            with subtests.test(salt=salt, first=first):
                before: set[int] = set()
                for weight in WEIGHTS:
                    route = Route(1, 2, weight, salt)
                    now = {user for user in range(first, first + count) if choose(route, user) == (2, "candidate")}
                    sigma = math.sqrt(count * weight * (1 - weight))
                    assert abs(len(now) - count * weight) <= 3 * sigma, weight
                    assert before < now
                    before = now


def test_positions_fill_their_range_evenly() -> None:
    """Chi squared over 1,000 cells: its mean is 999, its standard deviation 44.7."""
    cells = [0] * 1000
    for user in range(USERS):
        cells[int(position("o1", user) * 1000)] += 1
    expected = USERS / 1000
    chi = sum((count - expected) ** 2 / expected for count in cells)
    assert abs(chi - 999) <= 3 * math.sqrt(2 * 999)


def test_each_rollout_draws_anew() -> None:
    """Who was in the last candidate's share is in the next one's no more often than anybody."""
    first, second = (Route(1, 2, 0.1, salt) for salt in ("o1", "o2"))
    both = sum(choose(first, user)[0] == choose(second, user)[0] == 2 for user in range(USERS))
    assert abs(both - USERS * 0.01) <= 3 * math.sqrt(USERS * 0.01 * 0.99)


@given(users, some.text(max_size=40), weights, weights)
def test_whoever_has_the_candidate_keeps_it_at_every_larger_weight(user: int, salt: str, one: float, other: float) -> None:
    small, large = (Route(1, 2, weight, salt) for weight in sorted((one, other)))
    assert 0 <= position(salt, user) < 1
    if choose(small, user)[1] == "candidate":
        assert choose(large, user) == (2, "candidate")


@given(users, some.text(max_size=40))
def test_the_whole_weight_is_everybody_and_none_is_nobody(user: int, salt: str) -> None:
    route = Route(1, 2, 1.0, salt)
    assert choose(route, user) == (2, "candidate")
    for none in (replace(route, weight=0.0), replace(route, weight=0.0, shadow=True), replace(route, candidate=None)):
        assert choose(none, user) == (1, "stable")
