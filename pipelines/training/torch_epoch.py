"""Runs an epoch of a PyTorch model in training or validation, and reports rows, rates, the loss and the time spent waiting for batches.

Every row has the same weight, whatever the size of the last batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as group

from shared.domain.errors import Invalid


@dataclass(frozen=True)
class TorchEpoch:
    rows: int
    steps: int
    seconds: float
    waited: float
    """Seconds spent waiting for batches."""
    loss: float
    """Mean over the rows."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def share_waited(self) -> float:
        return self.waited / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows in {self.steps:,} steps, loss {self.loss:.4f}, {self.rows_per_second:,.0f} rows/s,"
            f" {self.share_waited:.0%} of the time waiting for batches"
        )


def run_epoch(
    model: Any,
    batches: Iterable[tuple[Any, Any]],
    loss: Callable[[Any, Any], Any],
    optimizer: Any = None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> TorchEpoch:
    """Trains with an optimizer; without one it validates: no gradients, and layers such as dropout as in serving. `loss` returns the mean
    of a batch. The model and its batches must be on the same device."""
    rows, steps, waited = 0, 0, 0.0
    total: Any = 0.0
    with _mode(model, train=optimizer is not None):
        begun = clock()
        source = iter(batches)
        while True:
            waiting_since = clock()
            batch = next(source, None)
            waited += clock() - waiting_since
            if batch is None:
                break
            columns, label = batch
            value = loss(model(columns), label)
            if optimizer is not None:
                optimizer.zero_grad(set_to_none=True)
                value.backward()
                optimizer.step()
            rows, steps = rows + len(label), steps + 1
            total = total + value.detach().double() * len(label)  # stays on the device, so that no step waits
        if not steps:
            raise Invalid("run_epoch: no batch: the data set is empty, or drop_last dropped all rows")
        mean = float(total) / rows  # waits for the device, so that the time covers all work
        seconds = clock() - begun
    return TorchEpoch(rows, steps, seconds, waited, mean)


def summary(epochs: Sequence[TorchEpoch]) -> str:
    """Describes a training: all rows over all seconds, not a mean of the epochs' rates."""
    rows, seconds, waited = (
        sum(epoch.rows for epoch in epochs),
        sum(epoch.seconds for epoch in epochs),
        sum(epoch.waited for epoch in epochs),
    )
    return (
        f"{rows:,} rows in {len(epochs)} epochs of {seconds:.1f} s, {rows / seconds if seconds else 0:,.0f} rows/s,"
        f" {waited / seconds if seconds else 0:.0%} of the time waiting for batches"
    )


def of_all_ranks(epoch: TorchEpoch, device: Any = "cpu") -> TorchEpoch:
    """Combines the epochs of all ranks of a process group, on each rank: all rows, in the time of the slowest. `device` must be able to
    reduce ("cuda" with NCCL)."""
    sums = torch.tensor([epoch.rows, epoch.loss * epoch.rows], dtype=torch.float64, device=device)
    most = torch.tensor([epoch.seconds, epoch.waited], dtype=torch.float64, device=device)
    group.all_reduce(sums, group.ReduceOp.SUM)
    group.all_reduce(most, group.ReduceOp.MAX)
    rows, loss = sums.tolist()
    seconds, waited = most.tolist()
    return TorchEpoch(int(rows), epoch.steps, seconds, waited, loss / rows)


@contextmanager
def _mode(model: Any, train: bool) -> Iterator[None]:
    before = model.training
    model.train(train)
    try:
        with torch.set_grad_enabled(train):
            yield
    finally:
        model.train(before)
