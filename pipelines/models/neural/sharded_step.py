"""A step whose tables are sharded over ranks; each rank has the network and its optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipelines.inputs.batches import TrainingBatch
from pipelines.inputs.tables import Codes
from pipelines.models.neural import plain
from pipelines.models.neural.architecture import Architecture, table_path
from pipelines.models.neural.frameworks.protocol import Framework
from pipelines.models.neural.losses import Loss
from pipelines.models.neural.operations import ServedOperations
from pipelines.models.neural.sharded_tables import WEIGHTS, Shard, ShardedTables
from pipelines.models.neural.step import NeuralStep, StepOptions
from pipelines.models.neural.weights import Weights, rows_begun
from pipelines.training.group import Group


@dataclass(frozen=True)
class Apartness:
    shard: Shard
    has_tables: bool
    """Whether rank 0's first weights include the tables; else each rank draws its own rows from the seed."""
    folder: Path
    """Folder for tables in transit."""
    cold_rows: Literal["host"] | None = None


class ShardedStep(NeuralStep):
    """Implements TrainingStep."""

    _all_ranks_score = True

    def __init__(
        self,
        framework: Framework,
        architecture: Architecture,
        weights: Weights,
        how: StepOptions,
        loss: Loss,
        group: Group,
        apartness: Apartness,
    ) -> None:
        self._apartness, self._all_ranks = apartness, group
        super().__init__(framework, architecture, weights, how, loss, group)
        group.before_looking = self._gather

    def _begin_tables(self, weights: Weights) -> None:
        self._fused, self._readers, self._tables, self._slots = (), [], [], []
        self._apart = ShardedTables(
            self.architecture.tables,
            self._apartness.shard,
            self.how.optimizer,
            self.how.learning_rate,
            self._all_ranks,
            self._apartness.cold_rows,
        )
        if self._apartness.has_tables:
            begun = self._apart.collect(self._apartness.folder)
            tables = {f"{WEIGHTS}/{table_path(table)}": table_path(table) for table in self.architecture.tables}
            self._apart.give(begun | {name: weights[path] for name, path in tables.items()} if self._all_ranks.leads else {})
        else:
            self._apart.draw(lambda table, step: rows_begun(table_path(table), table.cardinality, table.width, self.how.seed, step))

    def __call__(self, batch: TrainingBatch) -> Any:
        self._plain, self._last = None, batch.columns
        self._share = self._all_ranks.share(len(batch))
        rows = self._share.rows
        vectors = self._apart.look_up(batch.columns, self._share)
        numbers, targets = self._numbers(batch.columns, rows), self._loss.targets(batch.part(rows))
        target_tensors = {name: _tensor(target) for name, target in targets.items()} if isinstance(targets, dict) else _tensor(targets)
        loss, moved, by_block, by_weight = self._differentiated(vectors, (), numbers, target_tensors)
        self._apart.go_back(vectors, by_block)
        loss, *by_weight = self._all_ranks.joined([loss, *by_weight])
        self._dense_optimizer.apply(by_weight, list(self._dense.values()))
        for path, value in moved.items():
            self._moving[path].assign(value)
        return loss

    @property
    def bytes_here(self) -> int:
        return self._apart.bytes_here

    def score(self, columns: Codes) -> NDArray[np.float32]:
        """Scores on rank 0, with the weights of the last gather."""
        assert self._plain is not None
        return plain.score(self.architecture, self._plain, columns)

    def own_logits(self, columns: Codes) -> NDArray[np.float32]:
        """Returns the framework's logits; all ranks pass the same rows."""
        from keras import ops

        features = self._features(self._apart.look_up(columns), (), self._numbers(columns, slice(None)))
        logits = self.architecture.network.apply(ServedOperations(self._dense, self._moving, None, None), features)[:, 0]
        return np.asarray(ops.convert_to_numpy(logits))

    def weights(self) -> Weights:
        """Returns all weights on rank 0, and only the layers' weights on other ranks."""
        tables = {
            name.removeprefix(f"{WEIGHTS}/"): array for name, array in self._apart.collect(self._apartness.folder, squares=False).items()
        }
        return tables | super().weights()

    def state(self) -> dict[str, NDArray[Any]]:
        arrays = self._apart.collect(self._apartness.folder)
        if not self._all_ranks.leads:
            return {}
        return arrays | {f"{WEIGHTS}/{path}": array for path, array in super().weights().items()} | self._optimizer_state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        super().restore(state)
        self._apart.give(state)

    def _gather(self) -> None:
        """Gathers the weights for rank 0's validation."""
        self._plain = self.weights()

    def _numbers(self, columns: Codes, rows: slice) -> dict[str, Any]:
        return {name: _tensor(columns[name][rows]) for name, _ in self.architecture.numbers}

    def _features(self, blocks: Any, shares: Any, numbers: Any) -> dict[str, Any]:
        """Returns the network's inputs; `blocks` holds a vector per row for each table."""
        features = {table.column: vectors for table, vectors in zip(self.architecture.tables, blocks, strict=True)}
        return features | super()._features((), (), numbers)


def _tensor(array: NDArray[Any]) -> Any:
    from keras import ops

    return ops.convert_to_tensor(array)
