"""Popularity of items in the softmax over a batch."""

from __future__ import annotations

import numpy as np

from pipelines.models.neural.losses import log_chances


def test_the_chance_of_an_item_is_its_share_and_one_that_nobody_met_counts_half() -> None:
    np.testing.assert_allclose(np.exp(log_chances(np.array([0, 0, 6, 2]))), [0.5 / 8, 0.5 / 8, 6 / 8, 2 / 8], rtol=1e-6)
