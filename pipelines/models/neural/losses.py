"""Losses of a step: logistic over a batch's rows, or a softmax over the batch's items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from pipelines.inputs.batch_stages import OWN_ITEM
from pipelines.inputs.batches import TrainingBatch
from pipelines.models.neural.arrays import load_arrays

_NEVER = -1e9
"""Logit of an item that cannot be chosen."""


class BatchRows(Protocol):
    """Gives access to the rows of the whole batch from a rank's share."""

    def gathered(self, rows: Any) -> Any: ...


class Loss(Protocol):
    """A loss: the mean over a batch's rows."""

    @property
    def of(self) -> tuple[str, ...]:
        """Names of the network's nodes that the loss reads, [rows, width] each; empty for the last node."""

    def targets(self, batch: TrainingBatch) -> Any:
        """Returns what the loss reads from a batch besides the network's outputs: an array, or several by name, rows first."""

    def __call__(self, outputs: Sequence[Any], targets: Any, among: BatchRows | None = None) -> Any:
        """Computes the loss; `among` is given if the rows are a rank's share of the batch."""


@dataclass(frozen=True)
class Logistic:
    """Log loss of each row's label, times the row's weight."""

    of: ClassVar[tuple[str, ...]] = ()

    def targets(self, batch: TrainingBatch) -> NDArray[np.float32]:
        return batch.labels

    def __call__(self, outputs: Sequence[Any], targets: Any, among: BatchRows | None = None) -> Any:
        ops = load_arrays()
        logits = outputs[0][:, 0]
        weights = targets + ops.cast(targets <= 0, "float32")  # without a number that a device would wait for
        return ops.mean(ops.softplus(logits) * weights - logits * targets)


@dataclass(frozen=True, eq=False)
class InBatch:
    """A softmax over the items of the batch: each row is a positive, and its item is chosen among the items of all rows.

    An item's frequency in batches follows from its popularity. So the log of its share is subtracted from its logit, and the learned score
    applies to the whole catalogue. Rows with the same item are not negatives of each other. A row that shows an unknown item counts as its
    own item if items have other features: so the score of unknown items is the mean share of items with such features.
    """

    user: str
    item: str
    """Nodes that give the vectors; the inner product is the logit."""
    key: str
    """Column of the item's code."""
    chances: NDArray[np.float32]
    """Log of the item's share of the rows, by code."""

    @property
    def of(self) -> tuple[str, ...]:
        return self.user, self.item

    def targets(self, batch: TrainingBatch) -> dict[str, NDArray[Any]]:
        codes = batch.columns.get(OWN_ITEM, batch.columns[self.key])
        return {"items": codes, "chances": self.chances[codes], "weights": batch.labels}

    def __call__(self, outputs: Sequence[Any], targets: Any, among: BatchRows | None = None) -> Any:
        ops = load_arrays()
        (users, items), codes, chances = outputs, targets["items"], targets["chances"]
        own = ops.sum(users * items, axis=1) - chances
        every = (items, codes, chances) if among is None else tuple(among.gathered(tensor) for tensor in (items, codes, chances))
        others = ops.matmul(users, ops.transpose(every[0])) - ops.expand_dims(every[2], 0)
        others = ops.where(ops.equal(ops.expand_dims(codes, 1), ops.expand_dims(every[1], 0)), _NEVER, others)
        losses = ops.softplus(ops.logsumexp(others, axis=1) - own)  # -log of the softmax share of `own`
        return ops.mean(losses * targets["weights"])


def log_chances(counts: NDArray[Any]) -> NDArray[np.float32]:
    """Returns the log share by code, from the item counts. An item without rows counts half. So does the unknown item of keys alone,
    although a share of all rows is shown as unknown: with that share, every item without likes would rank above most liked items."""
    log_shares: NDArray[np.float32] = np.log(np.maximum(counts, 0.5) / max(float(counts.sum()), 1.0)).astype(np.float32)
    return log_shares
