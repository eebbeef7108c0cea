"""The common part of all adapters: finds the label, lays out the lists and checks the start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from pipelines.loaders.adapters.layout import BatchColumn, Chosen, Layout, layout_stage, layouts, shown
from pipelines.loaders.epochs import Columns, EpochReader
from pipelines.loaders.kinds import label_of
from shared.domain.errors import Invalid


@dataclass(frozen=True)
class OpenDataset:
    loader: EpochReader
    columns: Mapping[str, BatchColumn]
    """Columns of a batch: names, types and shapes."""
    label: str | None

    def position(self, start: tuple[int, int]) -> int:
        """Returns the number of batches before `start`, counted from the first epoch."""
        epoch, step = start
        if epoch < 0 or not 0 <= step < max(1, len(self.loader)):
            raise Invalid(f"start: epoch {epoch}, batch {step}: epochs begin with 0; batches are 0 to {len(self.loader) - 1}")
        return epoch * len(self.loader) + step

    def epochs(self, count: int | None, start: tuple[int, int]) -> Iterator[Columns]:
        """Yields the batches of `count` epochs, or without end for None, from the epoch and batch `start`."""
        if count is not None and count < 1:
            raise Invalid(f"epochs: must be at least 1, or None for no end; not {count}")
        return self.batches(self.position(start), None if count is None else (start[0] + count) * len(self.loader))

    def batches(self, first: int, last: int | None) -> Iterator[Columns]:
        """Yields the batches from position `first` up to `last`, over epochs."""
        at, steps = first, len(self.loader)
        while steps and (last is None or at < last):
            epoch, step = divmod(at, steps)
            with closing(self.loader.epoch(epoch, step)) as batches:  # type: ignore[type-var]
                for batch in batches:
                    yield batch
                    at += 1
                    if at == last:
                        return

    def divided(self, batch: Mapping[str, Any]) -> tuple[dict[str, Any], Any] | dict[str, Any]:
        """Returns the columns, with the label beside them if there is one."""
        columns = {name: batch[name] for name in self.columns}
        if self.label is None:
            return columns
        label = columns.pop(self.label)
        return columns, label


def opened(loader: EpochReader, label: str | None, lists: Chosen, default: Layout) -> OpenDataset:
    columns = loader.columns
    chosen = layouts(lists, columns, default)
    return OpenDataset(
        replace(loader, stages=(*loader.stages, layout_stage(chosen))) if chosen else loader,
        shown(columns, chosen),
        label_of(columns, label),
    )
