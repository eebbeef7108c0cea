"""Contenders of the training benchmark learn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import train_cases
from benchmarks.train_cases import LikesCase
from benchmarks.train_contenders import CONTENDERS
from pipelines.models.tables import Table


@pytest.mark.parametrize("name", ["eyas in numpy", "keras: rows of likes"])
def test_a_contender_of_likes_learns(name: str) -> None:
    case = LikesCase("small", 240, 60, 10, 8)
    seconds, losses = CONTENDERS[name].train(case, list(case.batches(4)), 60)
    assert seconds > 0 and np.mean(losses[-2:]) < losses[0]


@pytest.mark.parametrize("name", ["eyas on tensorflow", "keras: model.fit"])
def test_a_contender_learns_by_product_and_layers(name: str) -> None:
    case = replace(train_cases.neumf(256), tables=tuple(Table(one, 200, 12, None) for one in ("user", "item")), layers=(8, 4), product=4)
    seconds, losses = CONTENDERS[name].train(case, list(case.batches(2)), 60)
    assert seconds > 0 and np.mean(losses[-2:]) < losses[0]


@pytest.mark.requirement("L-04")
@pytest.mark.parametrize("name", ["eyas on tensorflow", "eyas on tensorflow, tables apart", "keras: model.fit"])
def test_a_contender_learns(name: str) -> None:
    case = train_cases.grown(256, 1, 200)
    seconds, losses = CONTENDERS[name].train(case, list(case.batches(2)), 60)
    assert seconds > 0 and np.mean(losses[-2:]) < losses[0]
