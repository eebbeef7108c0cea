"""Result of a training (N-07): flat metrics of the run, a few facts for its lineage, and the complete `training.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.training.validation import describe_metrics
from shared.contracts.models import Training
from shared.contracts.progress import EpochTold

DOCUMENT = "training.json"


@dataclass(frozen=True)
class Epoch:
    number: int
    """From 1."""
    loss: float
    rows: int
    seconds: float
    """Training only, without validation."""
    waited: float
    """Part of `seconds` that waited for batches."""
    looked: dict[str, float] = field(default_factory=dict)
    """Validation metrics; empty without validation."""
    look_seconds: float = 0.0
    look_rows: int = 0

    @property
    def rows_per_s(self) -> float:
        return _rate(self.rows, self.seconds)

    def __str__(self) -> str:
        return describe_metrics(self.loss, self.looked)

    @property
    def progress(self) -> EpochTold:
        return EpochTold(epoch=self.number, loss=self.loss, seconds=self.seconds, rows_per_s=self.rows_per_s, validation=self.looked)

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {"epoch": self.number, "loss": self.loss, "seconds": self.seconds, "rows": self.rows}
        document |= {"rows_per_s": self.rows_per_s, "waited_seconds": self.waited}
        if self.looked:
            document["validation"] = {**self.looked, "seconds": self.look_seconds, "rows_per_s": _rate(self.look_rows, self.look_seconds)}
        return document


@dataclass(frozen=True)
class TrainingReport:
    training: Training
    batch_size: int
    epochs: tuple[Epoch, ...]
    published: int
    """The epoch whose weights the model has, from 1."""
    metric: str | None
    """The metric that chose the epoch; None without validation."""
    ended: str
    """Why there were no more epochs."""
    kept_seconds: float = 0.0
    """Seconds of checkpoints."""
    resumed: tuple[Mapping[str, Any], ...] = ()
    """Attempts whose checkpoints this training continued."""
    lowered: tuple[int, ...] = ()
    """Epochs after which the learning rate fell."""

    @property
    def seconds(self) -> float:
        return sum(epoch.seconds for epoch in self.epochs)

    @property
    def best(self) -> Epoch:
        return self.epochs[self.published - 1]

    @property
    def reached(self) -> tuple[int, float] | None:
        """The first epoch that reached the target, and the seconds until then, validation included."""
        target, passed = self.training.target, 0.0
        for epoch in self.epochs:
            passed += epoch.seconds + epoch.look_seconds
            if target is not None and target.metric in epoch.looked and target.reached(epoch.looked[target.metric]):
                return epoch.number, passed
        return None

    @property
    def metrics(self) -> dict[str, float]:
        rows, looks = sum(epoch.rows for epoch in self.epochs), [epoch for epoch in self.epochs if epoch.looked]
        metrics = {
            "train.seconds": self.seconds,
            "train.rows": float(rows),
            "train.rows_per_s": _rate(rows, self.seconds),
            "train.loss": self.best.loss,
            "train.epochs": float(len(self.epochs)),
            "train.published_epoch": float(self.published),
            "train.batch_size": float(self.batch_size),
        }
        metrics |= {f"train.validation_{name}": value for name, value in self.best.looked.items()}
        if looks:
            seconds = sum(epoch.look_seconds for epoch in looks)
            metrics["train.validation_rows_per_s"] = _rate(sum(epoch.look_rows for epoch in looks), seconds)
        if self.reached is not None:
            metrics |= {"train.target_epoch": float(self.reached[0]), "train.target_seconds": self.reached[1]}
        return metrics

    @property
    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "losses": [round(epoch.loss, 6) for epoch in self.epochs],
            "published": self._published,
            "ended": self.ended,
        }
        looks = [epoch for epoch in self.epochs if epoch.looked]
        if looks:
            names = {"loss": "losses", "auc": "aucs"}
            values = {
                name: [None if name not in epoch.looked else round(epoch.looked[name], 6) for epoch in looks] for name in looks[0].looked
            }
            facts["validation"] = {names.get(name, name): series for name, series in values.items()} | {"rows": looks[0].look_rows}
        if self.resumed:
            facts["resumed"] = [dict(resumption) for resumption in self.resumed]
        return facts

    @property
    def document(self) -> dict[str, Any]:
        training, rows = self.training, sum(epoch.rows for epoch in self.epochs)
        return {
            "version": 1,
            "epochs": [epoch.document for epoch in self.epochs],
            "ended": self.ended,
            "published": self._published,
            "target": None if training.target is None else training.target.model_dump() | self._target,
            "batch_size": self.batch_size,
            "optimizer": training.optimizer,
            "learning_rate": training.learning_rate,
            "lowered_after": list(self.lowered),
            "seed": training.seed,
            "rows_per_s": _rate(rows, self.seconds),
            "seconds": {
                "training": self.seconds,
                "waiting": sum(epoch.waited for epoch in self.epochs),
                "validation": sum(epoch.look_seconds for epoch in self.epochs),
                "checkpoints": self.kept_seconds,
            },
            "resumed": [dict(resumption) for resumption in self.resumed],
        }

    @property
    def _published(self) -> dict[str, Any]:
        by = None if self.metric is None else {"metric": self.metric, "value": self.best.looked[self.metric]}
        return {"epoch": self.published, "of": len(self.epochs), "best_by": by}

    @property
    def _target(self) -> dict[str, Any]:
        epoch, seconds = self.reached or (None, None)
        return {"epoch": epoch, "seconds": seconds}


def _rate(rows: int, seconds: float) -> float:
    return rows / seconds if seconds > 0 else 0.0
