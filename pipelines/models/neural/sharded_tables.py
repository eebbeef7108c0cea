"""Embedding tables sharded over ranks with TorchRec: each rank holds some rows, some columns, or some of the tables.

A lookup sends codes to the ranks with their rows and gets sums of vectors back. Gradients go the same way, and the engine's optimizer
updates the rows in place at once. Rows move between rank 0 and the shards in pieces of `AT_ONCE` bytes.
"""

from __future__ import annotations

import importlib.util
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipelines.inputs.tables import Codes
from pipelines.models.neural.architecture import table_path
from pipelines.models.neural.frameworks.torch import network_device
from pipelines.models.neural.lookup import codes_of, values_of
from pipelines.models.neural.optimizers import RowwiseAdagrad
from pipelines.models.tables import Table
from pipelines.training.group import Group, RankRows
from shared.domain.errors import Invalid

Shard = Literal["row", "column", "table"]
Floats = NDArray[np.float32]
AT_ONCE = 16 << 20
STEP = 4
"""The engine's kernels need multiples of four columns."""
WEIGHTS, SQUARES = "weights", "squares"
UVM_CACHING = "fused_uvm_caching"
"""Kernel that keeps a table in host memory, and a cache of its rows on the GPU."""


def check_engine() -> None:
    if importlib.util.find_spec("torchrec") is None or importlib.util.find_spec("fbgemm_gpu") is None:
        raise Invalid("model.train.shard: TorchRec is not installed where this stage runs: run 'make setup-torch', or leave shard out")


@dataclass(frozen=True)
class TableShard:
    """A part of a table, and the rank that holds it."""

    rank: int
    row: int
    column: int
    rows: int
    columns: int


class ShardedTables:
    def __init__(
        self, tables: Sequence[Table], shard: Shard, optimizer: str, rate: float, group: Group, cold_rows: Literal["host"] | None = None
    ) -> None:
        import torch

        if cold_rows is not None and group.device.type != "cuda":
            raise Invalid(
                "model.train.cold_rows: needs a GPU for each process, which are not here: leave it out, or set resources.train.gpu"
            )
        self._torch, self.tables, self._group, self._network_device = torch, tuple(tables), group, network_device()
        self._adagrad = optimizer == "adagrad"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._model = self._built(shard, rate, None if cold_rows is None else UVM_CACHING)
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")  # the engine still uses old names
        self._shards = {table.column: self._model.state_dict()[self._name(at)] for at, table in enumerate(self.tables)}
        if self._adagrad:
            for squares in self._squares().values():
                squares.fill_(float(RowwiseAdagrad(rate).begin(1, 1)["squares"][0, 0]))

    @property
    def bytes_here(self) -> int:
        """Bytes of all tables that this rank holds."""
        return sum(shard.tensor.numel() * 4 for shards in self._shards.values() for shard in shards.local_shards())

    def look_up(self, columns: Codes, share: RankRows | None = None) -> list[Any]:
        """Returns for each table a vector, or the pooled vectors, of each of this rank's rows; of all rows if `share` is None. All ranks
        must call it together; missing rows are empty lookups."""
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

        torch = self._torch
        batch_rows = len(next(iter(columns.values())))
        rows = slice(0, batch_rows) if share is None else slice(share.start, share.stop)
        bags = batch_rows if share is None else -(-batch_rows // self._group.rank.count)
        values, lengths = [], []
        for table in self.tables:
            codes = codes_of(columns, table)[rows]
            table_values, counts = (codes, np.ones(len(codes), np.int32)) if table.length is None else values_of(codes)
            values.append(table_values)
            lengths.append(np.pad(counts, (0, bags - len(counts))))
        keys = [f"f{at}" for at in range(len(self.tables))]
        with self._group.not_alone("a lookup"):
            all_codes = torch.from_numpy(np.concatenate(values).astype(np.int64))
            jagged = KeyedJaggedTensor(keys, all_codes, lengths=torch.from_numpy(np.concatenate(lengths))).to(self._group.device)
            pooled = self._model(jagged).wait().to_dict()
        own = max(rows.stop - rows.start, 1)  # a rank without rows takes a row of zeros, which has no effect
        return [pooled[key][:own, : table.width].to(self._network_device) for key, table in zip(keys, self.tables, strict=True)]

    def go_back(self, vectors: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Sends gradients back to the rows of the lookup and updates these rows."""
        with self._group.not_alone("an update"):
            self._torch.autograd.backward(list(vectors), list(gradients))

    def draw(self, rows: Callable[[Table, int], Iterator[Floats]]) -> None:
        """Draws all rows on each rank and keeps the rank's own; `rows` yields a table's rows, a given number at a time."""
        for table in self.tables:
            at, step = 0, _step(table.width)
            for some in rows(table, step):
                for piece, tensor in self._local(table):
                    self._write(piece, tensor, at, some)
                at += len(some)

    def give(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Sends rank 0's arrays, named `weights/PATH` and `squares/PATH`, to their ranks."""
        for name, _, piece, target in self._pieces():
            array = arrays[name] if self._group.leads else None
            width = piece.columns if name.startswith(WEIGHTS) else 1
            for start in range(0, piece.rows, _step(width)):
                stop = min(start + _step(width), piece.rows)
                buffer = self._torch.empty((stop - start, width), device=self._group.device)
                if array is not None:
                    buffer[:] = 0
                    some = array[piece.row + start : piece.row + stop, piece.column : piece.column + width]
                    buffer[:, : some.shape[1]] = self._torch.from_numpy(np.ascontiguousarray(some))
                self._group.carried(buffer, 0, piece.rank)
                if target is not None:
                    target[start:stop] = buffer.reshape(target[start:stop].shape)

    def collect(self, folder: Path, squares: bool = True) -> dict[str, NDArray[Any]]:
        """Returns all arrays on rank 0, mapped from unnamed files; nothing on other ranks."""
        arrays: dict[str, NDArray[Any]] = {}
        self._model.state_dict()  # writes cached rows back to host memory
        for name, table, piece, source in self._pieces(squares):
            width = piece.columns if name.startswith(WEIGHTS) else 1
            if self._group.leads and name not in arrays:
                arrays[name] = _mapped(folder, (table.cardinality, table.width if name.startswith(WEIGHTS) else 1))
            for start in range(0, piece.rows, _step(width)):
                stop = min(start + _step(width), piece.rows)
                shape = (stop - start, width)
                buffer = self._torch.empty(shape, device=self._group.device)
                if source is not None:
                    buffer = source[start:stop].detach().reshape(shape).to(self._group.device).contiguous()
                self._group.carried(buffer, piece.rank, 0)
                if self._group.leads:
                    target = arrays[name][piece.row + start : piece.row + stop, piece.column : piece.column + width]
                    target[:] = buffer.cpu().numpy()[:, : target.shape[1]]
        return arrays

    def _write(self, piece: TableShard, tensor: Any, at: int, some: Floats) -> None:
        first, last = max(piece.row, at), min(piece.row + piece.rows, at + len(some))
        if first < last:
            values = some[first - at : last - at, piece.column : piece.column + piece.columns]
            with self._torch.no_grad():
                tensor[first - piece.row : last - piece.row, : values.shape[1]] = self._torch.from_numpy(np.ascontiguousarray(values))

    def _local(self, table: Table) -> list[tuple[TableShard, Any]]:
        return [
            (TableShard(self._group.rank.number, *shard.metadata.shard_offsets, *shard.metadata.shard_sizes), shard.tensor)
            for shard in self._shards[table.column].local_shards()
        ]

    def _pieces(self, squares: bool = True) -> Iterator[tuple[str, Table, TableShard, Any]]:
        """Yields all pieces, in the same order on every rank; the memory is None for pieces of other ranks."""
        local_squares = self._squares() if self._adagrad and squares else {}
        for table in self.tables:
            local = {(piece.row, piece.column): tensor for piece, tensor in self._local(table)}
            for shard in self._shards[table.column].metadata().shards_metadata:
                piece = TableShard(shard.placement.rank(), *shard.shard_offsets, *shard.shard_sizes)
                is_local = piece.rank == self._group.rank.number
                yield f"{WEIGHTS}/{table_path(table)}", table, piece, local[piece.row, piece.column] if is_local else None
                if self._adagrad and squares:
                    yield f"{SQUARES}/{table_path(table)}", table, piece, local_squares[table.column] if is_local else None

    def _squares(self) -> dict[str, Any]:
        """Returns adagrad's sums of the rows on this rank, by column."""
        squares = {}
        state = self._model.fused_optimizer.state_dict()["state"]
        for at, table in enumerate(self.tables):
            for name, value in state.get(self._name(at), {}).items():
                local = value.local_shards()
                if name.endswith(".momentum1") and local:
                    squares[table.column] = local[0].tensor
        return squares

    @staticmethod
    def _name(at: int) -> str:
        return f"bags.embedding_bags.t{at}.weight"

    def _built(self, shard: Shard, rate: float, kernel: str | None) -> Any:
        import torchrec
        from torchrec.distributed import comm_ops
        from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
        from torchrec.distributed.model_parallel import DistributedModelParallel
        from torchrec.distributed.sharding_plan import construct_module_sharding_plan
        from torchrec.distributed.types import ShardingEnv, ShardingPlan
        from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
        from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

        torch, count = self._torch, self._group.rank.count
        comm_ops.set_gradient_division(False)  # each rank's loss is a part of the whole, so gradients add up
        bags = torchrec.EmbeddingBagCollection(
            tables=[
                EmbeddingBagConfig(
                    name=f"t{at}",
                    embedding_dim=_padded(table.width),
                    num_embeddings=table.cardinality,
                    feature_names=[f"f{at}"],
                    pooling=PoolingType.MEAN if table.length is not None and table.pooling == "mean" else PoolingType.SUM,
                )
                for at, table in enumerate(self.tables)
            ],
            device=torch.device("meta"),
        )
        kind, more = (torchrec.optim.RowWiseAdagrad, {"eps": 1e-7}) if self._adagrad else (torch.optim.SGD, {})
        apply_optimizer_in_backward(kind, bags.parameters(), {"lr": rate, **more})
        by_table = {f"t{at}": _parameter_sharding(shard, at, _padded(table.width), count, kernel) for at, table in enumerate(self.tables)}
        sharder = EmbeddingBagCollectionSharder()
        device = self._group.device
        plan = construct_module_sharding_plan(bags, by_table, sharder=sharder, local_size=count, world_size=count, device_type=device.type)

        class BagModule(torch.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.bags = bags

            def forward(self, features: Any) -> Any:
                return self.bags(features)

        return DistributedModelParallel(
            BagModule(),
            env=ShardingEnv.from_process_group(torch.distributed.group.WORLD),
            device=device,
            plan=ShardingPlan({"bags": plan}),
            sharders=[sharder],
            init_data_parallel=False,
        )


def _parameter_sharding(shard: Shard, at: int, width: int, count: int, kernel: str | None) -> Any:
    """Returns the engine's function that places a table; `kernel`: the engine's name of its way to compute, by default its own choice."""
    from torchrec.distributed import sharding_plan

    if shard == "row":
        return sharding_plan.row_wise(compute_kernel=kernel)
    parts = max(divisor for divisor in range(1, count + 1) if width % (divisor * STEP) == 0)
    if shard == "column" and parts > 1:
        return sharding_plan.column_wise(ranks=[(at + part) % count for part in range(parts)], compute_kernel=kernel)
    return sharding_plan.table_wise(rank=at % count, compute_kernel=kernel)


def _padded(width: int) -> int:
    return -(-width // STEP) * STEP


def _step(width: int) -> int:
    """Rows per piece."""
    return max(1, AT_ONCE // (4 * width))


def _mapped(folder: Path, shape: tuple[int, int]) -> NDArray[Any]:
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.memmap(file, np.float32, "w+", shape=shape)
