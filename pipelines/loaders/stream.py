"""Iterates over epochs and resumes from another process's state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipelines.loaders.epochs import Columns, EpochReader
from shared.domain.errors import Invalid


class Stream:
    """Each iteration is an epoch, or the rest of an epoch; the state counts batches that were taken, not batches prepared ahead."""

    def __init__(self, loader: EpochReader) -> None:
        self.loader = loader
        self._epoch = self._step = 0

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Columns]:
        for batch in self.loader.epoch(self._epoch, self._step):
            self._step += 1
            yield batch
        self._epoch, self._step = self._epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "step": self._step, "of": self.loader.fingerprint}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["of"] != self.loader.fingerprint:
            raise Invalid(
                "load_state_dict: the state belongs to other rows or settings; use the same files, batch_size, memory, seed, shuffle, "
                "drop_last and shard"
            )
        self._epoch, self._step = int(state["epoch"]), int(state["step"])
