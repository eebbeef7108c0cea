"""Crosses and one-hot: codes to codes, and to zeros and ones for the wide part of a model."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import FIRST, NULL, Column, joined_side
from pipelines.features.hashing import bucket_of_codes
from pipelines.features.lowering import Lowering
from pipelines.features.operators.base import Feature, Linked, Made, Mode, made, plain
from shared.domain.errors import Invalid

_TABLE = 2**20
"""Maximum combinations of a precomputed cross."""


@dataclass(frozen=True)
class Cross(Linked):
    """Cross: null if an input is null, else a bucket of the codes' hash. At most one input may have several values per row."""

    columns: tuple[Column, ...]
    buckets: int
    width: int | None = None
    """Width of the input with several values, after the fit."""
    sizes: tuple[int, ...] = ()
    """Number of codes of each input, after the fit."""

    kind: ClassVar[str] = "cross"

    @property
    def inputs(self) -> tuple[Column, ...]:
        return self.columns

    @property
    def name(self) -> str:
        return "_x_".join(plain(column) for column in self.columns)

    @property
    def many(self) -> Column | None:
        return next((column for column in self.columns if column.many), None)

    @property
    def outputs(self) -> tuple[Column, ...]:
        return (made(self.name, "code", joined_side({column.side for column in self.columns}), many=self.many is not None),)

    @property
    def features(self) -> tuple[Feature, ...]:
        return (Feature(self.name, "code", self.outputs[0].side, self.width, self.buckets + FIRST),)

    def linked(self, made: Made) -> Self:
        sizes = [made[column.name].cardinality for column in self.columns]
        assert None not in sizes
        width = None if self.many is None else made[self.many.name].width
        return replace(self, width=width, sizes=tuple(size for size in sizes if size is not None))

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        names = [column.name for column in self.columns]
        dtype = pl.Int32() if self.width is None else pl.Array(pl.Int32, self.width)

        def crossed(row: pl.Series) -> pl.Series:
            return pl.Series(self.arrays([row.struct.field(name).to_numpy() for name in names]), dtype=dtype)

        return frame.with_columns(pl.struct(names).map_batches(crossed, dtype, is_elementwise=True).alias(self.outputs[0].name))

    def arrays(self, columns: list[NDArray[np.int32]]) -> NDArray[np.int32]:
        """Crosses arrays of [rows] or [rows, width], for values known only in a batch."""
        wide = any(column.ndim == 2 for column in columns)
        shaped = [column[:, None] if wide and column.ndim == 1 else column for column in columns]
        if self.table is None:
            return self._hashed(shaped)
        place = shaped[0]
        for size, codes in zip(self.sizes[1:], shaped[1:], strict=True):
            place = place * np.int32(size) + codes
        crossed: NDArray[np.int32] = self.table[place]
        return crossed

    @cached_property
    def table(self) -> NDArray[np.int32] | None:
        """Crosses of all combinations, if they are few."""
        if not self.sizes or math.prod(self.sizes) > _TABLE:
            return None
        codes = np.meshgrid(*(np.arange(size, dtype=np.int32) for size in self.sizes), indexing="ij")
        return self._hashed([axis.ravel() for axis in codes])

    def _hashed(self, shaped: list[NDArray[np.int32]]) -> NDArray[np.int32]:
        there = functools.reduce(np.logical_and, (column != NULL for column in shaped))
        codes = [np.broadcast_to(column, there.shape)[there].astype(np.int64) for column in shaped]
        crossed = np.full(there.shape, NULL, np.int32)
        crossed[there] = bucket_of_codes(codes, self.buckets) + FIRST
        return crossed

    def lower(self, build: Lowering) -> None:
        wide, null = self.many is not None, build.constant(np.array(NULL, np.int64))
        codes, missing = [], ""
        for column in self.columns:
            code = build.cast(build.value(column), "INT64")
            codes.append(build.node("Unsqueeze", code, build.constant(np.array([1], np.int64))) if wide and not column.many else code)
            empty = build.node("Equal", codes[-1], null)
            missing = build.node("Or", missing, empty) if missing else empty
        code = build.node("Add", build.hashed(codes, self.buckets), build.constant(np.array(FIRST, np.int64)))
        build.gives(self.outputs[0].name, build.cast(build.node("Where", missing, null, code), "INT32"))


@dataclass(frozen=True)
class OneHot(Linked):
    """One-hot: a place per code; null and padding stay zero."""

    column: Column
    max_width: int
    width: int = 0
    """Number of codes, after the fit."""

    kind: ClassVar[str] = "one_hot"

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.column,)

    @property
    def name(self) -> str:
        return f"{plain(self.column)}_hot"

    @property
    def outputs(self) -> tuple[Column, ...]:
        return (made(self.name, "float32", self.column.side),)

    @property
    def features(self) -> tuple[Feature, ...]:
        return (Feature(self.name, "float32", self.column.side, self.width),)

    def linked(self, made: Made) -> Self:
        width = made[self.column.name].cardinality
        assert width is not None
        if width > self.max_width:
            raise Invalid(
                f"features: one_hot of '{plain(self.column)}' would be {width:,} wide; max_width allows {self.max_width:,}: choose a larger"
                " min_count or a max_size for its codes, or leave it out"
            )
        return replace(self, width=width)

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        width = self.width

        def hot(codes: pl.Series) -> pl.Series:
            places = codes.to_numpy().reshape(len(codes), -1)
            rows = np.zeros((len(codes), width), np.float32)
            rows[np.arange(len(codes))[:, None], places] = 1.0
            rows[:, NULL] = 0.0
            return pl.Series(rows, dtype=pl.Array(pl.Float32, width))

        encoded = pl.col(self.column.name).map_batches(hot, pl.Array(pl.Float32, width), is_elementwise=True)
        return frame.with_columns(encoded.alias(self.outputs[0].name))

    def lower(self, build: Lowering) -> None:
        codes = build.cast(build.value(self.column), "INT64")
        axis = build.constant(np.array([-1], np.int64))
        # -1 never equals a code, so null stays zero
        places = np.arange(self.width, dtype=np.int64)
        places[NULL] = -1
        equal = build.cast(build.node("Equal", build.node("Unsqueeze", codes, axis), build.constant(places)), "FLOAT")
        if self.column.many:
            equal = build.node("ReduceMax", equal, axes=[1], keepdims=0)
        build.gives(self.outputs[0].name, equal)
