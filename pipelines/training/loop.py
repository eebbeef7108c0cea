"""The training loop around a step: epochs, validation, the best epoch, checkpoints and progress.

Nothing waits for the device unless it must: losses are read late (`pipelines.training.loss_monitor`). The loop's own state is a few numbers
and a position in the batches. A training that was killed continues from a checkpoint with the same batches.
"""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from pipelines.arrays import read_arrays, write_arrays
from pipelines.inputs.batches import EpochPosition, TrainingBatch
from pipelines.training.checkpoints import BEST, CheckpointStore
from pipelines.training.loss_monitor import Losses
from pipelines.training.rank_context import ALONE, RankContext
from pipelines.training.report import Epoch, TrainingReport
from pipelines.training.schedule import FACTOR, RateSchedule
from pipelines.training.step import ReadsTogether, Scheduled, State, TrainingStep
from pipelines.training.validation import Validation
from shared.contracts.models import Training
from shared.contracts.progress import Progress
from shared.domain.errors import Invalid

LOG_EVERY = 10.0
"""Most seconds between two log lines."""
REPORT_EVERY = 2.0
"""Fewest seconds between two progress reports to the platform."""
_HISTORY = 50
"""Most epochs in a progress report."""
_MISSING = {
    "auc": "all held-out rows have the same label; choose loss, or sample negatives (model.params.negatives)",
    "loss": "the family's scores are not probabilities; choose auc or ndcg@10/99",
}


class Feed(Protocol):
    """Batches to train on: the same for the same epoch, from any place."""

    @property
    def path(self) -> Path: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def fingerprint(self) -> str:
        """Differs if the data differ."""

    def rows_per_epoch(self) -> int: ...
    def placed(self, number: int, start: EpochPosition = ...) -> Iterator[tuple[TrainingBatch, EpochPosition]]:
        """Yields each batch of an epoch, and where the next batch begins."""


@dataclass
class BestEpoch:
    epoch: int
    value: float
    counted: float
    """The last value that was a sufficient improvement."""
    looks: int = 0
    """Validations since then."""


class TrainingLoop:
    """Trains a step. `look` validates after each epoch; `keeping` saves checkpoints and reports progress. `together` connects the ranks of
    a training: all run this loop, and the leading rank validates and saves."""

    def __init__(
        self,
        step: TrainingStep,
        batches: Feed,
        training: Training,
        log: logging.Logger,
        look: Validation | None = None,
        keeping: CheckpointStore | None = None,
        clock: Callable[[], float] = time.monotonic,
        together: RankContext = ALONE,
    ) -> None:
        self._step, self._batches, self._training, self._log, self._look, self._clock = step, batches, training, log, look, clock
        self._together = together
        if training.epochs is None:
            raise ValueError("the family has not chosen the number of epochs")
        self._count = training.epochs
        self._rows = batches.rows_per_epoch()
        which = [batches.batch_size, self._rows, batches.fingerprint]
        self._keeping = keeping if keeping is None else keeping.resting_on(batches=which)
        self._steps = -(-self._rows // batches.batch_size)
        self._place, self._losses = EpochPosition(), Losses(training, step.read) if isinstance(step, ReadsTogether) else Losses(training)
        self._epochs: list[Epoch] = []
        self._best: BestEpoch | None = None
        self._schedule = RateSchedule(training.schedule)
        if training.schedule != "constant" and not isinstance(step, Scheduled):
            raise Invalid("model.train.schedule: the family's learning rate is constant: leave schedule out")
        self._metric: str = training.compared_by
        self._resumed: list[dict[str, Any]] = []
        self._unkept = 0
        """Steps since the last checkpoint."""
        self._seconds = self._waited = self._save_seconds = 0.0
        """Seconds of training and of waiting for batches in this epoch; seconds of checkpoints in all epochs."""
        self._logged_at = self._saved_at = clock()
        self._reported_at = -math.inf

    def run(self) -> TrainingReport:
        with tempfile.TemporaryDirectory(prefix="best-", dir=self._batches.path.parent) as folder:
            self._best_path = Path(folder) / BEST
            self._go_on()
            ended = ""
            while not ended:
                ended = self._epoch()
            return self._published(ended)

    def _epoch(self) -> str:
        """Trains an epoch, or the rest of an epoch; returns why training ends, or an empty text."""
        number = len(self._epochs) + 1
        with self._training_time():
            source = self._batches.placed(number - 1, self._place)
            while (upcoming := self._next(source)) is not None:
                batch, self._place = upcoming
                self._together.propose_stop(lambda: self._checkpoint_due(1))
                self._losses.add(self._step(batch), len(batch))
                self._unkept += 1
                keep = self._together.granted(self._checkpoint_due)
                if keep or self._clock() - self._logged_at >= LOG_EVERY:
                    self._aside(keep)
            self._losses.settle()
            rows, loss = self._losses.rows, self._losses.next_epoch()
        self._place = EpochPosition()
        epoch = self._looked(Epoch(number, loss, rows, self._seconds, self._waited))
        self._epochs.append(epoch)
        self._seconds = self._waited = 0.0
        ended = self._compared(epoch)
        self._say()
        if not ended and self._together.led(self._checkpoint_due):
            self._checkpoint()
        return ended

    def _next(self, source: Iterator[Any]) -> Any:
        began = self._clock()
        upcoming = next(source, None)
        self._waited += self._clock() - began
        return upcoming

    @contextmanager
    def _training_time(self) -> Iterator[None]:
        self._running_since = self._clock()
        yield
        self._seconds += self._clock() - self._running_since

    def _checkpoint_due(self, coming: int = 0) -> bool:
        """Returns whether a checkpoint is due after `coming` more steps."""
        wanted, unkept = self._training.checkpoint, self._unkept + coming
        if self._keeping is None or wanted is None or not unkept:
            return False
        return self._clock() - self._saved_at >= wanted.every.total_seconds() or (wanted.steps is not None and unkept >= wanted.steps)

    def _aside(self, keep: bool) -> None:
        """Logs and saves within an epoch; the time of saving does not count as training."""
        now = self._clock()
        self._seconds += now - self._running_since
        if now - self._logged_at >= LOG_EVERY:
            self._losses.settle()
            self._say(within=True)
        if keep:
            self._checkpoint()
        self._running_since = self._clock()

    def _looked(self, epoch: Epoch) -> Epoch:
        if self._look is None or epoch.number < self._training.validate_from:
            return epoch
        look, began = self._look, self._clock()
        self._together.looking()
        values, rows = self._together.led(lambda: [look(), look.rows])
        if not all(map(math.isfinite, values.values())):
            raise Invalid(
                f"model.train.learning_rate: the model's scores are not finite after epoch {epoch.number};"
                f" {self._training.learning_rate:g} with {self._training.optimizer} is too high: lower it"
            )
        return replace(epoch, looked=values, look_seconds=self._clock() - began, look_rows=rows)

    def _compared(self, epoch: Epoch) -> str:
        """Keeps the best weights so far; returns why training ends, or an empty text."""
        last = epoch.number >= self._count
        if epoch.looked:
            value = epoch.looked[self._by(epoch)]
            stop = self._training.early_stop
            best = self._best or BestEpoch(0, math.inf if self._metric == "loss" else -math.inf, value)
            counts = best.epoch == 0 or self._better(value, best.counted, stop.min_change if stop is not None else 0.0)
            best.counted, best.looks = (value, 0) if counts else (best.counted, best.looks + 1)
            if self._better(value, best.value):
                best.epoch, best.value = epoch.number, value
                if not last:  # after the last epoch the step still has these weights
                    self._keep_best()
            self._best = best
            if stop is not None and best.looks >= stop.patience:
                return f"{self._metric} did not improve in {stop.patience} validations"
        best_epoch = self._best.epoch if epoch.looked and self._best else None
        if not last and self._schedule.falls(epoch.number, best_epoch) and isinstance(self._step, Scheduled):
            self._step.scale_rate(FACTOR)
            self._log.info("learning rate: lowered epoch=%d factor=%g", epoch.number, FACTOR)
        return "all epochs are done" if last else ""

    def _keep_best(self) -> None:
        state = self._step.state()
        self._together.led(lambda: write_arrays(self._best_path, state) and None)

    def _by(self, epoch: Epoch) -> str:
        """Returns the metric that compares epochs: the spec's, or else an available metric."""
        if self._metric not in epoch.looked:
            there = next((name for name in ("auc", "loss") if name in epoch.looked), None)
            if there is None or self._training.early_stop is not None:
                raise Invalid(f"model.train.early_stop.metric: {self._metric} cannot compare epochs: {_MISSING[self._metric]}")
            self._metric = there
        return self._metric

    def _better(self, value: float, than: float, by: float = 0.0) -> bool:
        return value < than - by if self._metric == "loss" else value > than + by

    def _published(self, ended: str) -> TrainingReport:
        last, number = len(self._epochs), len(self._epochs)
        metric = None
        if self._best is not None:
            number, metric = self._best.epoch, self._metric
            if number != last:
                self._step.restore(read_arrays(self._best_path) if self._together.leads else {})
            best = number, last, metric, self._best.value, ended
            self._log.info("epoch: best published epoch=%d of=%d metric=%s value=%.4f reason=%s", *best)
        return TrainingReport(
            self._training,
            self._batches.batch_size,
            tuple(self._epochs),
            number,
            metric,
            ended,
            self._save_seconds,
            tuple(self._resumed),
            tuple(self._schedule.lowered),
        )

    def _left(self) -> float:
        """Returns the seconds left if all epochs run, from the average time per row of training, validation and checkpoints."""
        done = len(self._epochs) * self._rows + self._losses.rows
        spent = sum(epoch.seconds + epoch.look_seconds for epoch in self._epochs) + self._seconds + self._save_seconds
        return spent / done * (self._count * self._rows - done) if done else math.nan

    def _say(self, within: bool = False) -> None:
        number, epochs, step, left = len(self._epochs) + within, self._count, self._losses.step, self._left()
        done, seconds = (self._losses.rows, self._seconds) if within else (self._rows, self._epochs[-1].seconds)
        rate = done / seconds if seconds else 0.0
        if within:
            values = number, epochs, step, self._steps, self._losses.mean, rate, left
            self._log.info("epoch: running epoch=%d of=%d step=%d steps=%d loss=%.4f rows_per_s=%.0f seconds_left=%.0f", *values)
        else:
            self._log.info(
                "epoch: finished epoch=%d of=%d rows_per_s=%.0f seconds_left=%.0f %s", number, epochs, rate, left, self._epochs[-1]
            )
        self._logged_at = self._clock()
        if self._keeping is None or self._logged_at - self._reported_at < REPORT_EVERY:
            return
        self._reported_at = self._logged_at
        self._keeping.tell(
            Progress(
                at=datetime.now(UTC),
                epoch=number,
                epochs=epochs,
                step=step if within else self._steps,
                steps=self._steps,
                loss=self._losses.mean if within else self._epochs[-1].loss,
                rows_per_s=rate,
                seconds_left=None if math.isnan(left) else left,
                history=tuple(epoch.progress for epoch in self._epochs[-_HISTORY:]),
            )
        )

    def _checkpoint(self) -> None:
        began, state = self._clock(), self._step.state()
        self._together.led(lambda: self._kept_aside(state))
        self._unkept, self._saved_at = 0, self._clock()
        self._save_seconds += self._saved_at - began

    def _kept_aside(self, state: State) -> None:
        assert self._keeping is not None
        about = {
            "losses": self._losses.state,
            "place": list(self._place),
            "epochs": [asdict(epoch) for epoch in self._epochs],
            "best": None if self._best is None else asdict(self._best),
            "metric": self._metric,
            "lowered": self._schedule.lowered,
            "resumed": self._resumed,
            "seconds": self._seconds,
            "waited": self._waited,
            "kept": self._save_seconds,
        }
        self._keeping.keep(about, state, self._best_path if self._best_path.exists() else None)

    def _go_on(self) -> None:
        """Continues from the newest checkpoint with equal inputs, if there is one."""
        checkpoint = self._keeping.newest_checkpoint() if self._keeping is not None and self._training.checkpoint is not None else None
        about = self._together.led(lambda: None if checkpoint is None else {**checkpoint.about, "attempt": checkpoint.attempt})
        if about is None:
            return
        self._step.restore({} if checkpoint is None else checkpoint.state)
        if checkpoint is not None and checkpoint.best is not None:
            shutil.move(checkpoint.best, self._best_path)
        self._losses.go_on(about["losses"])
        self._place = EpochPosition(*about["place"])
        self._epochs = [Epoch(**epoch) for epoch in about["epochs"]]
        self._best = None if about["best"] is None else BestEpoch(**about["best"])
        self._metric, self._seconds, self._waited, self._save_seconds = (about[name] for name in ("metric", "seconds", "waited", "kept"))
        self._schedule.lowered = about.get("lowered", [])
        at = {"attempt": about["attempt"], "epoch": len(self._epochs) + 1, "step": self._losses.step}
        self._resumed = [*about["resumed"], at]
        self._log.info("checkpoint: training continued from_attempt=%s epoch=%d step=%d", at["attempt"], at["epoch"], at["step"])
