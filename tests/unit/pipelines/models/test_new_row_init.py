"""Where vectors of new codes begin."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.features.columns import FIRST, UNKNOWN
from pipelines.models.new_row_init import grown

OLD = np.random.default_rng(1).normal(3, 1, (40, 8)).astype(np.float32)
BEGUN = np.random.default_rng(2).uniform(-0.05, 0.05, (60, 8)).astype(np.float32)


@pytest.mark.requirement("G-09")
def test_old_rows_stay_as_they_are_and_new_ones_differ_from_each_other(subtests: pytest.Subtests) -> None:
    for rule in ["mean", "unknown", "random"]:
        with subtests.test(rule=rule):
            found = grown(OLD, BEGUN, rule)  # type: ignore[arg-type]
            assert found.shape == BEGUN.shape and found.dtype == np.float32
            np.testing.assert_array_equal(found[: len(OLD)], OLD)
            assert len(np.unique(found[len(OLD) :], axis=0)) == 20
            np.testing.assert_array_equal(found, grown(OLD, BEGUN, rule))  # type: ignore[arg-type]


def test_new_rows_stand_where_the_rule_says() -> None:
    known = OLD[FIRST:]
    mean, unknown = grown(OLD, BEGUN, "mean")[len(OLD) :], grown(OLD, BEGUN, "unknown")[len(OLD) :]
    assert np.abs(mean - known.mean(axis=0)).max() < 0.3 * known.std(axis=0).max()
    assert np.abs(unknown - OLD[UNKNOWN]).max() < 0.3 * known.std(axis=0).max()
    np.testing.assert_array_equal(grown(OLD, BEGUN, "random")[len(OLD) :], BEGUN[len(OLD) :])


def test_a_table_that_has_not_grown_is_a_copy_and_one_without_known_codes_grows_at_random() -> None:
    same = grown(OLD, BEGUN[: len(OLD)], "mean")
    same[0] = 9
    assert OLD[0, 0] != 9
    np.testing.assert_array_equal(grown(np.zeros((0, 8), np.float32), BEGUN, "mean"), BEGUN)
