"""What a step goes down: of the logits of a batch's rows, or of the vectors of their two sides, each row against all the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from pipelines.inputs.batches import Batch

_NEVER = -1e9
"""The logit of what isn't there to be chosen."""


class Among(Protocol):
    """The rows of the whole batch, of which some are given."""

    def gathered(self, rows: Any) -> Any: ...


class Loss(Protocol):
    """The mean over a batch's rows."""

    @property
    def of(self) -> tuple[str, ...]:
        """The nodes of the network that it looks at, [rows, width] each; none: the last one."""

    def targets(self, batch: Batch) -> Any:
        """What it takes of a batch beside what the network makes of it: an array, or several by name, rows first."""

    def __call__(self, outputs: Sequence[Any], targets: Any, among: Among | None = None) -> Any:
        """`among`: where these rows are a rank's share of the batch."""


@dataclass(frozen=True)
class Logistic:
    """Each row for itself: a positive or a negative, by its label."""

    of: ClassVar[tuple[str, ...]] = ()

    def targets(self, batch: Batch) -> NDArray[np.float32]:
        return batch.labels

    def __call__(self, outputs: Sequence[Any], targets: Any, among: Among | None = None) -> Any:
        from keras import ops

        logits = outputs[0][:, 0]
        return ops.mean(ops.softplus(logits) - logits * targets)


@dataclass(frozen=True, eq=False)
class InBatch:
    """A softmax over the items of the batch: each row is a positive, and its item is to be chosen among those of all rows.

    How often an item is among them follows from its popularity; so the log of its chance to be drawn is taken off its logit, and what is
    learned is meant for the whole catalogue. Rows of the same item are no negatives of each other: they are left out of the choice.
    """

    user: str
    item: str
    """The nodes that give the vectors; their inner product is the logit."""
    key: str
    """The column of the item's code."""
    chances: NDArray[np.float32]
    """By code: the log of the share of rows that are the item's."""

    @property
    def of(self) -> tuple[str, ...]:
        return self.user, self.item

    def targets(self, batch: Batch) -> dict[str, NDArray[Any]]:
        codes = batch.columns[self.key]
        return {"items": codes, "chances": self.chances[codes]}

    def __call__(self, outputs: Sequence[Any], targets: Any, among: Among | None = None) -> Any:
        from keras import ops

        (users, items), codes, chances = outputs, targets["items"], targets["chances"]
        own = ops.sum(users * items, axis=1) - chances
        every = (items, codes, chances) if among is None else tuple(among.gathered(tensor) for tensor in (items, codes, chances))
        others = ops.matmul(users, ops.transpose(every[0])) - ops.expand_dims(every[2], 0)
        others = ops.where(ops.equal(ops.expand_dims(codes, 1), ops.expand_dims(every[1], 0)), _NEVER, others)
        return ops.mean(ops.softplus(ops.logsumexp(others, axis=1) - own))  # -log of own's share, own among the others


def log_chances(counts: NDArray[Any]) -> NDArray[np.float32]:
    """By code, of items that are met so often. Who is never met counts half, and so does the unknown one, though a share of all rows is
    shown as its: with the chance of that share, every single item that nobody has met would stand above most that people like."""
    log_shares: NDArray[np.float32] = np.log(np.maximum(counts, 0.5) / max(float(counts.sum()), 1.0)).astype(np.float32)
    return log_shares
