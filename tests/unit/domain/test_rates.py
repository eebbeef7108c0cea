"""A rate below a limit, and conversion beside the hit rate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from shared.domain.drift.hit_rate_detector import Block, fall
from shared.domain.drift.rates import below_limit
from shared.domain.drift.seasons import AnswerHistory, BlockSeries, seasonal_fall
from shared.domain.sequential_test import VariantSample

pytestmark = pytest.mark.requirement("G-13")

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def users(count: int, hits: int, converted: int | None = None) -> VariantSample:
    """Two answers each."""
    converted = hits if converted is None else converted
    return VariantSample(count, hits / 2, hits / 4, 2 * count, hits, converted)


def test_a_rate_below_its_limit_is_told_from_one_at_it() -> None:
    low = below_limit(users(5_000, 300), "hit_rate", 0.05, 500)
    assert low is not None and low.exceeds(0.0)
    assert (low.detector, round(low.size, 3)) == ("hit_rate_min", 0.4)
    assert low.sentence().startswith(
        "hit rate is 40.0% below its limit (hit rate, compared with its limit, from 5.0% to 3.0%); by chance alone"
    )
    for hits in (500, 600, 480):
        found = below_limit(users(5_000, hits), "hit_rate", 0.05, 500)
        assert found is not None and not found.exceeds(0.0), hits
    assert below_limit(users(100, 0), "hit_rate", 0.05, 500) is None


def test_conversion_counts_users_with_a_hit() -> None:
    sample = users(1_000, 120, converted=30)
    assert below_limit(sample, "conversion", 0.05, 500).size == pytest.approx(0.4)  # type: ignore[union-attr]
    assert below_limit(sample, "hit_rate", 0.05, 500).size == 0  # type: ignore[union-attr]


def test_a_true_rate_at_the_limit_is_called_low_as_rarely_as_promised() -> None:
    random = np.random.default_rng(5)
    hits = random.binomial(2_000, 0.05, 2_000).tolist()
    readings = [below_limit(VariantSample(2_000, float(hit), float(hit), 2_000, hit, hit), "hit_rate", 0.05, 500) for hit in hits]
    assert sum(reading is not None and reading.exceeds(0.0) for reading in readings) <= 2, "0.5 are expected of 2,000 at most"


def test_a_fall_of_the_conversion_is_found_though_the_hit_rate_stays() -> None:
    """The same hits, of half as many users."""
    before, after = users(1_000, 400, converted=400), users(1_000, 400, converted=200)
    blocks = [Block(START + number * HOUR, before if number < 8 else after) for number in range(12)]
    reading = fall(1, VariantSample(), blocks, 500, "conversion")
    assert reading is not None and reading.readings[0].exceeds(0.1)
    assert (reading.readings[0].detector, reading.readings[0].size) == ("conversion", 0.5)
    hit_rate = fall(1, VariantSample(), blocks, 500)
    assert hit_rate is not None and not hit_rate.readings[0].exceeds(0.1)
    series = BlockSeries([before] * 44 + [after] * 4)
    look = seasonal_fall(1, AnswerHistory(START, HOUR, series), "day", 500, 0.1, "conversion")
    assert (look.readings[0].detector, round(look.readings[0].size, 3)) == ("conversion", 0.5)
    assert "conversion, compared with the same hours of earlier days," in look.readings[0].sentence()
    assert seasonal_fall(1, AnswerHistory(START, HOUR, series), "day", 500, 0.1).readings[0].size == 0
