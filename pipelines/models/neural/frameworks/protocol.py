"""What a step needs of a framework beyond Keras' operations: tables that change in place, gradients, and compilers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Name = Literal["tensorflow", "torch", "jax"]
Tensor = Any
Jit = bool | Literal["graphs"]
"""Whether it is compiled; `graphs`: and its kernels started all at once, by a CUDA graph."""
Pure = Callable[..., tuple[Tensor, Any]]
"""A loss of tensors, and what else comes of it."""


@dataclass(frozen=True)
class MutableState:
    """What a function reads and changes beside its arguments."""

    tables: Sequence[Tensor]
    variables: Sequence[Any]
    """Keras'."""


class Framework(Protocol):
    name: Name
    steady: bool
    """Whether another shape is another program, so that what differs from batch to batch is filled up. Filled are places: with such as
    are beyond what they are places of, which `gather` gives zeros for, and `scatter`, `pool` and `summed` leave out."""

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

    def differentiated(self, function: Pure, weights: Sequence[Any], jit: Jit) -> Callable[..., tuple[Tensor, Any, Any, Any]]:
        """`function(blocks, *others)` as one that gives its loss, what else came of it, and its gradients by blocks and by variables."""

    def compiled(self, function: Callable[..., Tensor], like: Sequence[Any], state: MutableState) -> Callable[..., Tensor]:
        """As the framework runs it best. `like`: arguments as they will be, but for the number of rows: the last dimension of whole
        numbers, the first of others."""

    def array(self, tensor: Tensor) -> Any:
        """A copy."""

    def missing_compiler(self, jit: Jit = True) -> str | None:
        """Why it can't compile so here."""

    def full_precision(self) -> AbstractContextManager[None]:
        """A context in which no float32 product is rounded to TF32 or bfloat16."""

    @property
    def gpu(self) -> bool:
        """Whether it computes on a GPU."""
