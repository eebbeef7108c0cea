"""Calibration of probabilities on held-out rows, against worlds whose true probabilities are known."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.training.calibration import fit_line, log_loss


def _truth(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns true logits, at a rate of a quarter, and labels."""
    random = np.random.default_rng(seed)
    logits = random.normal(-1.4, 1.2, rows)
    return logits, random.random(rows) < 1 / (1 + np.exp(-logits))


def _excess(logits: np.ndarray, scored: np.ndarray) -> float:
    """Returns the expected log loss of `scored` beyond that of the truth."""
    probabilities = 1 / (1 + np.exp(-logits))
    return float((np.logaddexp(0, scored) - scored * probabilities - np.logaddexp(0, logits) + logits * probabilities).mean())


@pytest.mark.requirement("T-10")
@pytest.mark.parametrize(("slope", "shift"), [(2.5, 0.7), (4.0, -1.0), (0.4, 0.2)])
def test_too_sure_or_too_unsure_scores_come_to_agree_with_the_rate(slope: float, shift: float) -> None:
    logits, _ = _truth(50_000, 0)
    wrong, ratios, excess = slope * logits + shift, [], []
    for seed in range(20):
        validation_logits, positive = _truth(5_000, seed + 1)
        scored = fit_line(positive, slope * validation_logits + shift).apply(wrong)
        ratios.append((1 / (1 + np.exp(-scored))).mean() / (1 / (1 + np.exp(-logits))).mean())
        excess.append(_excess(logits, scored))
    assert abs(np.mean(ratios) - 1) < 0.02 and np.std(ratios) < 0.03
    assert np.mean(excess) < 0.001 < _excess(logits, wrong) / 20


@pytest.mark.requirement("T-10")
@pytest.mark.parametrize("rows", [30, 200, 2_000])
def test_right_scores_lose_no_more_than_two_fitted_numbers_cost(rows: int) -> None:
    """A fitted number costs half a nat, divided by the rows."""
    logits, _ = _truth(5_000, 0)
    worlds = (_truth(rows, seed + 1) for seed in range(200))
    excess = [_excess(logits, fit_line(positive, validation_logits).apply(logits)) for validation_logits, positive in worlds]
    assert np.mean(excess) < 1.2 / rows


@pytest.mark.requirement("T-10")
def test_the_order_of_scores_never_changes() -> None:
    logits, positive = _truth(1_000, 3)
    assert 0 < fit_line(positive, -logits).slope < 0.01
    for alike in (np.zeros(40, bool), np.ones(40, bool)):
        calibration = fit_line(alike, logits[:40])
        assert calibration.slope > 0 and np.isfinite([calibration.slope, calibration.shift]).all()
    assert fit_line(positive[:1], np.array([1e30])).slope > 0


@pytest.mark.requirement("T-10")
def test_extreme_scores_are_fitted_too() -> None:
    logits, positive = _truth(5_000, 4)
    calibration = fit_line(positive, 200 * logits)
    assert 0.004 < calibration.slope < 0.006
    assert log_loss(positive, calibration.apply(200 * logits)) < 0.6
