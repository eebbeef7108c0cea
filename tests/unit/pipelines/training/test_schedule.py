"""When the learning rate falls."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pipelines.training.schedule import RateSchedule
from shared.contracts.models import Model, Training


def test_a_plateau_lowers_the_rate_after_validations_without_improvement_up_to_three_times() -> None:
    schedule = RateSchedule("plateau")
    improved = [True, False, None, True, False, False, False]
    assert [schedule.falls(epoch, value) for epoch, value in enumerate(improved, 1)] == [False, True, False, False, True, True, False]
    assert schedule.lowered == [2, 5, 6]


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
