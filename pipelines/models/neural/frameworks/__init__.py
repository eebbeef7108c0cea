"""What a step needs of a framework beyond Keras' operations: tables that change in place, gradients, and compilers."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, get_args

from shared.domain.errors import Conflict, Invalid

Name = Literal["tensorflow", "torch"]
Tensor = Any
Pure = Callable[..., tuple[Tensor, Any]]
"""A loss of tensors, and what else comes of it."""


class Framework(Protocol):
    name: Name

    def table(self, rows: Any) -> Tensor:
        """A variable of these rows, float32."""

    def fill(self, table: Tensor, rows: Any) -> None: ...

    def gather(self, table: Tensor, places: Tensor) -> Tensor:
        """Rows of a table, or of a tensor."""

    def scatter(self, table: Tensor, places: Tensor, rows: Tensor) -> None:
        """Writes them, each place once."""

    def pool(self, rows: Tensor, places: Tensor, segments: Tensor, offsets: Tensor) -> Tensor:
        """The sum of the rows at these places, by segment."""

    def summed(self, rows: Tensor, places: Tensor, count: Tensor) -> Tensor:
        """[count, width]: the sum of the rows that are of one place."""

    def differentiated(self, function: Pure, weights: Sequence[Any], jit: bool) -> Callable[..., tuple[Tensor, Any, Any, Any]]:
        """`function(blocks, *others)` as one that gives its loss, what else came of it, and its gradients by blocks and by variables."""

    def compiled(self, function: Callable[..., Tensor], like: Sequence[Any]) -> Callable[..., Tensor]:
        """As the framework runs it best. `like`: arguments as they will be, but for the number of rows: the last dimension of whole
        numbers, the first of others."""

    def array(self, tensor: Tensor) -> Any:
        """A copy."""

    def missing_compiler(self) -> str | None:
        """Why it can't compile here."""


def load_framework(name: Name) -> Framework:
    """One for the life of a process, as Keras is of one."""
    loaded = sys.modules.get("keras")
    if loaded is not None and loaded.backend.backend() != name:
        raise Conflict(f"Keras runs on {loaded.backend.backend()} in this process, and can't change to {name}: start another one")
    if name == "torch" and importlib.util.find_spec("torch") is None:
        raise Invalid("model.framework: torch isn't installed where this stage runs: make setup-torch, or say tensorflow")
    os.environ["KERAS_BACKEND"] = name
    if name == "torch":
        from pipelines.models.neural.frameworks.torch import Torch

        return Torch()
    from pipelines.models.neural.frameworks.tensorflow import TensorFlow

    return TensorFlow()


NAMES: tuple[Name, ...] = get_args(Name)
