"""When the learning rate falls."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pipelines.training.schedule import RateSchedule
from shared.contracts.models import Model, Training


def test_a_plateau_lowers_the_rate_after_two_epochs_without_improvement_up_to_three_times() -> None:
    schedule = RateSchedule("plateau")
    best = [1, 1, 3, 3, 3, 3, 3, 8, 8, 8, 8, 8]
    assert [epoch for epoch, number in enumerate(best, 1) if schedule.falls(epoch, number)] == [5, 7, 10]
    assert schedule.lowered == [5, 7, 10]
    assert not RateSchedule("plateau").falls(4, None)


def test_listed_epochs_lower_the_rate_and_a_constant_rate_stays() -> None:
    assert [RateSchedule((2, 3)).falls(epoch, None) for epoch in (1, 2, 3, 4)] == [False, True, True, False]
    assert not any(RateSchedule("constant").falls(epoch, False) for epoch in range(1, 9))


def test_a_plateau_holds_rows_out() -> None:
    assert Training.model_validate({"schedule": "plateau"}).validation == 0.05
    with pytest.raises(ValidationError, match="'schedule' has no effect: no rows are held out"):
        Training.model_validate({"schedule": "plateau", "validation": 0})
    assert Training.model_validate({"schedule": [2, 4]}).schedule == (2, 4)


def test_a_rate_that_steps_hold_as_a_constant_is_refused() -> None:
    with pytest.raises(ValidationError, match="schedule: with 'resident' the learning rate is constant"):
        Model.model_validate({"framework": "torch", "train": {"schedule": [2], "resident": True}})
