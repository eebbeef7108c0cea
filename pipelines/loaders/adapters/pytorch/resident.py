"""Keeps all rows of a loader's shard on a device: reads them once, then draws each epoch there as a permutation of all rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import psutil
import torch

from pipelines.loaders.adapters.pytorch.tensors import TensorLists, tensors
from pipelines.loaders.epochs import EpochReader
from shared.domain.errors import Invalid

_GIB = 2**30
_ORDER = 32
"""Bytes per row of a permutation and of the counting of lists."""


@dataclass(frozen=True)
class ResidentRows:
    columns: dict[str, Any]
    rows: int
    steps: int
    batch_size: int
    shuffle: bool
    drop_last: bool
    seed: tuple[int, ...]
    """Seed of the random order, extended by the epoch."""
    device: Any

    def epoch(self, number: int, start: int = 0) -> Iterator[dict[str, Any]]:
        order = self._order(number)
        ends = self._ends()
        sizes = {name: _sizes(column, order, ends) for name, column in self.columns.items() if isinstance(column, TensorLists)}
        for step in range(start, self.steps):
            rows = order[ends[step] : ends[step + 1]]
            yield {name: take_rows(column, rows, sizes[name][step] if name in sizes else None) for name, column in self.columns.items()}

    def _order(self, number: int) -> Any:
        if not self.shuffle:
            return torch.arange(self.rows, device=self.device)
        return torch.randperm(self.rows, generator=generator(self.device, *self.seed, number), device=self.device)

    def _ends(self) -> list[int]:
        """Returns where batches begin and end. The last batch has the remaining rows: fewer, or a row more if the shards are unequal."""
        last = self.steps * self.batch_size if self.drop_last else self.rows
        return [*range(0, self.steps * self.batch_size, self.batch_size), last]


def generator(device: Any, *seed: int) -> Any:
    drawn = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> np.uint64(1)
    return torch.Generator(device).manual_seed(int(drawn))


def take_rows(column: Any, rows: Any, size: int | None = None) -> Any:
    """Returns these rows. `size` is the total number of the lists' values if known; otherwise the call waits for the device."""
    if not isinstance(column, TensorLists):
        return column.index_select(0, rows)
    begin = column.offsets.index_select(0, rows)
    lengths = column.offsets.index_select(0, rows + 1) - begin
    offsets = torch.zeros(len(rows) + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=offsets[1:])
    size = int(offsets[-1]) if size is None else size
    places = torch.repeat_interleave(begin - offsets[:-1], lengths, output_size=size)
    places += torch.arange(size, device=places.device)
    return TensorLists(column.values.index_select(0, places), offsets)


def _sizes(lists: TensorLists, order: Any, ends: list[int]) -> list[int]:
    """Returns the number of values of each batch, with a single wait per epoch."""
    total = torch.zeros(len(order) + 1, dtype=torch.int64, device=order.device)
    torch.cumsum(lists.offsets.diff().index_select(0, order), 0, out=total[1:])
    sizes: list[int] = total[torch.tensor(ends, device=order.device)].diff().tolist()
    return sizes


def load_resident(loader: EpochReader, device: Any, share: float) -> ResidentRows:
    """Reads all rows; raises Invalid if they take more than this share of the device's memory."""
    if loader.stages:
        raise Invalid(
            "as_torch: resident: this loader has stages, which run on every batch, but resident rows are read once; give the stages to "
            "as_torch instead"
        )
    if not 0 < share <= 1:
        raise Invalid(f"as_torch: resident={share} must be a share of the device's memory: more than 0, at most 1")
    plain = replace(loader, shuffle=False, drop_last=False)
    reading = _RowCollector(plain.rows, device, room(device, share), f"a share of {share:g} of the memory of '{device}', or its free part,")
    for batch in plain.epoch(0):
        reading.add(tensors(batch))
    rows, steps = reading.read, len(loader)
    if rows != plain.rows:
        if loader.shard.world > 1:
            raise Invalid(
                f"as_torch: resident: {plain.rows - rows} of {plain.rows} rows cannot be read, but ranks need equal numbers of rows; "
                "repair the files, or leave resident out"
            )
        steps = rows // loader.batch_size if loader.drop_last else -(-rows // loader.batch_size)
    return ResidentRows(
        columns=reading.columns(),
        rows=rows,
        steps=steps,
        batch_size=loader.batch_size,
        shuffle=loader.shuffle,
        drop_last=loader.drop_last,
        seed=(loader.seed, loader.shard.rank),
        device=device,
    )


def room(device: Any, share: float) -> int:
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
    else:
        memory = psutil.virtual_memory()
        free, total = memory.available, memory.total
    return min(int(share * total), int(free))


class _RowCollector:
    """Collects rows in tensors that are allocated for all rows."""

    def __init__(self, rows: int, device: Any, room: int, room_text: str) -> None:
        self._rows, self._device, self._room, self._room_text = rows, device, room, room_text
        self.read = 0
        self._sizes: dict[str, int] = {}
        self._flat: dict[str, Any] = {}
        self._values: dict[str, list[Any]] = {}

    def add(self, batch: dict[str, Any]) -> None:
        rows = len(next(iter(batch.values())))
        self._check(batch, self.read + rows)
        for name, column in batch.items():
            if isinstance(column, TensorLists):
                offsets = self._place(name, torch.int64, (), 1)
                offsets[self.read + 1 : self.read + rows + 1] = column.offsets[1:].to(self._device) + offsets[self.read]
                self._values.setdefault(name, []).append(column.values.to(self._device, copy=True))
            else:
                self._place(name, column.dtype, column.shape[1:], 0)[self.read : self.read + rows] = column.to(self._device)
        self.read += rows

    def columns(self) -> dict[str, Any]:
        return {
            name: TensorLists(torch.cat(self._values.pop(name)), tensor[: self.read + 1]) if name in self._values else tensor[: self.read]
            for name, tensor in self._flat.items()
        }

    def _place(self, name: str, dtype: Any, shape: Any, more: int) -> Any:
        if name not in self._flat:
            self._flat[name] = torch.zeros((self._rows + more, *shape), dtype=dtype, device=self._device)
        return self._flat[name]

    def _check(self, batch: dict[str, Any], read: int) -> None:
        """Estimates the memory of all rows from the rows so far. Concatenation needs a list column's values twice."""
        for name, column in batch.items():
            for role, part in (
                (("values", column.values), ("offsets", column.offsets)) if isinstance(column, TensorLists) else (("rows", column),)
            ):
                key = f"{name} {role}"
                self._sizes[key] = self._sizes.get(key, 0) + part.numel() * part.element_size()
        twice = max((size for key, size in self._sizes.items() if key.endswith(" values")), default=0)
        needed = (sum(self._sizes.values()) + twice) / max(1, read) * self._rows + _ORDER * self._rows
        if needed > self._room:
            raise Invalid(
                f"as_torch: resident: {self._rows} rows take about {needed / _GIB:.3g} GiB, but {self._room_text} is"
                f" {self._room / _GIB:.3g} GiB; raise the share, read fewer columns, or leave resident out"
            )
