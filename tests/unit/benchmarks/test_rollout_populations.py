"""A canary of two versions that know different users, by simulation: one small case of each kind, with a fixed seed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks.rollout_populations import BETTER, EQUAL, KINDS, World, alike, decide, run_through_log, simulate

USERS = 40_000


def ends(world: World, runs: int, users: int = USERS, only_recognised: bool = False) -> Counter[str]:
    rng = np.random.default_rng(7)
    return Counter(decide(world, *simulate(world, users, rng), only_recognised) for _ in range(runs))


@pytest.mark.requirement("U-07")
def test_a_version_that_is_worse_is_never_promoted_and_one_as_good_or_better_is(subtests: pytest.Subtests) -> None:
    for world in KINDS:
        with subtests.test(world=world.name):
            expected = "rolled back" if world.expected == "never promoted" else "promoted"
            assert ends(world, 4) == {expected: 4}


def test_leaving_out_users_whom_a_version_does_not_know_decides_wrongly(subtests: pytest.Subtests) -> None:
    """What was decided before every user counted: this is why they do."""
    for world, wrong in ((KINDS[1], "promoted"), (BETTER, "rolled back")):
        with subtests.test(world=world.name):
            assert ends(world, 4, only_recognised=True) == {wrong: 4}


@pytest.mark.requirement("U-07")
def test_two_equal_versions_are_not_rolled_back(subtests: pytest.Subtests) -> None:
    for unknown in (0.0, 0.3, 0.6):
        with subtests.test(unknown=unknown):
            assert ends(alike(unknown), 5, 2000)["rolled back"] == 0


def test_the_event_log_counts_what_the_simulation_counts(subtests: pytest.Subtests) -> None:
    for world in (EQUAL, KINDS[0]):
        with subtests.test(world=world.name):
            assert run_through_log(world, 300, 1) in ("promoted", "undecided", "rolled back")
