"""Fits a Keras model on batches: with progress that says how fast and how long, and stopped the moment the loss breaks."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipelines.loaders.batches import Batches, as_dataset
from pipelines.loaders.progress import Pace
from pipelines.models.runtime import load_keras
from pipelines.training.validation import Validation
from shared.contracts.models import Training
from shared.domain.errors import Invalid


@dataclass(frozen=True)
class Fit:
    losses: tuple[float, ...]
    seconds: float
    """Of training alone."""
    rows: int


def fit(model: Any, batches: Batches, training: Training, log: logging.Logger, validation: Validation | None = None) -> Fit:
    """Seeds are set before the model is built: by its family. `validation` looks at the model after each epoch."""
    keras = load_keras()
    optimizers = {"adam": keras.optimizers.Adam, "sgd": keras.optimizers.SGD}
    model.compile(optimizer=optimizers[training.optimizer](training.learning_rate), loss="binary_crossentropy")
    rows = batches.rows_per_epoch()
    steps = -(-rows // batches.batch_size)
    progress = Progress(training, rows, log, validation)
    started = time.monotonic()
    history = model.fit(
        as_dataset(batches, training.epochs),
        epochs=training.epochs,
        steps_per_epoch=steps,
        verbose=0,
        shuffle=False,
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=progress.batch, on_epoch_end=progress.epoch)],
    )
    losses = tuple(float(loss) for loss in history.history["loss"])
    return Fit(losses, time.monotonic() - started - progress.looked, rows * training.epochs)


class Progress:
    """Says how training goes, at each epoch's end and every ten seconds in between."""

    def __init__(self, training: Training, rows: int, log: logging.Logger, look: Callable[[], str] | None = None) -> None:
        """`look` is asked after each epoch how the model does, in words."""
        self._training, self._rows, self._log, self._look = training, rows, log, look
        self._pace = Pace()
        """Its steps are epochs."""
        self._done = 0

    @property
    def looked(self) -> float:
        """Seconds that this took."""
        return self._pace.paused

    def batch(self, batch: int, logs: dict[str, float] | None = None) -> None:
        if not self._pace.due():
            return
        loss = (logs or {}).get("loss", math.nan)
        self._check(loss)
        self._log.info("epoch %d of %d, step %d, loss %.4f", self._done + 1, self._training.epochs, batch + 1, loss)

    def epoch(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        loss = (logs or {}).get("loss", math.nan)
        self._done = epoch + 1
        self._check(loss)
        said = f"loss {loss:.4f}" + self._seen()
        self._pace.add(self._rows)
        rate, left = self._pace.rate, self._pace.left(self._training.epochs)
        self._log.info("epoch %d of %d, %s, %s rows/s, %.0f s left", self._done, self._training.epochs, said, f"{rate:,.0f}", left)
        self._pace.due(0)

    def _seen(self) -> str:
        if self._look is None:
            return ""
        with self._pace.pause():
            return f", {self._look()}"

    def _check(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise Invalid(
                f"model.train.learning_rate: the loss is no longer a number in epoch {max(self._done, 1)};"
                f" {self._training.learning_rate:g} with {self._training.optimizer} is too high: lower it"
            )
