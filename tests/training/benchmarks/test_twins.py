"""Both sides of the comparison of plain twins learn the same cases."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import train_cases
from benchmarks.train_cases import FAMILIES, Family
from benchmarks.twin_models import measure


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_and_its_plain_twin_learn(family: Family) -> None:
    lines = measure(train_cases.sized(family, 200, 256), "tensorflow", 2)
    assert set(lines["seconds"]) == {"eyas", "plain"} and all(len(times) == 2 for times in lines["seconds"].values())
    start = np.log(256 if family == "two_tower" else 2)
    for side, first in lines["first"].items():
        assert 0.5 * start < first < 2.5 * start, side
        assert lines["last"][side] < first, side
