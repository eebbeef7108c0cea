"""Trains a neural family's model from its architecture."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pipelines.arrays import read_arrays
from pipelines.models.family import Fitted, Task
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.fused import DEVICE_FACTOR, GROUP_FACTOR, HOST_FACTOR, fuse
from pipelines.models.neural.losses import Loss
from pipelines.models.neural.model import NeuralModel
from pipelines.models.neural.network import Norm
from pipelines.models.neural.resident import ResidentStep
from pipelines.models.neural.sharded_step import Apartness, ShardedStep
from pipelines.models.neural.sharded_tables import check_engine
from pipelines.models.neural.step import LOGISTIC, NeuralStep, StepOptions
from pipelines.models.neural.weights import WEIGHTS, Weights, begin, begin_layers, grow
from pipelines.models.tables import Table
from pipelines.training.group import Group
from pipelines.training.negatives import sampled_negatives
from pipelines.training.rank_context import ALONE
from pipelines.training.ranks import PartDone
from pipelines.training.trainer import TrainingRequest, run
from shared.contracts.families import DeepParams
from shared.contracts.models import Training
from shared.domain.errors import Invalid

NEGATIVES = 4
"""Sampled negatives for each positive where users gave none."""


class Sampled(Protocol):
    """Parameters that decide how batches are sampled."""

    @property
    def negatives(self) -> int | None: ...
    @property
    def verified(self) -> bool: ...


def train_neural(
    task: Task,
    params: Sampled | None,
    architecture: Architecture,
    penalty: float = 0.0,
    loss: Loss = LOGISTIC,
    first: Callable[[], Weights] | None = None,
) -> Fitted:
    """Trains the model. `params` is None if the loss compares a batch's positives with each other. `penalty` is the weight of the squares
    of looked-up vectors in the loss. `first` gives the first weights of a run without a parent."""
    group = None if task.rank is None else Group(task.rank)
    negatives, verified = (0, False) if params is None else (sampled_negatives(task, params.negatives, NEGATIVES), params.verified)
    decay = params.regularisation if isinstance(params, DeepParams) else 0.0
    wants = TrainingRequest(
        negatives,
        verified and negatives > 0,
        architecture.widths,
        architecture.lookups,
        architecture.size,
        in_batch=params is None,
        resident=not loss.of,
        calibrated=negatives == 0 and params is not None,
    )

    def begin_step(batch_rows: int) -> NeuralStep:
        factor = GROUP_FACTOR if group is not None else DEVICE_FACTOR if task.model.train.resident else HOST_FACTOR
        options = how(task.model.train, penalty, decay, factor * batch_rows)
        return _begin_step(task, architecture, options, loss, first, group)

    done = run(task, wants, begin_step, ALONE if group is None else group)
    done.step.check_same()
    weights = done.step.weights()
    compared = done.step.compare()
    if group is None or group.leads:
        compared.check(done.step.name, task.log)
    if group is not None:
        group.close()
        if not group.leads:
            raise PartDone
    metrics = done.metrics | {"train.parameters": float(architecture.parameters)}
    facts = {"framework": done.step.name, "embeddings": sizes(architecture.tables, done.step.how.dense_rows)} | done.facts
    if group is not None:
        several = {"count": group.rank.count, "backend": group.backend, "sent_bytes": group.sent, "shard": task.model.train.shard}
        facts |= {"processes": several}
    if done.step.scale is not None:
        metrics["train.skipped_steps"] = float(done.step.scale.skipped)
        facts["loss_scale"] = done.step.scale.value
    architecture = replace(architecture, calibration=done.calibration)
    return Fitted(NeuralModel(architecture, weights), metrics, facts, done.document)


def _begin_step(
    task: Task, architecture: Architecture, options: StepOptions, loss: Loss, first: Callable[[], Weights] | None, group: Group | None
) -> NeuralStep:
    train = task.model.train
    report_sizes(architecture.tables, options.dense_rows, task.log)
    task.log.info("framework: starting framework=%s", {"tensorflow": "TensorFlow", "torch": "PyTorch", "jax": "JAX"}[task.model.framework])
    framework = load_framework(task.model.framework)
    if train.compile and (missing := framework.missing_compiler(train.compile)):
        raise Invalid(f"model.train.compile: {missing}")
    if train.shard is not None:
        check_engine()
        if options.decay:
            raise Invalid("model.params.regularisation: sharded tables have no L2: leave out regularisation or train.shard")
    if group is not None:
        check_parted(train, architecture, loss)
        group.meet()
        task.log.info("rank: joined rank=%d of=%d backend=%s", group.rank.number, group.rank.count, group.backend)
    follows = group is not None and not group.leads
    if group is not None and train.shard is not None:
        has_tables = task.parent is not None or first is not None
        layers_alone = follows or not has_tables
        weights = begin_layers(architecture, train.seed) if layers_alone else first_weights(task, architecture, first)
        apartness = Apartness(train.shard, has_tables, task.rows.parent, train.cold_rows)
        apart = ShardedStep(framework, architecture, weights, options, loss, group, apartness)
        task.log.info("tables: sharded shard=%s mb=%.1f of=%.1f", train.shard, apart.bytes_here / 1e6, _bytes(architecture.tables) / 1e6)
        return apart
    weights = begin(architecture, train.seed) if follows else first_weights(task, architecture, first)
    kind = ResidentStep if train.resident else NeuralStep
    return kind(framework, architecture, weights, options, loss, group)


def check_parted(training: Training, architecture: Architecture, loss: Loss) -> None:
    """Raises Invalid, before ranks meet, for a network that cannot be computed by shares."""
    if training.compile and (loss.of or any(isinstance(node, Norm) for node in architecture.network.nodes)):
        unsupported = "a loss over the whole batch" if loss.of else "batch norm over the whole batch"
        raise Invalid(f"model.train.compile: {unsupported} needs the other processes inside the network: leave out compile or processes")


def first_weights(task: Task, architecture: Architecture, first: Callable[[], Weights] | None) -> Weights:
    if task.parent is not None:
        return grow(architecture, read_arrays(task.parent(WEIGHTS)), task.new_rows, task.model.train.seed)
    if first is not None:
        return first()
    return begin(architecture, task.model.train.seed)


def how(training: Training, penalty: float = 0.0, decay: float = 0.0, dense_rows: int = 0) -> StepOptions:
    return StepOptions(
        training.optimizer,
        training.learning_rate,
        training.seed,
        half=bool(training.mixed_precision),
        float16=training.mixed_precision == "float16",
        scale=training.loss_scale if isinstance(training.loss_scale, float) else None,
        jit=training.compile,
        penalty=penalty,
        scheduled=training.schedule != "constant",
        decay=decay,
        dense_rows=dense_rows,
    )


def _bytes(tables: Sequence[Table]) -> int:
    return sum(table.size for table in tables)


def sizes(tables: Sequence[Table], dense_rows: int) -> dict[str, Any]:
    """Returns the sizes of all tables in memory, as a step holds them."""
    fused = [
        {"columns": [table.column for table in some.tables], "rows": some.rows, "width": some.width, "dense": some.dense}
        for some in fuse(tables, dense_rows)
    ]
    return {"bytes": _bytes(tables), "bytes_per_row": sum(table.lookup for table in tables), "fused": fused}


def report_sizes(tables: Sequence[Table], dense_rows: int, log: logging.Logger) -> None:
    for table in tables:
        sizes_of_table = table.column, table.cardinality, table.width, table.size / 1e6, table.pooling, table.length
        log.info("table: sized table=%s rows=%d width=%d mb=%.1f pooling=%s length=%s", *sizes_of_table)
    summary = sizes(tables, dense_rows)
    for some in summary["fused"]:
        if len(some["columns"]) > 1:
            log.info("tables: fused tables=%s rows=%d width=%d", ",".join(some["columns"]), some["rows"], some["width"])
    log.info("tables: sized mb=%.1f bytes_per_row=%d", summary["bytes"] / 1e6, summary["bytes_per_row"])
