"""What the loop drives: a model that is trained a batch at a time, whatever framework does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pipelines.inputs.batches import Batch
from pipelines.inputs.tables import Codes

State = Mapping[str, NDArray[Any]]


class Step(Protocol):
    def __call__(self, batch: Batch) -> Any:
        """Trains on one batch. Its loss as the framework has it: `float` of it may wait for the device."""

    def score(self, columns: Codes) -> NDArray[np.float32]:
        """One score a row, as the model would serve it now."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Weights and the optimizer's, named: all that going on needs, copied, so that training on changes none of it."""

    def restore(self, state: State) -> None:
        """What `state` gave, of this process or of another one that built the same."""


@runtime_checkable
class ReadsTogether(Protocol):
    def read(self, losses: Sequence[Any]) -> list[float]:
        """Of steps that were taken, in order: the device is waited for once."""
