"""The worlds with rhythms, small: they pass through the code that decides."""

from __future__ import annotations

import numpy as np

from benchmarks.rhythms import IN_A_DAY, Rhythm, alarms, blocks_of

SWINGS = Rhythm(0.5, weekend=False)


def test_a_wave_over_the_day_raises_no_alarm_and_a_fall_in_it_does() -> None:
    assert alarms(blocks_of(SWINGS, 1, 1, 400), "auto") == []
    at = 3 * IN_A_DAY
    level = np.where(np.arange(7 * IN_A_DAY) >= at, 0.7, 1.0)
    (found,) = alarms(blocks_of(SWINGS, 1, 1, 400, level), "auto", until=at)
    assert at < found <= at + 24


def test_a_world_has_the_rhythm_that_it_is_asked_for() -> None:
    def rate(days: range, rhythm: Rhythm) -> float:
        samples = list(blocks_of(rhythm, 2, 1, 4_000))
        chosen = [samples[day * IN_A_DAY + block] for day in days for block in range(IN_A_DAY)]
        return sum(one.hits for one in chosen) / sum(one.users for one in chosen)

    assert abs(rate(range(5, 7), Rhythm(0.0, weekend=True)) / rate(range(5), Rhythm(0.0, weekend=True)) - 0.85) < 0.01
    assert rate(range(7), SWINGS) > 0.2, "more people come when the rate is high"
