"""Builds the NVTabular workflow: Categorify for lookups, own steps by numpy or cupy for everything else.

Categorify gets our vocabularies. Other NVTabular operators only approximate serving (Normalize and LogOp use another precision,
DifferenceLag uses floats, hashes differ between CPU and GPU), so own steps with the same code for both devices replace them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from merlin.dag import BaseOperator, ColumnSelector
from nvtabular import ops

from pipelines.features.columns import BLANK, Column
from pipelines.features.engines.nvtabular.plain import parts
from pipelines.features.engines.nvtabular.session import DaskSession

_FIRST = 3
"""Categorify's code of the first value; 2 means missing."""


class PartitionRows:
    """Partition in an operator: columns as arrays of [rows] or [rows, width]."""

    def __init__(self, frame: Any, xp: Any) -> None:
        self.frame, self.xp = frame, xp

    def get(self, column: Column | str, width: int | None = None) -> Any:
        name = column if isinstance(column, str) else column.name
        if width is None:
            return self.frame[name].values
        return self.xp.stack([self.frame[part_name].values for part_name in parts(name, width)], axis=1)

    def blank(self, column: Column, width: int | None = None) -> Any:
        """Returns a mask of missing values."""
        blank = BLANK[column.kind]
        blanks = [(self.frame[part_name] == blank).values for part_name in parts(column.name, width)]
        return blanks[0] if width is None else self.xp.stack(blanks, axis=1)

    def number(self, column: Column) -> Any:
        """Returns float32, the served unit's precision; null is NaN."""
        values = self.get(column)
        numbers = values.astype("float32")
        if column.kind == "int64":
            numbers[values == BLANK["int64"]] = self.xp.nan
        return numbers


Function = Callable[[PartitionRows], Mapping[str, Any]]


class FrameStep(BaseOperator):  # type: ignore[misc]
    """Adds columns to a frame."""

    def __init__(self, made: Mapping[str, str], function: Function, only: list[str] | None = None) -> None:
        super().__init__()
        self.made, self.function, self.only = dict(made), function, only

    def transform(self, col_selector: ColumnSelector, transformable: Any) -> Any:
        xp = _library(transformable)
        outputs = self.function(PartitionRows(transformable, xp))
        columns = {name: outputs[name].astype(dtype) for name, dtype in self.made.items()}
        added = type(transformable)(columns, index=transformable.index)
        before = list(transformable.columns)
        return _beside(transformable[before], added)

    def column_mapping(self, col_selector: ColumnSelector) -> dict[str, list[str]]:
        names = col_selector.names
        return {name: [name] for name in names} | {name: [names[0]] for name in self.made}

    def _compute_dtype(self, col_schema: Any, input_schema: Any) -> Any:
        if col_schema.name in self.made:
            return col_schema.with_dtype(self.made[col_schema.name])
        return super()._compute_dtype(col_schema, input_schema)


def _library(frame: Any) -> Any:
    if type(frame).__module__.startswith("cudf"):
        import cupy

        return cupy
    import numpy

    return numpy


def _beside(frame: Any, added: Any) -> Any:
    from merlin.core.dispatch import concat_columns

    return concat_columns([frame, added])


class Build:
    """Workflow under construction: raw columns, lookups, and a chain of steps."""

    def __init__(self, session: DaskSession, raws: list[str]) -> None:
        self._session = session
        self._raws = raws
        self._places: list[Any] = []
        self._place_names: dict[tuple[str, int], str] = {}
        self._keep: list[pl.Series] = []
        self._steps: list[FrameStep] = []

    def place(self, column: Column, values: pl.Series, width: int | None = None) -> str:
        """Looks up a raw column in `values`; returns the name of the row numbers, with `len(values)` for missing values."""
        key = (column.name, id(values))
        if key not in self._place_names:
            self._keep.append(values)  # keeps the id unique
            name = self._place_names[key] = f"~place{len(self._place_names)}"
            if len(values):
                self._look_up(parts(column.name, width), parts(name, width), values)
            else:
                self._nothing(parts(name, width))
        return self._place_names[key]

    def _look_up(self, columns: list[str], names: list[str], values: pl.Series) -> None:
        import pandas as pd

        vocabulary = pd.Series(values.to_list(), dtype="int64" if values.dtype != pl.String else "object")
        op = ops.Categorify(vocabs={"values": vocabulary}, out_path=str(self._session.new("values")), dtype="int64")
        op.storage_name = dict.fromkeys(columns, "values")
        missing = len(values)

        def placed(rows: PartitionRows) -> dict[str, Any]:
            places = {}
            for column, name in zip(columns, names, strict=True):
                code = rows.get(column)
                places[name] = rows.xp.where(code < _FIRST, missing, code - _FIRST)
            return places

        node = columns >> op >> FrameStep(dict.fromkeys(names, "int64"), placed)
        self._places.append(node[names])

    def _nothing(self, names: list[str]) -> None:
        self.step(dict.fromkeys(names, "int64"), lambda rows: {name: rows.xp.zeros(len(rows.frame), "int64") for name in names})

    def step(self, made: Mapping[str, str], function: Function) -> None:
        self._steps.append(FrameStep(made, function))

    def workflow(self, wanted: list[str]) -> Any:
        import nvtabular

        pipeline: Any = ColumnSelector(self._raws)
        for node in self._places:
            pipeline = pipeline + node
        for step in self._steps:
            pipeline = pipeline >> step
        return nvtabular.Workflow(pipeline[wanted] if self._steps or self._places else ColumnSelector(wanted) >> ops.Rename(postfix=""))
