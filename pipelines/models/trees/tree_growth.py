"""Grows trees in rounds, with validation after each round and checkpoints."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from pipelines.evaluation.metrics import auc
from pipelines.models.trees.growing import Grower, TreeRows
from pipelines.models.trees.model import shown
from pipelines.training.checkpoints import CheckpointStore
from pipelines.training.validation import describe_metrics
from shared.contracts.models import Training
from shared.contracts.progress import EpochTold, Progress
from shared.domain.errors import Invalid

ROUNDS = 20
"""Most rounds, and so most validations."""
SAMPLE = 5_000
"""Rows for the computation of the loss."""
_LEAST = 1e-7


@dataclass(frozen=True)
class Round:
    trees: int
    """Trees so far, with the parent's."""
    loss: float
    seconds: float
    looked: dict[str, float]


@dataclass
class TreeGrowth:
    """Grows `count` trees after the `before` trees of the parent."""

    grower: Grower
    count: int
    before: int
    rows: int
    training: Training
    sample: TreeRows
    probability: bool
    """Whether margins must be turned into probabilities."""
    ranks: bool
    """Whether the loss is over pairs."""
    log: logging.Logger
    look: Callable[[], dict[str, float]] | None = None
    keeping: CheckpointStore | None = None
    rounds: list[Round] = field(default_factory=list)
    resumed: str | None = None
    """The attempt whose checkpoint this training continues."""
    ended: str = ""
    _kept_at: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        step = max(1, -(-self.count // ROUNDS))
        while not self.ended:
            began = time.monotonic()
            grown = self.grower.count - self.before
            self.grower.grow(min(step, self.count - grown))
            trees, seconds = self.grower.count, time.monotonic() - began
            self.rounds.append(Round(trees, self._loss(), seconds, self.look() if self.look is not None else {}))
            self.ended = self._end()
            left = (self.count - trees + self.before) / step * seconds
            last = self.rounds[-1]
            metrics = describe_metrics(last.loss, last.looked)
            self.log.info("trees: grown trees=%d of=%d seconds_left=%.0f %s", trees - self.before, self.count, left, metrics)
            self._tell(step, left)
            self._keep()
        if self.look is not None:
            self.grower.cut(self.best.trees)
        self.grower.finish()

    @property
    def metric(self) -> str:
        return self.training.compared_by

    @property
    def best(self) -> Round:
        """The round whose trees are published."""
        if self.look is None:
            return self.rounds[-1]
        sign = -1 if self.metric == "loss" else 1
        return max(self.rounds, key=lambda round_: sign * round_.looked[self.metric])

    def _end(self) -> str:
        last = self.rounds[-1]
        if self.look is not None and self.metric not in last.looked:
            raise Invalid(
                f"model.train.early_stop.metric: ranking trees have no '{self.metric}': choose auc"
                if self.metric == "loss"
                else f"model.train.validation: there is no '{self.metric}', because all held-out rows have the same label: draw negatives"
            )
        stop = self.training.early_stop
        if self.look is not None and stop is not None and self._idle(stop.min_change) >= stop.patience:
            return f"{self.metric} did not improve in {stop.patience} validations"
        return "all trees are grown" if last.trees - self.before >= self.count else ""

    def _idle(self, least: float) -> int:
        """Returns the number of rounds since the last sufficient improvement."""
        sign, idle = (-1 if self.metric == "loss" else 1), 0
        best = -np.inf
        for round_ in self.rounds:
            value = sign * round_.looked[self.metric]
            better = value > best + (least if np.isfinite(best) else 0)
            idle, best = (0, value) if better else (idle + 1, best)
        return idle

    def _loss(self) -> float:
        """Returns the loss over a sample of the training rows: the mean log loss, or the share of pairs in the wrong order."""
        score, liked = shown(self.grower.margin(self.sample.matrix), self.probability), self.sample.labels > 0
        if self.ranks:
            right = auc(liked, score)
            return 0.0 if right is None else 1 - right
        sure = np.clip(np.where(liked, score, 1 - score).astype(np.float64), _LEAST, 1)
        return float(-np.log(sure).mean())

    def _tell(self, step: int, left: float) -> None:
        if self.keeping is None:
            return
        rates = [self.rows * step / max(round_.seconds, 1e-9) for round_ in self.rounds]
        history = [
            EpochTold(epoch=at + 1, loss=round_.loss, seconds=round_.seconds, rows_per_s=rate, validation=round_.looked)
            for at, (round_, rate) in enumerate(zip(self.rounds, rates, strict=True))
        ]
        done, of = len(history), -(-self.count // step)
        self.keeping.tell(
            Progress(
                at=datetime.now(UTC), epoch=done, epochs=max(of, done), step=step, steps=step, loss=history[-1].loss,
                rows_per_s=rates[-1], seconds_left=0.0 if self.ended else left, history=tuple(history),
            )
        )  # fmt: skip

    def _keep(self) -> None:
        stored, every = self.grower.model(), self.training.checkpoint
        if self.keeping is None or every is None or self.ended or not stored:
            return
        due = time.monotonic() - self._kept_at >= every.every.total_seconds()
        if every.steps is not None:
            due |= self.grower.count // every.steps > (self.rounds[-2].trees if len(self.rounds) > 1 else self.before) // every.steps
        if due:
            about = {"rounds": [vars(round_) for round_ in self.rounds]}
            self.keeping.keep(about, {"trees": np.frombuffer(stored, np.uint8)}, None)
            self._kept_at = time.monotonic()

    @property
    def metrics(self) -> dict[str, float]:
        seconds, best = sum(round_.seconds for round_ in self.rounds), self.best
        metrics = {
            "train.seconds": seconds,
            "train.rows": float(self.rows),
            "train.rows_per_s": self.rows * len(self.rounds) / max(seconds, 1e-9),
            "train.loss": best.loss,
            "train.trees": float(best.trees),
        }
        return metrics | {f"train.validation_{name}": value for name, value in best.looked.items()}

    @property
    def document(self) -> dict[str, Any]:
        """The content of `training.json`."""
        best = self.best
        by = None if self.look is None else {"metric": self.metric, "value": best.looked[self.metric]}
        return {
            "version": 1,
            "rounds": [
                {"trees": round_.trees, "loss": round_.loss, "seconds": round_.seconds, "validation": round_.looked}
                for round_ in self.rounds
            ],
            "ended": self.ended,
            "published": {"trees": best.trees, "grown": best.trees - self.before, "of": self.rounds[-1].trees, "best_by": by},
            "seed": self.training.seed,
            "resumed": [] if self.resumed is None else [{"attempt": self.resumed}],
        }
