"""Vector: given image or text vectors, scaled to length 1, from the table row of their key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from pipelines.features.columns import Column, Raw
from pipelines.features.lowering import Lowering
from pipelines.features.operators.base import Feature, Mode, Stateless, made


@dataclass(frozen=True)
class Vector(Stateless):
    column: Raw
    """Lists of numbers."""
    name: str

    kind: ClassVar[str] = "vector"

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.column,)

    @property
    def outputs(self) -> tuple[Column, ...]:
        return (made(self.name, "float32", self.column.side),)

    @property
    def width(self) -> int:
        assert self.column.width is not None
        return self.column.width

    @property
    def features(self) -> tuple[Feature, ...]:
        return (Feature(self.name, "float32", self.column.side, self.width),)

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        width, dtype = self.width, pl.Array(pl.Float32, self.width)
        missing = pl.lit([None] * width, dtype=pl.List(pl.Float32))

        def unit(vectors: pl.Series) -> pl.Series:
            rows = np.nan_to_num(vectors.to_numpy().astype(np.float64)) if len(vectors) else np.empty((0, width))
            length = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
            return pl.Series((rows / np.where(length > 0, length, 1)).astype(np.float32), dtype=dtype)

        arrays = pl.concat_list(pl.col(self.column.name).cast(pl.List(pl.Float32)).fill_null([]), missing).list.head(width)
        filled = arrays.list.eval(pl.element().fill_null(0.0)).list.to_array(width)
        return frame.with_columns(filled.map_batches(unit, dtype, is_elementwise=True).alias(self.outputs[0].name))

    def lower(self, build: Lowering) -> None:
        value, axis = build.cast(build.value(self.column), "DOUBLE"), build.constant(np.array([1], np.int64))
        zero, unit = build.constant(np.array(0.0)), build.constant(np.array(1.0))
        rows = build.node("Where", build.node("IsNaN", value), zero, value)
        length = build.node("Sqrt", build.node("ReduceSum", build.node("Mul", rows, rows), axis, keepdims=1))
        divisor = build.node("Where", build.node("Greater", length, zero), length, unit)
        build.gives(self.outputs[0].name, build.cast(build.node("Div", rows, divisor), "FLOAT"))
