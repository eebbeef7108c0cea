"""A step on torch: eager, or with a compiled network, or with its kernels in a CUDA graph.

torch.compile records the graphs (`mode="reduce-overhead"`), one for each shape, and none without CUDA. The next run overwrites a graph's
outputs, so outputs that a step returns are copied.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from pipelines.models.neural.frameworks.protocol import TINY, Jit, MutableState, Name, Pure, TableUpdate, Tensor, logits_at_once
from pipelines.models.neural.optimizers import Rows
from pipelines.models.runtime import load_torch

BLOCK = 1 << 20
"""Numbers of a table that are updated at once on a CPU."""


class Torch:
    """Implements Framework."""

    name: Name = "torch"
    steady = False

    def __init__(self) -> None:
        self._torch = load_torch()
        self._device = network_device()

    def table(self, rows: Any) -> Tensor:
        """Copies the rows, because untouched pages of zeros have no memory yet and every step would wait for page faults."""
        return self._torch.from_numpy(np.ascontiguousarray(rows)).to(self._device, copy=True)

    def fill(self, table: Tensor, rows: Any) -> None:
        table.copy_(self._torch.from_numpy(rows))

    def gather(self, table: Tensor, places: Tensor) -> Tensor:
        return self._torch.nn.functional.embedding(places, table)

    def scatter(self, table: Tensor, places: Tensor, rows: Tensor) -> None:
        table.index_copy_(0, places.long(), rows)

    def table_update(self, optimizer: Rows, jit: Jit) -> TableUpdate:
        """Returns a compiled update, or on a CPU one by blocks: the operations of a block find its numbers in the cache."""
        if jit or self.gpu:
            update: TableUpdate = self._torch.compile(optimizer.move, dynamic=False) if jit else optimizer.move
            return update

        def by_blocks(table: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], read: Tensor) -> None:
            size = max(1, BLOCK // table.shape[1])
            blocks = [tensor.split(size) for tensor in (table, gradient, read, *slots.values())]
            for rows, block_gradient, block_read, *values in zip(*blocks, strict=True):
                optimizer.move(rows, block_gradient, dict(zip(slots, values, strict=True)), block_read)

        return by_blocks

    def pool(self, rows: Tensor, places: Tensor, segments: Tensor, offsets: Tensor) -> Tensor:
        return self._torch.nn.functional.embedding_bag(places, rows, offsets, mode="sum", include_last_offset=True)

    def summed(self, rows: Tensor, places: Tensor, count: Tensor) -> Tensor:
        return self._torch.ops.aten.embedding_dense_backward(rows, places, int(count), -1, False)

    def choice_loss(self, vectors: Tensor, rows: Tensor, targets: Tensor, shifts: Tensor | None) -> Tensor:
        return _choice(self._torch).apply(vectors, rows, targets.long()[:, None], shifts)

    def weighted_rows(self, table: Tensor, rows: Tensor, factors: Tensor) -> Tensor:
        return self._torch.nn.functional.embedding_bag(rows, table, mode="sum", per_sample_weights=factors)

    def differentiated(self, function: Pure, weights: Sequence[Any], jit: Jit) -> Callable[..., tuple[Tensor, Any, Any, Any]]:
        torch, graphs = self._torch, jit == "graphs"
        run = function
        if jit:
            run = torch.compile(function, mode="reduce-overhead", dynamic=False) if graphs else torch.compile(function)

        def both(blocks: Sequence[Any], *others: Any) -> tuple[Tensor, Any, Any, Any]:
            values = [weight.value for weight in weights]
            if graphs and torch.cuda.is_available():
                torch.compiler.cudagraph_mark_step_begin()
            with torch.enable_grad():
                leaves = [block.detach().requires_grad_() for block in blocks]
                loss, more = run(leaves, *others)
                gradients = torch.autograd.grad(loss, [*leaves, *values])
            loss_value = loss.detach().clone() if graphs else loss.detach()
            return loss_value, {name: tensor.detach() for name, tensor in more.items()}, gradients[: len(leaves)], gradients[len(leaves) :]

        return both

    def compiled(self, function: Callable[..., Tensor], like: Sequence[Any], state: MutableState) -> Callable[..., Tensor]:
        def run(*arguments: Any) -> Tensor:
            with self._torch.no_grad():
                return function(*self._tensors(arguments))

        return run

    def array(self, tensor: Tensor) -> Any:
        return np.array(tensor.detach().float().cpu().numpy())

    def missing_compiler(self, jit: Jit = True) -> str | None:
        if jit == "graphs" and not self._torch.cuda.is_available():
            return "'graphs' needs CUDA, but torch finds no CUDA device: set true, or run the stage on a GPU (resources.train.gpu)"
        if any(shutil.which(compiler) for compiler in ("c++", "g++", "clang++")):
            return None
        return "torch needs a C++ compiler, but PATH has none: leave compile out, or use an image with a compiler"

    @contextmanager
    def full_precision(self) -> Iterator[None]:
        """Sets the precision of cuBLAS and oneDNN by one function; torch refuses to compute if `torch.backends` contradicts it."""
        before = self._torch.get_float32_matmul_precision()
        self._torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            self._torch.set_float32_matmul_precision(before)

    @property
    def gpu(self) -> bool:
        return bool(self._device.type != "cpu")

    def _tensors(self, arguments: Any) -> Any:
        if isinstance(arguments, np.ndarray):
            return self._torch.from_numpy(arguments if arguments.flags.writeable else arguments.copy()).to(self._device)
        if isinstance(arguments, dict):
            return {name: self._tensors(argument) for name, argument in arguments.items()}
        return tuple(self._tensors(argument) for argument in arguments)


def network_device() -> Any:
    """Returns the device of Keras' variables."""
    import keras

    return keras.Variable(0.0).value.device


@cache
def _choice(torch: Any) -> Any:
    class Choice(torch.autograd.Function):  # type: ignore[misc]
        """Writes the logits, their probabilities and the gradients into the same memory, part after part."""

        @staticmethod
        def forward(context: Any, vectors: Tensor, rows: Tensor, targets: Tensor, shifts: Tensor | None) -> Tensor:
            size, loss = logits_at_once(len(rows)), vectors.new_zeros(())
            logits = vectors.new_empty((min(size, len(vectors)), len(rows)))
            by_vector, by_row = torch.empty_like(vectors), torch.zeros_like(rows)
            for at in range(0, len(vectors), size):
                some, target = vectors[at : at + size], targets[at : at + size]
                part = logits[: len(some)]
                torch.mm(some, rows.T, out=part)
                if shifts is not None:
                    own = part.gather(1, target)
                    part.add_(shifts).scatter_(1, target, own)
                torch.softmax(part, 1, out=part)
                own = part.gather(1, target)
                loss -= own.clamp_min(TINY).log().sum()
                part.scatter_(1, target, own - 1)
                torch.mm(part, rows, out=by_vector[at : at + size])
                by_row.addmm_(part.T, some)
            context.save_for_backward(by_vector, by_row)
            return loss / len(vectors)

        @staticmethod
        def backward(context: Any, gradient: Tensor) -> tuple[Tensor, ...]:
            by_vector, by_row = context.saved_tensors
            factor = gradient / len(by_vector)
            return by_vector.mul_(factor), by_row.mul_(factor), None, None

    return Choice
