"""What a training came to (N-07): flat numbers for the run, a few facts for its lineage, and `training.json`, all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.training.validation import said
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
    """Of training alone."""
    waited: float
    """Of these, for batches."""
    looked: dict[str, float] = field(default_factory=dict)
    """What the held-out rows say; nothing where nobody looked."""
    look_seconds: float = 0.0
    look_rows: int = 0

    @property
    def rows_per_s(self) -> float:
        return _rate(self.rows, self.seconds)

    def __str__(self) -> str:
        return f"loss {self.loss:.4f}" + (f", {said(self.looked)}" if self.looked else "")

    @property
    def told(self) -> EpochTold:
        return EpochTold(epoch=self.number, loss=self.loss, seconds=self.seconds, rows_per_s=self.rows_per_s, validation=self.looked)

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {"epoch": self.number, "loss": self.loss, "seconds": self.seconds, "rows": self.rows}
        found |= {"rows_per_s": self.rows_per_s, "waited_seconds": self.waited}
        if self.looked:
            found["validation"] = {**self.looked, "seconds": self.look_seconds, "rows_per_s": _rate(self.look_rows, self.look_seconds)}
        return found


@dataclass(frozen=True)
class Report:
    training: Training
    batch_size: int
    epochs: tuple[Epoch, ...]
    published: int
    """The epoch whose weights the model has, from 1."""
    metric: str | None
    """By which it is the best; None where nobody looked."""
    ended: str
    """Why there were no more epochs."""
    kept_seconds: float = 0.0
    """That checkpoints took."""
    resumed: tuple[Mapping[str, Any], ...] = ()
    """From which attempts' checkpoints it went on."""

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.epochs)

    @property
    def best(self) -> Epoch:
        return self.epochs[self.published - 1]

    @property
    def reached(self) -> tuple[int, float] | None:
        """The first epoch that reached the target, and the seconds until then: looks among them, since it takes one to know."""
        target, passed = self.training.target, 0.0
        for one in self.epochs:
            passed += one.seconds + one.look_seconds
            if target is not None and target.metric in one.looked and target.reached(one.looked[target.metric]):
                return one.number, passed
        return None

    @property
    def metrics(self) -> dict[str, float]:
        rows, looks = sum(one.rows for one in self.epochs), [one for one in self.epochs if one.looked]
        found = {
            "train.seconds": self.seconds,
            "train.rows": float(rows),
            "train.rows_per_s": _rate(rows, self.seconds),
            "train.loss": self.best.loss,
            "train.epochs": float(len(self.epochs)),
            "train.published_epoch": float(self.published),
            "train.batch_size": float(self.batch_size),
        }
        found |= {f"train.validation_{name}": value for name, value in self.best.looked.items()}
        if looks:
            seconds = sum(one.look_seconds for one in looks)
            found["train.validation_rows_per_s"] = _rate(sum(one.look_rows for one in looks), seconds)
        if self.reached is not None:
            found |= {"train.target_epoch": float(self.reached[0]), "train.target_seconds": self.reached[1]}
        return found

    @property
    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = {"losses": [round(one.loss, 6) for one in self.epochs], "published": self._published, "ended": self.ended}
        looks = [one for one in self.epochs if one.looked]
        if looks:
            names = {"loss": "losses", "auc": "aucs"}
            values = {name: [None if name not in one.looked else round(one.looked[name], 6) for one in looks] for name in looks[0].looked}
            found["validation"] = {names.get(name, name): series for name, series in values.items()} | {"rows": looks[0].look_rows}
        if self.resumed:
            found["resumed"] = [dict(one) for one in self.resumed]
        return found

    @property
    def document(self) -> dict[str, Any]:
        training, rows = self.training, sum(one.rows for one in self.epochs)
        return {
            "version": 1,
            "epochs": [one.document for one in self.epochs],
            "ended": self.ended,
            "published": self._published,
            "target": None if training.target is None else training.target.model_dump() | self._target,
            "batch_size": self.batch_size,
            "optimizer": training.optimizer,
            "learning_rate": training.learning_rate,
            "seed": training.seed,
            "rows_per_s": _rate(rows, self.seconds),
            "seconds": {
                "training": self.seconds,
                "waiting": sum(one.waited for one in self.epochs),
                "validation": sum(one.look_seconds for one in self.epochs),
                "checkpoints": self.kept_seconds,
            },
            "resumed": [dict(one) for one in self.resumed],
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
