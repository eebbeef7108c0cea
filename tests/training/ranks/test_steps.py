"""Several processes that take the steps of one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.support import multi_process_training
from tests.support.torch_available import torch, torchrec

VARIANTS = (
    [*multi_process_training.VARIANTS, *multi_process_training.SHARDED]
    if find_spec("torchrec") is not None
    else [*multi_process_training.VARIANTS]
)
Found = list[Mapping[str, Any]]
LOSS, WEIGHT = 2e-6, 2e-5
"""How far losses and weights may be from those of one process: they add up in another order."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Found]:
    torch()
    folder = tmp_path_factory.mktemp("ranks")
    return {count: multi_process_training.by_ranks(count, folder, VARIANTS) for count in (1, 2, 3)}


@pytest.mark.requirement("G-27", "N-06")
def test_each_step_of_several_processes_has_the_loss_of_one(found: dict[int, Found], subtests: pytest.Subtests) -> None:
    (one,) = found[1]
    for variant, count in product(multi_process_training.VARIANTS, (2, 3)):
        with subtests.test(variant=variant, count=count):
            coarse = 100 if variant == "half" else 1
            for rank in found[count]:
                np.testing.assert_allclose(rank[f"{variant}/losses"], one[f"{variant}/losses"], atol=coarse * LOSS, rtol=0)
                for name in one:
                    if name.startswith(f"{variant}/weights/"):
                        np.testing.assert_allclose(rank[name], one[name], atol=coarse * WEIGHT, rtol=0)


def test_all_ranks_end_with_the_same_weights_to_the_bit(found: dict[int, Found], subtests: pytest.Subtests) -> None:
    first, *others = found[3]
    for variant in multi_process_training.VARIANTS:
        with subtests.test(variant=variant):
            for name in first:
                if name.startswith(f"{variant}/"):
                    assert all(np.array_equal(first[name], other[name]) for other in others), name


def test_what_rank_0_keeps_is_what_all_go_on_from(found: dict[int, Found], subtests: pytest.Subtests) -> None:
    for variant in multi_process_training.VARIANTS:
        with subtests.test(variant=variant):
            for rank in found[2]:
                np.testing.assert_array_equal(*rank[f"{variant}/repeated"])


@pytest.mark.requirement("G-24")
def test_tables_over_several_processes_have_the_losses_and_weights_of_one(found: dict[int, Found], subtests: pytest.Subtests) -> None:
    torchrec()
    (one,) = found[1]
    for variant, count in product(multi_process_training.SHARDED, (2, 3)):
        with subtests.test(variant=variant, count=count):
            first, *others = found[count]
            for rank in (first, *others):
                np.testing.assert_allclose(rank[f"{variant}/losses"], one[f"{variant}/losses"], atol=LOSS, rtol=0)
                np.testing.assert_array_equal(*rank[f"{variant}/repeated"])
            for name in one:
                if name.startswith(f"{variant}/weights/"):
                    np.testing.assert_allclose(first[name], one[name], atol=WEIGHT, rtol=0)
                    assert all(("/table_" in name) != (name in other) for other in others)
            assert first[f"{variant}/apart"] < 1e-6
