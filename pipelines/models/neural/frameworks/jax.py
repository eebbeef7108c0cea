"""A step on JAX: a compiled program for each batch shape, which takes all mutable state and returns it in the same memory.

JAX arrays are immutable. So a table is a box that holds its present array, and a compiled function takes the arrays of boxes, Keras
variables and the batch. The first two are donated, so that XLA writes new rows over the old rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from pipelines.models.neural.frameworks.protocol import Jit, MutableState, Name, Pure, TableUpdate, Tensor
from pipelines.models.neural.optimizers import Rows
from pipelines.models.runtime import load_jax


class ArrayBox:
    """Holds a table's present array."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Jax:
    """Implements Framework."""

    name: Name = "jax"
    steady = True

    def __init__(self) -> None:
        self._jax = load_jax()
        import keras

        self._scope = keras.StatelessScope
        self._tracing: tuple[Any, Sequence[Any]] = (None, ())
        """Scope and variables of the function that is being compiled."""

    def table(self, rows: Any) -> Tensor:
        return ArrayBox(self._jax.numpy.array(rows))

    def fill(self, table: Tensor, rows: Any) -> None:
        table.value = self._jax.numpy.array(rows)

    def gather(self, table: Tensor, places: Tensor) -> Tensor:
        """Returns zeros for places out of range."""
        return _value(table).at[places].get(mode="fill", fill_value=0)

    def scatter(self, table: Tensor, places: Tensor, rows: Tensor) -> None:
        """Drops rows whose place is out of range."""
        table.value = table.value.at[places].set(rows, mode="drop")

    def table_update(self, optimizer: Rows, jit: Jit) -> TableUpdate:
        """Ignores `jit`, because a step is compiled as a whole."""

        def update(table: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], read: Tensor) -> None:
            table.value, after = optimizer.step(table.value, gradient, {name: slot.value for name, slot in slots.items()}, read)
            for name, slot in slots.items():
                slot.value = after[name]

        return update

    def pool(self, rows: Tensor, places: Tensor, segments: Tensor, offsets: Tensor) -> Tensor:
        return self._jax.ops.segment_sum(self.gather(rows, places), segments, len(offsets) - 1)

    def summed(self, rows: Tensor, places: Tensor, count: Tensor) -> Tensor:
        return self._jax.ops.segment_sum(rows, places, count)

    def differentiated(self, function: Pure, weights: Sequence[Any], jit: Jit) -> Callable[..., tuple[Tensor, Any, Any, Any]]:
        """Ignores `jit`, because a step is compiled as a whole."""

        def both(blocks: Any, *others: Any) -> tuple[Tensor, Any, Any, Any]:
            scope, variables = self._tracing
            rest = [variable for variable in variables if not any(variable is weight for weight in weights)]

            def pure(blocks: Any, values: Any) -> Any:
                rest_values = [(variable, scope.get_current_value(variable)) for variable in rest]
                with self._scope([*zip(weights, values, strict=True), *rest_values]) as inner:
                    loss, more = function(blocks, *others)
                return loss, (more, [inner.get_current_value(variable) for variable in rest])

            values = [scope.get_current_value(weight) for weight in weights]
            (loss, (more, changed)), gradients = self._jax.value_and_grad(pure, argnums=(0, 1), has_aux=True)(list(blocks), values)
            for variable, value in zip(rest, changed, strict=True):
                scope.add_update((variable, value))
            return loss, more, *gradients

        return both

    def compiled(self, function: Callable[..., Tensor], like: Sequence[Any], state: MutableState) -> Callable[..., Tensor]:
        def pure(tables: Any, values: Any, arguments: Any) -> Any:
            before = [box.value for box in state.tables]
            try:
                for box, table in zip(state.tables, tables, strict=True):
                    box.value = table
                with self._scope(list(zip(state.variables, values, strict=True))) as scope:
                    self._tracing = scope, state.variables
                    output = function(*arguments)
                return output, [box.value for box in state.tables], [scope.get_current_value(variable) for variable in state.variables]
            finally:
                for box, table in zip(state.tables, before, strict=True):
                    box.value = table

        program = self._jax.jit(pure, donate_argnums=(0, 1))

        def run(*arguments: Any) -> Tensor:
            output, tables, values = program(
                [box.value for box in state.tables], [variable.value for variable in state.variables], arguments
            )
            for box, table in zip(state.tables, tables, strict=True):
                box.value = table
            for variable, value in zip(state.variables, values, strict=True):
                variable.assign(value)
            return output

        return run

    def array(self, tensor: Tensor) -> Any:
        return np.array(_value(tensor))

    def missing_compiler(self, jit: Jit = True) -> str | None:
        return None

    def full_precision(self) -> AbstractContextManager[None]:
        """Sets JAX's matrix precision; JAX compiles a program for each precision, so no program with less precision is reused."""
        context: AbstractContextManager[None] = self._jax.default_matmul_precision("highest")
        return context

    @property
    def gpu(self) -> bool:
        return bool(self._jax.default_backend() != "cpu")


def _value(table: Tensor) -> Any:
    return table.value if isinstance(table, ArrayBox) else table
