"""Several processes that take the steps of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests import ranked
from tests.pytorch import torch

Found = list[Mapping[str, Any]]
LOSS, WEIGHT = 2e-6, 2e-5
"""How far losses and weights may be from those of one process: they add up in another order."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Found]:
    torch()
    folder = tmp_path_factory.mktemp("ranks")
    return {count: ranked.by_ranks(count, folder, list(ranked.VARIANTS)) for count in (1, 2, 3)}


@pytest.mark.requirement("G-27", "N-06")
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("variant", ranked.VARIANTS)
def test_each_step_of_several_processes_has_the_loss_of_one(found: dict[int, Found], variant: str, count: int) -> None:
    (one,), several = found[1], found[count]
    coarse = 100 if variant == "half" else 1
    for rank in several:
        np.testing.assert_allclose(rank[f"{variant}/losses"], one[f"{variant}/losses"], atol=coarse * LOSS, rtol=0)
        for name in one:
            if name.startswith(f"{variant}/weights/"):
                np.testing.assert_allclose(rank[name], one[name], atol=coarse * WEIGHT, rtol=0)


@pytest.mark.parametrize("variant", ranked.VARIANTS)
def test_all_ranks_end_with_the_same_weights_to_the_bit(found: dict[int, Found], variant: str) -> None:
    first, *others = found[3]
    for name in first:
        if name.startswith(f"{variant}/"):
            assert all(np.array_equal(first[name], other[name]) for other in others), name


@pytest.mark.parametrize("variant", ranked.VARIANTS)
def test_what_rank_0_keeps_is_what_all_go_on_from(found: dict[int, Found], variant: str) -> None:
    for rank in found[2]:
        np.testing.assert_array_equal(*rank[f"{variant}/repeated"])
