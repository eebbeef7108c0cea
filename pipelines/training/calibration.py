"""Probabilities that agree with the rate of positives on held-out rows.

A model that is trained until its order of rows is best is often too sure of its scores. So a line from its logits to better ones is fitted
on the validation rows (Platt's method) and published with the model. Its slope is positive: the order of scores does not change.

Only for given labels: with sampled negatives there is no rate to agree with.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.inputs.batches import Batches
from pipelines.inputs.tables import Codes

Line = tuple[float, float]
"""Slope and shift, from a model's logits to those that it publishes."""
UNCALIBRATED: Line = (1.0, 0.0)
Logits = Callable[[Codes], NDArray[np.float32]]
ROWS = 500_000
"""Approximate number of rows that are scored; more do not change two numbers."""
_FLATTEST = 1e-3
"""Smallest slope."""


@dataclass(frozen=True)
class Calibration:
    slope: float
    shift: float
    rows: int
    """Validation rows that it is fitted on."""

    @property
    def line(self) -> Line:
        return self.slope, self.shift

    @property
    def facts(self) -> dict[str, Any]:
        return {"calibration": asdict(self)}


def calibrate(batches: Batches, logits: Logits, log: logging.Logger) -> Calibration:
    """Fits the line on validation rows: on evenly spaced batches if there are more than `ROWS`."""
    every = max(1, batches.rows_per_epoch() // ROWS)
    pairs = [(batch.labels, logits(batch.columns)) for batch in itertools.islice(batches.epoch(0), 0, None, every)]
    labels, values = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    calibration = fit(labels > 0, values)
    before, after = (log_loss(labels > 0, part) for part in (values, calibrated(values, calibration.line)))
    numbers = calibration.rows, calibration.slope, calibration.shift, before, after
    log.info("probabilities: calibrated rows=%d slope=%.3f shift=%.3f loss_before=%.4f loss_after=%.4f", *numbers)
    return calibration


def fit(positive: NDArray[np.bool_], logits: NDArray[Any]) -> Calibration:
    """Minimises the log loss. A normal prior around slope 1 and shift 0 decides where rows are few or all alike."""
    from scipy.optimize import minimize

    values, count = logits.astype(np.float64), len(logits)

    def objective(line: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        moved, away = line[0] * values + line[1], line - (1.0, 0.0)
        surplus = 1 / (1 + np.exp(-np.clip(moved, -700, 700))) - positive
        gradient = np.array([(surplus * values).mean(), surplus.mean()])
        return log_loss(positive, moved) + float(away @ away) / (2 * count), gradient + away / count

    optimum = minimize(objective, (1.0, 0.0), jac=True, method="L-BFGS-B", bounds=[(_FLATTEST, None), (None, None)])
    slope, shift = (float(value) for value in optimum.x)
    return Calibration(slope, shift, count) if math.isfinite(optimum.fun) else Calibration(1.0, 0.0, count)


def calibrated(logits: NDArray[np.float32], line: Line) -> NDArray[np.float32]:
    slope, shift = (np.float32(value) for value in line)
    return logits * slope + shift


def line_of(document: Mapping[str, Any]) -> Line:
    """Returns the line in a model.json; those of earlier releases have none."""
    slope, shift = document.get("calibration", UNCALIBRATED)
    return float(slope), float(shift)


def log_loss(positive: NDArray[np.bool_], logits: NDArray[Any]) -> float:
    values = logits.astype(np.float64)
    return float((np.logaddexp(0, values) - values * positive).mean())
