"""A trained neural model: arrays and the description of its network, independent of the framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pipelines.arrays import read_arrays, write_arrays
from pipelines.inputs.tables import Codes
from pipelines.models.external_weights import ExternalWeights, LowersExternalWeights
from pipelines.models.family import MODEL, Embeddings, Fetch
from pipelines.models.neural import onnx, plain
from pipelines.models.neural.architecture import Architecture, load_architecture
from pipelines.models.neural.weights import WEIGHTS, Weights
from pipelines.models.tables import Table


class NeuralModel(LowersExternalWeights):
    """Implements Trained."""

    meaning: ClassVar[str] = "probability of a positive, between 0 and 1; sampled negatives shift it, so it is only for comparison"

    def __init__(self, architecture: Architecture, weights: Weights) -> None:
        self.architecture, self.weights = architecture, weights

    @property
    def tables(self) -> tuple[Table, ...]:
        return self.architecture.tables

    def save(self, folder: Path) -> dict[str, Path]:
        return {MODEL: self.architecture.save(folder / MODEL), WEIGHTS: write_arrays(folder / WEIGHTS, self.weights)}

    def score(self, columns: Codes) -> NDArray[np.float32]:
        return plain.score(self.architecture, self.weights, columns)

    def lower_beside(self, beside: ExternalWeights) -> Any:
        return onnx.lower(self.architecture, self.weights, beside)

    def embeddings(self, codes: Codes) -> Embeddings | None:
        """Returns None: layers mix the user's and the item's vectors, so there are no embeddings to search."""
        return None


def load_neural(fetch: Fetch) -> NeuralModel:
    return NeuralModel(load_architecture(fetch(MODEL)), read_arrays(fetch(WEIGHTS)))
