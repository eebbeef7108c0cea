"""Differences between contenders of a convergence benchmark, with their errors."""

from __future__ import annotations

import pytest

from benchmarks.convergence import Difference, differences, paired


def test_a_difference_is_told_with_its_error_and_seed_by_seed() -> None:
    difference = paired([1.1, 2.1, 3.4], [1.0, 2.0, 3.0])
    assert (difference.mean, difference.error) == (pytest.approx(0.2), pytest.approx(0.1))
    assert (difference.low, difference.high) == (pytest.approx(0.2 - 0.4302653), pytest.approx(0.2 + 0.4302653))
    assert difference.verdict == "no difference shown"
    assert [Difference(0, 0, low, high).verdict for low, high in ((0.1, 0.2), (-0.2, -0.1))] == ["worse", "better"]
    curves = {("any", "full"): [[9.0, 1.0], [9.0, 2.0]], ("any", "full, drawn again"): [[9.0, 1.2], [9.0, 1.8]]}
    again, none = differences(curves | {("time", "none"): [[1.0, 2.1], [1.0, 2.901]]})
    assert (again["contender"], again["mean"], again["verdict"]) == ("full, drawn again", pytest.approx(0), "no difference shown")
    assert (none["order"], none["contender"], none["verdict"], none["mean"]) == ("time", "none", "worse", pytest.approx(1.0005))
