"""Interface of a framework beyond Keras' operations: tables that change in place, gradients and compilers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from pipelines.models.neural.optimizers import Rows

Name = Literal["tensorflow", "torch", "jax"]
Tensor = Any
Jit = bool | Literal["graphs"]
"""Whether a function is compiled; `graphs` also starts its kernels with a CUDA graph."""
LOGITS = 1 << 22
"""Logits in memory at once: 16 MiB. The allocator reuses blocks of this size; larger ones would be mapped and cleared for each use."""
TINY = 1e-37
"""Least probability in a reported loss."""
Pure = Callable[..., tuple[Tensor, Any]]
"""A function that returns a loss and further results."""

TableUpdate = Callable[[Tensor, Tensor, Mapping[str, Tensor], Tensor], None]


@dataclass(frozen=True)
class MutableState:
    """State that a function reads and changes besides its arguments."""

    tables: Sequence[Tensor]
    variables: Sequence[Any]
    """Keras variables."""


def logits_at_once(rows: int) -> int:
    """Returns the number of vectors whose logits among these rows are computed at once."""
    return max(1, LOGITS // max(1, rows))


class Framework(Protocol):
    name: Name
    steady: bool
    """Whether each shape needs a new program, so that varying sizes are padded. Padding uses places out of range: `gather` returns zeros
    for them; `scatter`, `pool` and `summed` ignore them."""

    def table(self, rows: Any) -> Tensor:
        """Makes a float32 variable of these rows."""

    def fill(self, table: Tensor, rows: Any) -> None: ...

    def gather(self, table: Tensor, places: Tensor) -> Tensor:
        """Returns rows of a table or of a tensor."""

    def scatter(self, table: Tensor, places: Tensor, rows: Tensor) -> None:
        """Writes the rows; each place occurs once."""

    def table_update(self, optimizer: Rows, jit: Jit) -> TableUpdate:
        """Returns the optimizer's step with a whole table: `update(table, gradient, slots, read)`, which may overwrite the gradient."""

    def pool(self, rows: Tensor, places: Tensor, segments: Tensor, offsets: Tensor) -> Tensor:
        """Returns the sum of the rows at these places, by segment."""

    def summed(self, rows: Tensor, places: Tensor, count: Tensor) -> Tensor:
        """Returns [count, width]: the sum of the rows with the same place."""

    def differentiated(self, function: Pure, weights: Sequence[Any], jit: Jit) -> Callable[..., tuple[Tensor, Any, Any, Any]]:
        """Wraps `function(blocks, *others)`: returns its loss, its further results, and the gradients by blocks and by variables."""

    def compiled(self, function: Callable[..., Tensor], like: Sequence[Any], state: MutableState) -> Callable[..., Tensor]:
        """Returns the function in the framework's fastest form. `like` holds sample arguments; only the number of rows may differ later:
        the last dimension of integers, the first dimension of others."""

    def array(self, tensor: Tensor) -> Any:
        """Returns a copy."""

    def missing_compiler(self, jit: Jit = True) -> str | None:
        """Returns why compilation is impossible here, or None."""

    def full_precision(self) -> AbstractContextManager[None]:
        """A context in which no float32 product is rounded to TF32 or bfloat16."""

    @property
    def gpu(self) -> bool:
        """Whether the framework computes on a GPU."""


@runtime_checkable
class ChoosesItems(Framework, Protocol):
    """A framework that also chooses among many rows. JAX does not: it would compile a program for each number of targets."""

    def choice_loss(self, vectors: Tensor, rows: Tensor, targets: Tensor, shifts: Tensor | None) -> Tensor:
        """Returns the mean cross-entropy of the choice of each vector's target among the rows, by inner product.

        `shifts` are added to the logits of all rows, but not to a vector's own target. Logits exist for `logits_at_once` vectors at a time,
        and the gradients are computed with them."""

    def weighted_rows(self, table: Tensor, rows: Tensor, factors: Tensor) -> Tensor:
        """Returns for each row of `rows` the sum of these rows of the table times the factors; `rows` and `factors` have the same shape."""
