"""Training from a family's task to a report: the common part of all families that train in steps.

Checks the rows, holds out a share if the spec says so, and chooses the batch size; then the family's `begin` starts a framework and builds
the step.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from pipelines.inputs.batch_stages import UNKNOWN_ITEMS, UNKNOWN_SHARE
from pipelines.inputs.batches import Batches
from pipelines.inputs.bloom_filter import LikedItems, read_liked
from pipelines.inputs.tables import describes_items
from pipelines.loaders.memory import MEBIBYTE
from pipelines.models.family import Task
from pipelines.training.batch_size import BatchSize, batch_size
from pipelines.training.calibration import UNCALIBRATED, LogitLine, calibrate
from pipelines.training.loop import TrainingLoop
from pipelines.training.on_device import looked_there
from pipelines.training.preflight import check_memory, check_rows
from pipelines.training.rank_context import ALONE, RankContext
from pipelines.training.ranking import rank_held
from pipelines.training.report import TrainingReport
from pipelines.training.step import GivesLogits, TrainingStep
from pipelines.training.validation import Validation, hold_out
from shared.domain.errors import Invalid

LOOKED = 4
"""Negatives per positive in validation, if training samples none."""
LOADER = 512 * MEBIBYTE
"""Most memory for reading ahead and shuffling batches; at most a quarter of the training's memory."""
S = TypeVar("S", bound=TrainingStep)


@dataclass(frozen=True)
class TrainingRequest:
    """A family's requirements for its training."""

    negatives: int
    """Sampled negatives per positive."""
    verified: bool = False
    """Whether negatives are never items that the user likes."""
    widths: Sequence[int] = ()
    """Widths of the layers, input and output included."""
    lookups: float = 1.0
    """Values of a row that are looked up in all tables."""
    weights: int = 0
    """Bytes."""
    resident: bool = False
    """Whether the step takes batches on torch's device."""
    in_batch: bool = False
    """Whether a step compares its positives with each other: then it takes only positives, and fewer rows at once. Validation has all
    held-out rows and sampled negatives."""
    calibrated: bool = False
    """Whether the scores are probabilities of labels that users gave: they are calibrated on the validation rows, if there are any. Then
    the step must implement GivesLogits."""


@dataclass(frozen=True)
class Trainer(Generic[S]):
    step: S
    """Has the weights to publish."""
    report: TrainingReport
    startup: float
    """Seconds to check the rows and build the step."""
    size: BatchSize
    negatives: int = 0
    """Sampled negatives for each positive."""
    calibration: LogitLine = UNCALIBRATED

    @property
    def metrics(self) -> dict[str, float]:
        return {"train.startup_seconds": self.startup} | self.report.metrics

    @property
    def facts(self) -> dict[str, Any]:
        return {"batch_size": {"rows": self.size.size, "why": self.size.why}} | self.report.facts | self.calibration.document

    @property
    def document(self) -> dict[str, Any]:
        """The content of `training.json`."""
        return {**self.report.document, "startup_seconds": self.startup, "batch_size_why": self.size.why, "negatives": self.negatives}


@dataclass(frozen=True)
class TrainerInputs:
    batches: Batches
    validation: Batches | None
    """Validation rows after each epoch."""
    size: BatchSize = field(compare=False)


def run(task: Task, wants: TrainingRequest, begin: Callable[[int], S], together: RankContext = ALONE) -> Trainer[S]:
    """Trains the step that `begin` builds from the batch size, after the framework's seeds are set; `together` connects the ranks."""
    training, started = task.model.train, time.monotonic()
    if training.processes > 1 and together is ALONE:
        where = "a training outside a run" if task.rank is None else f"the family '{task.model.family}'"
        raise Invalid(f"model.train.processes: {where} uses one process: leave processes out")
    if training.resident and (not wants.resident or (wants.verified and task.history is not None)):
        subject = "verified negatives of a warm run" if wants.resident else f"batches of the family '{task.model.family}'"
        raise Invalid(f"model.train.resident: {subject} are made on the host: leave resident out")
    check_rows(task.graph, task.rows, task.items, task.users, wants.negatives or wants.in_batch, task.parent is not None)
    check_memory(wants.weights, training.optimizer, task.memory)
    with material(task, wants) as prepared:
        task.log.info("batch size: chosen rows=%d reason=%s", prepared.size.size, prepared.size.why)
        step = begin(prepared.size.size)
        batches = _resident(prepared.batches, task) if training.resident else prepared.batches
        look = None
        if prepared.validation is not None:
            ranking = None
            if training.ranked and together.leads:
                keys = task.popularity.items
                folder = prepared.validation.path.parent
                ranking = rank_held(prepared.validation, prepared.batches.path, task.history, keys, folder, step.score, training.ranked)
            look = Validation(prepared.validation, step.score, ranking)
            if training.resident:
                look = looked_there(look, step, _device())
        startup = time.monotonic() - started
        report = TrainingLoop(step, batches, training, task.log, look, task.keeping, together=together).run()
        calibration = task.calibration
        if wants.calibrated and prepared.validation is not None:
            assert isinstance(step, GivesLogits)
            validation, logits = prepared.validation, step.logits
            together.looking()
            calibration = LogitLine(**together.led(lambda: asdict(calibrate(validation, logits, task.log))))
    return Trainer(step, report, startup, prepared.size, wants.negatives, calibration)


def _device() -> Any:
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _resident(batches: Batches, task: Task) -> Batches:
    from pipelines.inputs.on_device import OnDevice

    on_device = OnDevice.of(batches, _device(), task.rows)
    size = on_device.rows.size
    task.log.info("training rows: copied to the device device=%s rows=%d mb=%.1f", on_device.device, len(on_device.rows.labels), size / 1e6)
    return on_device


@contextmanager
def material(task: Task, wants: TrainingRequest) -> Iterator[TrainerInputs]:
    training = task.model.train
    liked = read_liked(task.rows, task.history, task.popularity.items) if wants.verified else None
    memory = LOADER if task.memory is None else min(LOADER, task.memory // 4)
    base = batches_of(task, 1, wants.negatives, liked, memory)
    with tempfile.TemporaryDirectory(prefix="validation-", dir=task.rows.parent) as folder:
        rest, held_path = task.rows, None
        if training.validation:
            rest, held_path = hold_out(task.rows, training.validation, training.seed, Path(folder))
        batches = replace(base, path=rest, positives=wants.in_batch)
        size = batch_size(training.batch_size, wants.widths, wants.lookups, batches.rows_per_epoch(), wants.in_batch)
        batches = replace(batches, batch_size=size.size)
        yield TrainerInputs(batches, None if held_path is None else _looked_at(batches, held_path, wants), size)


def _looked_at(batches: Batches, held_path: Path, wants: TrainingRequest) -> Batches:
    negatives = LOOKED if wants.in_batch else wants.negatives
    return replace(batches, path=held_path, shuffle=False, unknown_users=0, unknown_items=0, negatives=negatives, positives=False)


def batches_of(task: Task, batch_size: int, negatives: int, liked: LikedItems | None, memory: int) -> Batches:
    """Returns the training batches of a task.

    If items have features besides the key, items of the catalogue that training does not know are not drawn as negatives: nobody could like
    them yet, and the model would learn to rank new items last.
    """
    base = Batches(task.rows, task.graph, task.items, task.users, batch_size, negatives, task.model.train.seed, liked=liked, memory=memory)
    share = getattr(task.model.params, "unknown_items", None)  # families of keys alone have no such parameter
    if not describes_items(task.graph):
        return base if share is None else replace(base, unknown_items=share)
    vocabulary = task.graph.key(task.graph.item).state
    is_known = np.isin(task.popularity.items, vocabulary.values.to_numpy()) | (task.popularity.counts > 0)
    drawable = None if is_known.all() or not is_known.any() else np.flatnonzero(is_known)
    usual = UNKNOWN_ITEMS if vocabulary.buckets is None else UNKNOWN_SHARE  # rows with an unknown item would all show one bucket
    return replace(base, unknown_items=usual if share is None else share, drawable=drawable)
