"""`eyas train`: trains a model on a file of pairs and writes what a run of the platform publishes.

The folder holds

- `model/`: a saved model (pipelines.trials.saved_model), which `eyas evaluate --saved` evaluates on other pairs
- `triton/NAME/`: a model for Triton's repository: config.pbtxt, and version 1 with the served unit and its signature
- `model_card.json`: for people
- `training.json`: data, duration and facts of the training; written last, so its presence means that the folder is complete

The model is trained on the whole file, without a holdout. After an interruption, the same command continues from the last checkpoint
(`model.train.checkpoint`)."""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
import tempfile
import time
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.evaluation.report import finite
from pipelines.evaluation.scorers import onnx_session
from pipelines.export.unit import named, write_unit
from pipelines.features.graph import Graph
from pipelines.features.raw import signature
from pipelines.models.families import family_of
from pipelines.models.family import Fitted, Task
from pipelines.models.tables import report
from pipelines.training.checkpoints import CheckpointStore, rests_on
from pipelines.trials.cases import TrainingPairs
from pipelines.trials.contenders import seeded
from pipelines.trials.progress_log import teller
from pipelines.trials.saved_model import file_of, keep
from pipelines.trials.task import ITEM, USER, graph_of_keys, prepare
from pipelines.trials.trial import read_train
from shared.artifacts import FsspecLive
from shared.contracts.card import CARD, Exported
from shared.contracts.models import Model
from shared.contracts.strict import read
from shared.contracts.tuning import SERVED, TRAINED, TRAINING, TrainedAnswer, TrainRequest
from shared.domain.errors import BadData, Invalid
from shared.serving.config import model_config
from shared.serving.signature import OUTPUT, Signature
from shared.serving.tensors import tensors

_SAMPLED = 20_000
_PARITY = 1e-3
"""Largest accepted difference between the scores of training and of the served unit."""
_CHECKPOINTS = ".kept"
_STRANGER = -(2**62)
"""An id that no user or item has."""


@dataclass(frozen=True)
class _TrainingData:
    """`raw` has the inputs of the served unit: the file's ids if they are whole numbers, else indexes."""

    places: pl.DataFrame
    raw: pl.DataFrame
    pairs: TrainingPairs
    faults: dict[str, int]


def train(arguments: Any) -> TrainedAnswer:
    request = read(TrainRequest, arguments, "eyas train")
    with redirect_stdout(sys.stderr):  # stdout is reserved for the answer
        return _train(request, teller("train"))


def _train(request: TrainRequest, log: logging.Logger) -> TrainedAnswer:
    started = time.monotonic()
    model = read(Model, {key: value for key, value in request.model.items() if key != "tune"}, "model")
    if request.seed is not None:
        model = seeded(model, request.seed)
    family = family_of(model.family, request.allow)
    out = _folder(Path(request.out))
    training_data = _read(request, log)
    called = "eyas-" + re.sub(r"[^a-z0-9]+", "-", request.name.lower()).strip("-")
    with tempfile.TemporaryDirectory(prefix=".train-", dir=out) as folder:
        new = Path(folder) / "new"
        task = prepare(training_data.places, model, family.reads, Path(folder) / "task", log)
        task = replace(task, keeping=_keeping(request, model, out, Path(folder), log))
        fitted = family.train(task)
        keep(new / TRAINED, fitted.model, task.graph, training_data.pairs)
        parity = _serve(new / SERVED / called, graph_of_keys(training_data.raw, family.reads), task, fitted, training_data)
        (new / CARD).write_text(_card(task, fitted, called).model_dump_json(indent=1))
        seconds = time.monotonic() - started
        (new / TRAINING).write_text(json.dumps(_document(request, task, fitted, training_data, parity, seconds), indent=1) + "\n")
        _move(new, out)
    shutil.rmtree(out / _CHECKPOINTS, ignore_errors=True)
    log.info("model: trained seconds=%.1f parity=%.2g", seconds, parity)
    return TrainedAnswer(
        seconds=seconds,
        metrics={name: float(value) for name, value in fitted.metrics.items()},
        parity=parity,
        model=str(out / TRAINED),
        served=str(out / SERVED / called),
        training=str(out / TRAINING),
    )


def _read(request: TrainRequest, log: logging.Logger) -> _TrainingData:
    pairs, faults, left = read_train(request.train, request.min_interactions)
    training_pairs, frame = TrainingPairs.from_pairs(pairs.frame), pairs.frame.drop("label", strict=False)
    places = frame.with_columns(
        pl.Series(USER, training_pairs.users.places(frame[USER])), pl.Series(ITEM, training_pairs.items.places(frame[ITEM]))
    )
    raw = frame.select(side if frame[side].dtype == pl.Int64 else places[side] for side in (USER, ITEM))
    log.info("training data: read pairs=%d users=%d items=%d", len(frame), len(training_pairs.users), len(training_pairs.items))
    for line in (*left, *(f"{count:,} {fault}" for fault, count in faults.items() if count)):
        log.info("training data: changed reason=%s", line)
    return _TrainingData(places, raw, training_pairs, faults)


def _keeping(request: TrainRequest, model: Model, out: Path, scratch: Path, log: logging.Logger) -> CheckpointStore:
    """Checkpoints from which the same command continues after an interruption."""
    made_of = rests_on(model, "full", {"train": {"pairs": file_of(request.train)}})
    live = FsspecLive(str((out / _CHECKPOINTS).absolute()), "train-1")
    return CheckpointStore(live, made_of, scratch, log).resting_on(min_interactions=request.min_interactions)


def _serve(folder: Path, graph: Graph, task: Task, fitted: Fitted, training_data: _TrainingData) -> float:
    """Writes the served unit and returns its parity."""
    served = signature(graph)
    unit = folder / "1"
    unit.mkdir(parents=True)
    served = named(served, write_unit(graph, fitted.model, unit / served.file))
    (unit / "signature.json").write_text(served.model_dump_json(indent=1))
    (folder / "config.pbtxt").write_text(model_config(folder.name, served, [1]).text())
    return _parity(unit / served.file, served, task.graph, fitted, training_data)


def _parity(unit: Path, served: Signature, graph: Graph, fitted: Fitted, training_data: _TrainingData) -> float:
    """Returns the largest score difference between unit and training, for pairs of the file and an unknown user and item."""
    rows = np.random.default_rng(31).permutation(len(training_data.raw))[:_SAMPLED]
    inputs = {side: np.append(training_data.raw[side].to_numpy()[rows], _STRANGER) for side in (USER, ITEM)}
    places = {side: pl.Series(np.append(training_data.places[side].to_numpy()[rows], _STRANGER)) for side in (USER, ITEM)}
    codes = {side: graph.key(side).state.coded(values) for side, values in places.items()}
    answered = onnx_session(unit).run([OUTPUT], tensors(served, inputs))[0]
    difference = float(np.abs(answered - fitted.model.score(codes)).max())
    if not difference <= _PARITY:
        raise BadData(f"the served unit's scores differ by {difference:.2g} from training: the model's numbers are too large or not finite")
    return difference


def _card(task: Task, fitted: Fitted, name: str) -> Exported:
    tables = fitted.model.tables
    return Exported(
        version=1,
        recommender=name,
        run="eyas train",
        mode="full",
        model=task.model.model_dump(mode="json", by_alias=True),
        features=tuple(task.graph.describe()),
        tables=tuple(report(tables)),
        lookup_bytes=sum(table.width * 4 * (table.length or 1) for table in tables),
        label="every pair of the file",
        score=fitted.model.meaning,
    )


def _document(
    request: TrainRequest, task: Task, fitted: Fitted, training_data: _TrainingData, parity: float, seconds: float
) -> dict[str, Any]:
    document = {
        "version": 1,
        "model": task.model.model_dump(mode="json", by_alias=True),
        "file": request.train,
        "sha256": file_of(request.train).sha256,
        "data": {"pairs": len(training_data.raw), "users": len(training_data.pairs.users), "items": len(training_data.pairs.items)}
        | training_data.faults,
        "seconds": seconds,
        "parity": parity,
        "metrics": fitted.metrics,
        "facts": fitted.facts,
        "report": fitted.report,
    }
    return dict[str, Any](finite(document))


def _folder(out: Path) -> Path:
    """Checks the folder; raises `Invalid` if it holds other files."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        there = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    except OSError as error:
        raise Invalid(f"--out {out}: cannot write to the folder: {error.strerror}") from None
    if other := sorted(there - {TRAINED, SERVED, CARD, TRAINING}):
        raise Invalid(f"--out {out}: it has '{other[0]}', which is not a file of 'eyas train': choose another folder")
    return out


def _move(new: Path, out: Path) -> None:
    """Moves the results. Removes `training.json` first, so that an incomplete folder does not count as a training."""
    (out / TRAINING).unlink(missing_ok=True)
    for name in (TRAINED, SERVED):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in (TRAINED, SERVED, CARD, TRAINING):
        (new / name).replace(out / name)
