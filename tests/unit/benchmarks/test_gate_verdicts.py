"""What gates decide about candidates whose true change is known: no more wrong verdicts than their confidence allows."""

from __future__ import annotations

import pytest

from benchmarks.gate_verdicts import World, allowed, gates, verdicts

RATE, RUNS = 0.2, 120
MOST = 0.1 + 3 * (0.1 * 0.9 / RUNS) ** 0.5
"""Of wrong verdicts by chance: the promised rate and three standard errors."""


@pytest.fixture(scope="module")
def world() -> World:
    return World(400, RATE, 0.9)


@pytest.mark.requirement("C-04")
@pytest.mark.parametrize("change", [-0.3, -0.05, 0.0, 0.3])
def test_wrong_verdicts_are_as_rare_as_promised(world: World, change: float, subtests: pytest.Subtests) -> None:
    found = verdicts(world, RATE, change, RUNS)
    for said, (gate, threshold) in gates(RATE).items():
        if gate.confidence is None:
            continue
        with subtests.test(gate=said):
            counts = found[said]
            wrong = {"pass"} if change < threshold else {"fail"} if change > threshold else {"pass", "fail"}
            wrong -= {"fail"} if gate.kind == "better_than" and change == threshold else set()
            assert all(counts[verdict] / RUNS <= MOST for verdict in wrong), (counts, allowed(gate, threshold, change))
            assert counts["accepted"] == (counts["inconclusive"] if gate.kind == "not_worse_than" else 0)


def test_large_changes_are_decided(world: World) -> None:
    better, worse = (verdicts(world, RATE, change, RUNS)["not_worse_than: serving"] for change in (0.3, -0.3))
    assert better["pass"] > 0.95 * RUNS
    assert worse["fail"] > 0.95 * RUNS


def test_what_is_promised_depends_on_the_side_of_the_threshold() -> None:
    gate, threshold = gates(RATE)["not_worse_than: serving, by: 5%"]
    assert allowed(gate, threshold, -0.06) == "at most 10% pass"
    assert allowed(gate, threshold, -0.05) == "at most 10% pass and 10% fail"
    assert allowed(gate, threshold, 0.0) == "at most 10% fail"
    assert allowed(*gates(RATE)["min: 0.2"], 0.0) == "nothing: the value decides"
    assert allowed(*gates(RATE)["better_than: serving"], 0.0) == "at most 10% pass"
