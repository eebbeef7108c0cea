"""A training from a family's task to a report: what every family that takes steps has in common.

The rows are looked at, a share is held out where the spec says so, the size of a step is chosen, and only then a framework is started: the
family's `begin` builds what is trained. The loop does the rest.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from pipelines.inputs.batches import Batches
from pipelines.inputs.bloom_filter import read_liked
from pipelines.loaders.memory import MEBIBYTE
from pipelines.models.family import Task
from pipelines.training.batch_size import BatchSize, batch_size
from pipelines.training.loop import Loop
from pipelines.training.on_device import looked_there
from pipelines.training.preflight import check_memory, check_rows
from pipelines.training.rank_context import ALONE, RankContext
from pipelines.training.ranking import rank_held
from pipelines.training.report import Report
from pipelines.training.step import Step
from pipelines.training.validation import Validation, hold_out
from shared.domain.errors import Invalid

LOOKED = 4
"""Negatives sampled for each positive that is looked at, where none are to train on."""
LOADER = 512 * MEBIBYTE
"""What batches that are read ahead and shuffled take at most; or a quarter of what training may take."""
S = TypeVar("S", bound=Step)


@dataclass(frozen=True)
class TrainingRequest:
    """What a family's training is given, and what it weighs."""

    negatives: int
    """Sampled for each positive."""
    verified: bool = False
    """Whether none of them is an item that its user likes."""
    widths: Sequence[int] = ()
    """Of its layers one after the other, what goes in and what comes out among them."""
    lookups: float = 1.0
    """In all tables, of a row."""
    weights: int = 0
    """Bytes."""
    resident: bool = False
    """Whether its step takes batches that lie on torch's device."""
    in_batch: bool = False
    """Whether a step holds its positives against each other: other rows stay out of it, and it takes fewer rows at once. What is looked at
    has those rows, and sampled negatives."""


@dataclass(frozen=True)
class Course(Generic[S]):
    step: S
    """With the weights that are to be published."""
    report: Report
    startup: float
    """Seconds that it took to build it, and to look at the rows."""
    size: BatchSize

    @property
    def metrics(self) -> dict[str, float]:
        return {"train.startup_seconds": self.startup} | self.report.metrics

    @property
    def facts(self) -> dict[str, Any]:
        return {"batch_size": {"rows": self.size.size, "why": self.size.why}} | self.report.facts

    @property
    def document(self) -> dict[str, Any]:
        """`training.json`."""
        return {**self.report.document, "startup_seconds": self.startup, "batch_size_why": self.size.why}


@dataclass(frozen=True)
class Material:
    batches: Batches
    validation: Batches | None
    """What is looked at after each epoch."""
    size: BatchSize = field(compare=False)


def run(task: Task, wants: TrainingRequest, begin: Callable[[], S], together: RankContext = ALONE) -> Course[S]:
    """`begin` sets the framework's seeds, then builds. `together`: with whom its step is taken."""
    training, started = task.model.train, time.monotonic()
    if training.processes > 1 and together is ALONE:
        where = "what isn't a stage of a run" if task.rank is None else f"the family '{task.model.family}'"
        raise Invalid(f"model.train.processes: {where} trains in one process: leave it out")
    if training.resident and (not wants.resident or (wants.verified and task.history is not None)):
        subject = "verified negatives of a warm run" if wants.resident else f"batches of the family '{task.model.family}'"
        raise Invalid(f"model.train.resident: {subject} are made on the host: leave it out")
    check_rows(task.graph, task.rows, task.items, task.users, wants.negatives or wants.in_batch, task.parent is not None)
    check_memory(wants.weights, training.optimizer, task.memory)
    with material(task, wants) as prepared:
        task.log.info("%s", prepared.size)
        step = begin()
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
        report = Loop(step, batches, training, task.log, look, task.keeping, together=together).run()
    return Course(step, report, startup, prepared.size)


def _device() -> Any:
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _resident(batches: Batches, task: Task) -> Batches:
    from pipelines.inputs.on_device import OnDevice

    on_device = OnDevice.of(batches, _device(), task.rows)
    size = on_device.rows.size
    task.log.info(
        "%s rows lie on %s, with features of items and users %.1f MB", f"{len(on_device.rows.labels):,}", on_device.device, size / 1e6
    )
    return on_device


@contextmanager
def material(task: Task, wants: TrainingRequest) -> Iterator[Material]:
    training = task.model.train
    liked = read_liked(task.rows, task.history, task.popularity.items) if wants.verified else None
    memory = LOADER if task.memory is None else min(LOADER, task.memory // 4)
    base = Batches(task.rows, task.graph, task.items, task.users, 1, wants.negatives, training.seed, liked=liked, memory=memory)
    with tempfile.TemporaryDirectory(prefix="validation-", dir=task.rows.parent) as folder:
        rest, held_path = task.rows, None
        if training.validation:
            rest, held_path = hold_out(task.rows, training.validation, training.seed, Path(folder))
        batches = replace(base, path=rest, positives=wants.in_batch)
        size = batch_size(training.batch_size, wants.widths, wants.lookups, batches.rows_per_epoch(), wants.in_batch)
        batches = replace(batches, batch_size=size.size)
        yield Material(batches, None if held_path is None else _looked_at(batches, held_path, wants), size)


def _looked_at(batches: Batches, held_path: Path, wants: TrainingRequest) -> Batches:
    negatives = LOOKED if wants.in_batch else wants.negatives
    return replace(batches, path=held_path, shuffle=False, unknown_share=0, negatives=negatives, positives=False)
