"""Calibration: corrects a model's probabilities so that their mean agrees with the share of positives.

A model that is trained until it orders rows best is often too sure of its scores. So two numbers are fitted on the validation rows, by
which its logits are scaled and shifted (Platt's method); they are published with the model. The order of scores does not change.

Only for labels that users gave: sampled negatives have no natural share of positives.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.inputs.batches import Batches
from pipelines.inputs.tables import Codes

Logits = Callable[[Codes], NDArray[np.float32]]
ROWS = 500_000
"""Approximate largest number of validation rows that are used: more rows hardly change the two fitted numbers."""
_FLATTEST = 1e-3
"""Smallest slope."""
_KEY = "calibration"


@dataclass(frozen=True)
class LogitLine:
    """Turns a model's logits into the logits that it publishes; without arguments it changes nothing."""

    slope: float = 1.0
    shift: float = 0.0
    rows: int = 0
    """Validation rows that it was fitted on."""

    def apply(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        return logits * np.float32(self.slope) + np.float32(self.shift)

    @property
    def document(self) -> dict[str, Any]:
        """Its entry in model.json, and in the facts of a training; empty if it was not fitted."""
        return {_KEY: asdict(self)} if self.rows else {}


UNCALIBRATED = LogitLine()


def read_line(document: Mapping[str, Any]) -> LogitLine:
    """Reads the entry of a model.json, if there is one."""
    return LogitLine(**document.get(_KEY, {}))


def calibrate(batches: Batches, logits: Logits, log: logging.Logger) -> LogitLine:
    """Fits the line on validation rows; takes batches at equal distances if there are more than `ROWS`."""
    every = max(1, batches.rows_per_epoch() // ROWS)
    pairs = [(batch.labels > 0, logits(batch.columns)) for batch in itertools.islice(batches.epoch(0), 0, None, every)]
    positive, values = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    line = fit_line(positive, values)
    losses = log_loss(positive, values), log_loss(positive, line.apply(values))
    log.info(
        "probabilities: calibrated rows=%d slope=%.3f shift=%.3f loss_before=%.4f loss_after=%.4f",
        line.rows,
        line.slope,
        line.shift,
        *losses,
    )
    return line


def fit_line(positive: NDArray[np.bool_], logits: NDArray[Any]) -> LogitLine:
    """Minimises the log loss. A normal prior around slope 1 and shift 0 decides where rows are few or all labels are equal."""
    from scipy.optimize import minimize
    from scipy.special import expit

    values, count = logits.astype(np.float64), len(logits)

    def objective(line: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        moved, away = line[0] * values + line[1], line - (1.0, 0.0)
        surplus = expit(moved) - positive
        gradient = np.array([(surplus * values).mean(), surplus.mean()])
        return log_loss(positive, moved) + float(away @ away) / (2 * count), gradient + away / count

    optimum = minimize(objective, (1.0, 0.0), jac=True, method="L-BFGS-B", bounds=[(_FLATTEST, None), (None, None)])
    slope, shift = (float(value) for value in optimum.x)
    return LogitLine(slope, shift, count) if np.isfinite(optimum.fun) else UNCALIBRATED


def log_loss(positive: NDArray[np.bool_], logits: NDArray[Any]) -> float:
    values = logits.astype(np.float64)
    return float((np.logaddexp(0, values) - values * positive).mean())
