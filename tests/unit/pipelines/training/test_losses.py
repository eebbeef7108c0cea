"""Losses: read late, right to the last row, and what is broken is said soon, with the place and what to do."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from pipelines.training.loss_monitor import FAR, LATE, RECENT, Losses
from shared.contracts.models import Training
from shared.domain.errors import Invalid


class Late:
    """A loss that is asked for as `float`: on a device that waits."""

    read = 0

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        Late.read += 1
        return self.value


def test_a_loss_is_read_when_it_is_old_and_the_mean_is_over_rows() -> None:
    Late.read, losses = 0, Losses(Training())
    for _ in range(2 * LATE - 1):
        losses.add(Late(1.0), 10)
    assert Late.read == 0, "nothing waits"
    losses.add(Late(1.0), 10)
    assert Late.read == LATE
    losses.add(Late(4.0), 2 * LATE * 10)
    assert losses.next_epoch() == pytest.approx(2.5) and Late.read == 2 * LATE + 1
    assert (losses.epoch, losses.step, losses.rows) == (2, 0, 0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_said_with_its_place_within_some_steps(value: float) -> None:
    losses = Losses(Training(learning_rate=0.5, optimizer="sgd"), epoch=3)
    with pytest.raises(Invalid) as refused:
        for step in range(1000):
            losses.add(value if step == 41 else 0.5, 512)
    assert str(refused.value) == (
        "model.train.learning_rate: the loss is not finite in epoch 3, step 42; 0.5 with sgd is too high: lower it, for example to 0.05"
    )
    assert step < 42 + 2 * LATE


def test_a_loss_far_above_where_it_began_is_divergence_and_noise_is_none() -> None:
    random, losses = np.random.default_rng(1), Losses(Training())
    for _ in range(500):
        losses.add(0.7 * random.uniform(0.6, 1.6), 2048)
    losses.settle()
    with pytest.raises(
        Invalid, match=r"the loss diverges, from 0\.\d+ at first to 1\.\d+ over the last 64 steps, in epoch 1, step \d+; 0.003"
    ):
        for _ in range(RECENT + 2 * LATE):
            losses.add(0.7 * 5, 2048)


def test_few_rows_a_step_make_where_it_began_out_of_several_steps() -> None:
    losses = Losses(Training())
    for step in range(2000):  # one row a step: the first is as lucky as it likes
        losses.add(0.001 if step == 0 else 0.7, 1)
    losses.settle()
    assert losses.mean == pytest.approx(0.7, abs=0.001)
    tiny = Losses(Training())
    for _ in range(300):
        tiny.add(0.001 * FAR * 5, 2048)
    tiny.settle()


def test_what_is_remembered_is_json_and_goes_on_as_if_nothing_had_been() -> None:
    values = np.random.default_rng(3).uniform(0.1, 0.9, 400).tolist()
    whole, first = Losses(Training()), Losses(Training())
    for number, value in enumerate(values):
        whole.add(value, 37 + number % 3)
        if number < 150:
            first.add(value, 37 + number % 3)
    rest = Losses(Training())
    rest.go_on(json.loads(json.dumps(first.state)))
    for number, value in list(enumerate(values))[150:]:
        rest.add(value, 37 + number % 3)
    assert whole.state == rest.state and whole.next_epoch() == rest.next_epoch()


def test_losses_are_read_together_where_the_step_can() -> None:
    reads: list[int] = []

    def read(found: Any) -> list[float]:
        reads.append(len(found))
        return [one / 2 for one in found]

    losses = Losses(Training(), read)
    for _ in range(3 * LATE):
        losses.add(2.0, 10)
    assert reads == [LATE, LATE] and losses.mean == 1.0
    losses.settle()
    assert reads == [LATE, LATE, LATE]
