"""Interface of a training step: trains a model batch by batch, on any framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pipelines.inputs.batches import TrainingBatch
from pipelines.inputs.tables import Codes

State = Mapping[str, NDArray[Any]]


class TrainingStep(Protocol):
    def __call__(self, batch: TrainingBatch) -> Any:
        """Trains on a batch; returns the framework's loss, whose `float` may wait for the device."""

    def score(self, columns: Codes) -> NDArray[np.float32]:
        """Returns a score per row, as the present model would serve it."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns named copies of the weights and the optimizer's state, with the learning rate: all that a resumed training needs."""

    def restore(self, state: State) -> None:
        """Restores the result of `state`, from this process or another with an equal step."""


@runtime_checkable
class Scheduled(Protocol):
    """A step whose learning rate can change."""

    def scale_rate(self, factor: float) -> None: ...


@runtime_checkable
class GivesLogits(Protocol):
    """A step whose scores are probabilities."""

    def logits(self, columns: Codes) -> NDArray[np.float32]:
        """Returns a logit per row, as the present model would serve it."""


@runtime_checkable
class ReadsTogether(Protocol):
    def read(self, losses: Sequence[Any]) -> list[float]:
        """Reads the losses of steps, in order, with a single wait for the device."""
