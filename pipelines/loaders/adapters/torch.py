"""Adapter to PyTorch: an IterableDataset of complete batches, on any device.

Each iteration gives the next epoch. `set_epoch` chooses the epoch, as in DistributedSampler; `state_dict` and `load_state_dict` resume
within an epoch, as torchdata's StatefulDataLoader requires. Use the dataset directly, or as DataLoader(batches, batch_size=None).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from pipelines.loaders.adapters.layout import Chosen, Layout, Offsets, RaggedLayout, layout_stage, layouts
from pipelines.loaders.adapters.pytorch.copies import CudaChannel, copied
from pipelines.loaders.adapters.pytorch.layout import laid_out
from pipelines.loaders.adapters.pytorch.resident import ResidentRows, generator, load_resident
from pipelines.loaders.adapters.pytorch.shards import sharded
from pipelines.loaders.adapters.pytorch.tensors import Tensor, tensors
from pipelines.loaders.epochs import EpochReader
from pipelines.loaders.kinds import label_of
from pipelines.loaders.plan import Shard
from shared.domain.errors import Invalid
from shared.serving.signature import OFFSETS

TensorStage = Callable[[dict[str, Tensor], Any], dict[str, Tensor]]
"""Turns a batch on its device into another batch, with a torch.Generator that is seeded by seed, rank, epoch and step."""
_STAGES = 4
"""Separates the seeds of stages from those of permutations."""
_WORKERS = "as_torch: the loader prepares batches in its own threads; set DataLoader's num_workers to 0"


@dataclass(frozen=True)
class NextBatch:
    """The next batch."""

    epoch: int = 0
    step: int = 0


@dataclass(frozen=True)
class BatchConversion:
    """Conversion of a batch's columns to the output."""

    layouts: Mapping[str, Layout]
    label: str | None
    device: Any
    ahead: int = 2
    """Copies to the device in progress while a batch is used."""
    include_last_offset: bool = False
    stages: tuple[TensorStage, ...] = ()

    def to_output(self, columns: dict[str, Tensor]) -> Any:
        if not self.include_last_offset:
            ends = [name + OFFSETS for name, layout in self.layouts.items() if isinstance(layout, Offsets)]
            columns = columns | {name: columns[name][:-1] for name in ends if name in columns}
        if self.label is None:
            return columns
        if self.label not in columns:
            raise Invalid(f"as_torch: label='{self.label}' is not a column of the batch after the stages; columns: {', '.join(columns)}")
        return {name: tensor for name, tensor in columns.items() if name != self.label}, columns[self.label]


class TorchBatches(IterableDataset):  # type: ignore[misc]
    def __init__(self, loader: EpochReader, way: BatchConversion, epochs: int | None, resident: ResidentRows | None) -> None:
        self.loader, self._way, self._epochs, self._resident = loader, way, epochs, resident
        self._wanted: NextBatch | None = None
        self._at = NextBatch()
        self._begun = -1

    def __len__(self) -> int:
        if self._epochs is None:
            raise TypeError("as_torch: epochs=None never ends and has no length")
        return len(self.loader) * self._epochs

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is not None:
            raise Invalid(_WORKERS)
        return self._batches(self._wanted or NextBatch(self._begun + 1))

    def __reduce__(self) -> Any:
        raise Invalid(_WORKERS)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the next epoch; if a state was loaded for this epoch, the state's batch is kept."""
        if self._wanted is None or self._wanted.epoch != epoch:
            self._wanted = NextBatch(epoch)

    def state_dict(self) -> dict[str, Any]:
        place = self._wanted or self._at
        return {"epoch": place.epoch, "step": place.step, "of": self._fingerprint}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["of"] != self._fingerprint:
            raise Invalid(
                "load_state_dict: the state belongs to other rows or settings; use the same files, batch_size, pool, memory, seed, "
                "shuffle, drop_last, number of ranks and resident"
            )
        self._wanted = NextBatch(state["epoch"], state["step"])

    @cached_property
    def _with_layouts(self) -> EpochReader:
        """The loader for all epochs: it keeps its memory from epoch to epoch."""
        layouts = self._way.layouts
        return replace(self.loader, stages=(*self.loader.stages, layout_stage(layouts))) if layouts else self.loader

    @cached_property
    def _fingerprint(self) -> str:
        """Digest of all that decides the rows of a batch, without the rank: all ranks resume from the state of one rank."""
        own = replace(self.loader, shard=Shard(0, self.loader.shard.world)).fingerprint
        return own if self._resident is None else f"resident {own}"

    def _batches(self, begin: NextBatch) -> Iterator[Any]:
        """Yields batches. Reading starts only with the first batch, because torchdata creates iterators that it never uses."""
        self._wanted, self._at = None, begin
        steps = len(self.loader)
        for epoch in count(begin.epoch) if self._epochs is None else range(begin.epoch, begin.epoch + self._epochs):
            self._begun = epoch
            start = begin.step if epoch == begin.epoch else 0
            for step, columns in enumerate(self._columns(epoch, start), start):
                batch = self._way.to_output(self._staged(columns, epoch, step))
                self._at = NextBatch(epoch, step + 1) if step + 1 < steps else NextBatch(epoch + 1)
                yield batch
            self._at = NextBatch(epoch + 1)  # skipped rows can shorten the epoch

    def _columns(self, epoch: int, start: int) -> Iterator[dict[str, Tensor]]:
        way = self._way
        if self._resident is not None:
            return (laid_out(columns, way.layouts) for columns in self._resident.epoch(epoch, start))
        host = map(tensors, self._with_layouts.epoch(epoch, start))
        return host if way.device.type == "cpu" else copied(host, CudaChannel(way.device), way.ahead)

    def _staged(self, columns: dict[str, Tensor], epoch: int, step: int) -> dict[str, Tensor]:
        if self._way.stages:
            random = generator(self._way.device, self.loader.seed, self.loader.shard.rank, epoch, step, _STAGES)
            for stage in self._way.stages:
                columns = stage(columns, random)
        return columns


def as_torch(  # noqa: PLR0913 - what a caller may choose, each with a default
    loader: EpochReader,
    label: str | None = None,
    *,
    lists: Chosen = "offsets",
    include_last_offset: bool = False,
    device: Any = "cpu",
    resident: float | None = None,
    epochs: int | None = 1,
    ahead: int = 2,
    stages: Sequence[TensorStage] = (),
) -> TorchBatches:
    """Returns batches of (columns, label), or of columns if there is no label.

    `resident`: all rows are kept on the device, if they fit into this share of its memory. `epochs`: epochs per iteration, or None for no
    end. `stages` run on the device.
    """
    there = _device(device)
    if epochs is not None and epochs < 1:
        raise Invalid(f"as_torch: epochs={epochs} must be at least 1, or None for no end")
    if ahead < 1:
        raise Invalid(f"as_torch: ahead={ahead} must be at least 1: the batches copied to the device in advance")
    loader = sharded(loader)
    columns = loader.columns
    chosen = layouts(lists, columns, Offsets())
    for name, layout in chosen.items():
        if isinstance(layout, RaggedLayout):
            raise Invalid(f"as_torch: column '{name}': PyTorch takes no ragged lists; set 'offsets', 'lengths', 'padded' or Dense(size)")
    labelled = label if stages and label is not None else label_of(columns, label)  # a stage may add the label
    way = BatchConversion(chosen, labelled, there, ahead, include_last_offset, tuple(stages))
    return TorchBatches(loader, way, epochs, None if resident is None else load_resident(loader, there, resident))


def _device(name: Any) -> Any:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise Invalid(f"as_torch: device='{name}' is unknown to PyTorch; set 'cpu' or 'cuda'") from error
    if device.type not in ("cpu", "cuda"):
        raise Invalid(f"as_torch: device='{name}' is not supported; set 'cpu' or 'cuda', and move the batches yourself")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise Invalid(f"as_torch: device='{name}', but PyTorch sees no GPU; set device='cpu'")
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device
