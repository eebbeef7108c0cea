"""Lowers each operator to NVTabular. Arrays are numpy's or cupy's; fitted state moves to the device on use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from pipelines.features.columns import BLANK, FIRST, NULL, UNKNOWN, Column
from pipelines.features.engines.nvtabular.plain import parts
from pipelines.features.engines.nvtabular.steps import Build, PartitionRows
from pipelines.features.hashing import begin, bucket, hashed, mixed
from pipelines.features.operators.base import Mode, Operator
from pipelines.features.operators.bucketise import Bucketise
from pipelines.features.operators.categorify import Categorify, MultiHot
from pipelines.features.operators.codes import Cross, OneHot
from pipelines.features.operators.lag import Lag
from pipelines.features.operators.numbers import Clip, Fill, Log, Normalise, Plain
from pipelines.features.operators.ordered import before_name
from pipelines.features.operators.sequence import Sequence
from pipelines.features.operators.target import CountEncode, TargetEncode
from pipelines.features.operators.times import PARTS, PERIODS, Calendar, Cyclic
from pipelines.features.operators.vector import Vector
from shared.domain.errors import Invalid

_WIDTHS = (MultiHot, Sequence, Cross, OneHot, Vector)


class WorkflowLowering:
    def __init__(self, build: Build, mode: Mode, with_history: bool) -> None:
        self.build, self.mode, self.with_history = build, mode, with_history
        self.widths: dict[str, int | None] = {}
        """Widths of the values made so far."""

    def add(self, operator: Operator) -> None:
        lower = _LOWERINGS.get(type(operator))
        if lower is None:
            raise Invalid(f"features: NVTabular does not support '{operator.kind}': set resources.etl.engine: polars")
        for out in operator.outputs:
            self.widths[out.name] = _width(operator)
        lower(self, operator)

    def made(self, operator: Operator, function: Callable[[PartitionRows], Any | list[Any]]) -> None:
        """Adds a step that computes the operator's outputs."""
        dtype = {"code": "int32", "float32": "float32"}
        names = {out.name: parts(out.name, self.widths[out.name]) for out in operator.outputs}
        types = {part_name: dtype[out.kind] for out in operator.outputs for part_name in names[out.name]}

        def columns(rows: PartitionRows) -> dict[str, Any]:
            outputs = function(rows)
            made: dict[str, Any] = {}
            for output, (name, spread) in zip(outputs if isinstance(outputs, list) else [outputs], names.items(), strict=True):
                made |= (
                    {name: output}
                    if spread == [name] and output.ndim == 1
                    else {part_name: output[:, at] for at, part_name in enumerate(spread)}
                )
            return made

        self.build.step(types, columns)

    def keyed(self, columns: tuple[Column, ...], keys: pl.DataFrame) -> Callable[[PartitionRows], Any]:
        """Returns a function from rows to row numbers of `keys`; `len(keys)` for missing keys."""
        missing = len(keys)
        if len(columns) == 1:
            return self._numbered(columns[0], keys.to_series(0))
        uniques = [keys[name].unique().sort() for name in keys.columns]
        numbered = [self._numbered(column, values) for column, values in zip(columns, uniques, strict=True)]
        sizes = [len(values) + 1 for values in uniques]
        ours = np.zeros(missing, np.int64)
        for name, values, size in zip(keys.columns, uniques, sizes, strict=True):
            ours = ours * size + values.search_sorted(keys[name]).to_numpy().astype(np.int64)
        order = np.argsort(ours, kind="stable")
        table, places = ours[order], np.append(order, missing)

        def find(rows: PartitionRows) -> Any:
            xp, combined = rows.xp, 0
            for number, size in zip(numbered, sizes, strict=True):
                combined = combined * size + number(rows)
            if not missing:
                return xp.zeros(len(rows.frame), "int64")
            at = xp.minimum(xp.searchsorted(xp.asarray(table), combined), missing - 1)
            return xp.asarray(places)[xp.where(xp.asarray(table)[at] == combined, at, missing)]

        return find

    def _numbered(self, column: Column, values: pl.Series) -> Callable[[PartitionRows], Any]:
        if column.kind != "code":
            place = self.build.place(column, values)
            return lambda rows: rows.get(place)
        codes, missing = values.to_numpy(), len(values)
        table = np.full(int(codes.max(initial=0)) + 2, missing, np.int64)
        table[codes] = np.arange(missing)
        return lambda rows: rows.xp.asarray(table)[rows.xp.minimum(rows.get(column), len(table) - 1)]


def _codes(rows: PartitionRows, column: Column, place: str, size: int, buckets: int | None, width: int | None = None) -> Any:
    """Returns codes from places in a vocabulary of the given size."""
    xp, places = rows.xp, rows.get(place, width)
    unknown: Any = UNKNOWN
    if buckets is not None:
        unknown = hashed([rows.get(column, width)], buckets) + FIRST + size
    return xp.where(rows.blank(column, width), NULL, xp.where(places == size, unknown, places + FIRST))


def _width(operator: Operator) -> int | None:
    """Returns the number of columns of an operator's outputs."""
    if isinstance(operator, _WIDTHS):
        return operator.features[0].width
    return None


def _categorify(to: WorkflowLowering, op: Categorify) -> None:
    place = to.build.place(op.column, op.state.values)
    column, size, buckets = op.column, len(op.state.values), op.state.buckets
    to.made(op, lambda rows: _codes(rows, column, place, size, buckets))


def _multi_hot(to: WorkflowLowering, op: MultiHot) -> None:
    place = to.build.place(op.column, op.state.values, op.length)
    column, size, buckets, width = op.column, len(op.state.values), op.state.buckets, op.length
    to.made(op, lambda rows: _codes(rows, column, place, size, buckets, width))


def _normalise(to: WorkflowLowering, op: Normalise) -> None:
    away, by = op.terms
    to.made(op, lambda rows: (rows.number(op.source) - away) / by)


def _log(to: WorkflowLowering, op: Log) -> None:
    def log(rows: PartitionRows) -> Any:
        value = rows.number(op.source)
        return rows.xp.log(rows.xp.where(value < 0, np.float32(0), value).astype("float64") + 1.0)

    to.made(op, log)


def _plain(to: WorkflowLowering, op: Plain) -> None:
    to.made(op, lambda rows: rows.number(op.source))


def _clip(to: WorkflowLowering, op: Clip) -> None:
    def clip(rows: PartitionRows) -> Any:
        value = rows.number(op.source)
        if op.low is not None:
            value = rows.xp.where(value < np.float32(op.low), np.float32(op.low), value)
        if op.high is not None:
            value = rows.xp.where(value > np.float32(op.high), np.float32(op.high), value)
        return value

    to.made(op, clip)


def _fill(to: WorkflowLowering, op: Fill) -> None:
    def fill(rows: PartitionRows) -> list[Any]:
        value = rows.number(op.source)
        missing = rows.xp.isnan(value)
        return [rows.xp.where(missing, op.value, value), *([missing] if op.flag is not None else [])]

    to.made(op, fill)


def _bucketise(to: WorkflowLowering, op: Bucketise) -> None:
    bounds = op.bounds

    def codes(rows: PartitionRows) -> Any:
        xp, value = rows.xp, rows.number(op.source)
        missing = xp.isnan(value)
        code = xp.searchsorted(xp.asarray(bounds), xp.where(missing, np.float32(0), value), side="right") + 1
        return xp.where(missing, NULL, code)

    to.made(op, codes)


def _target(to: WorkflowLowering, op: TargetEncode) -> None:
    keys, encodings = op.table
    place, mode, row, folds = to.keyed(op.columns, keys), to.mode, op.row, op.folds
    tables = [(overall.astype(np.float32), apart.astype(np.float32)) for overall, apart in (encodings[target] for target in op.targets)]

    def encode(rows: PartitionRows) -> list[Any]:
        xp, at = rows.xp, place(rows)
        if mode == "serve":
            return [xp.asarray(overall)[at] for overall, _ in tables]
        values = [rows.get(name) for name in row]
        fold = hashed([xp.where(value == BLANK["int64"], 0, value) for value in values], folds)
        return [xp.asarray(apart)[at, fold] for _, apart in tables]

    to.made(op, encode)


def _count(to: WorkflowLowering, op: CountEncode) -> None:
    assert op.counts is not None
    place = to.keyed((op.column,), op.counts.select(op.column.name))
    values = op.values
    to.made(op, lambda rows: rows.xp.asarray(values)[place(rows)])


def _cyclic(to: WorkflowLowering, op: Cyclic) -> None:
    def waves(rows: PartitionRows) -> list[Any]:
        xp, blank, outputs = rows.xp, rows.blank(op.column), []
        for period in op.periods:
            seconds, added = PERIODS[period]
            angle = _within(rows, op.column, seconds, added).astype("float64") * (2 * np.pi / seconds)
            outputs += [xp.where(blank, xp.nan, wave(angle)) for wave in (xp.sin, xp.cos)]
        return outputs

    to.made(op, waves)


def _calendar(to: WorkflowLowering, op: Calendar) -> None:
    def codes(rows: PartitionRows) -> list[Any]:
        blank, outputs = rows.blank(op.column), []
        for part in op.parts:
            seconds, added, of = PARTS[part]
            outputs.append(rows.xp.where(blank, NULL, _within(rows, op.column, seconds, added) // of + FIRST))
        return outputs

    to.made(op, codes)


def _within(rows: PartitionRows, column: Column, seconds: int, added: int) -> Any:
    return (rows.get(column) % seconds + added) % seconds


def _cross(to: WorkflowLowering, op: Cross) -> None:
    widths = [to.widths[column.name] for column in op.columns]

    def cross(rows: PartitionRows) -> Any:
        codes = [rows.get(column, width).astype("int64") for column, width in zip(op.columns, widths, strict=True)]
        wide = any(code.ndim == 2 for code in codes)
        codes = [code[:, None] if wide and code.ndim == 1 else code for code in codes]
        digest, missing = begin(codes[0]), codes[0] == NULL
        for code in codes[1:]:
            digest, missing = mixed(digest, begin(code)), missing | (code == NULL)
        return rows.xp.where(missing, NULL, bucket(digest, op.buckets) + FIRST)

    to.made(op, cross)


def _one_hot(to: WorkflowLowering, op: OneHot) -> None:
    width = to.widths[op.column.name]

    def hot(rows: PartitionRows) -> Any:
        xp, codes = rows.xp, rows.get(op.column, width).reshape(len(rows.frame), -1)
        matrix = xp.zeros((len(codes), op.width), "float32")
        matrix[xp.arange(len(codes))[:, None], codes] = 1.0
        matrix[:, NULL] = 0.0
        return matrix

    to.made(op, hot)


def _vector(to: WorkflowLowering, op: Vector) -> None:
    def unit(rows: PartitionRows) -> Any:
        xp = rows.xp
        vectors = xp.nan_to_num(rows.get(op.column, op.width).astype("float64"))
        length = xp.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
        return vectors / xp.where(length > 0, length, 1)

    to.made(op, unit)


def _lag(to: WorkflowLowering, op: Lag) -> None:
    of, before = op.of, before_name(op.name)
    if to.with_history:
        to.made(op, lambda rows: rows.get(before))
        return
    keys, values = op.last
    place, missing = to.keyed((op.by,), keys), len(keys)
    table = np.append(values.to_numpy(), 0).astype(np.int64 if of.kind == "int64" else np.float32)

    def served(rows: PartitionRows) -> Any:
        at, value = place(rows), rows.get(of)
        nothing = at == missing
        if of.kind == "int64":
            nothing = nothing | (value == BLANK["int64"])
        return rows.xp.where(nothing, np.float32(np.nan), (value - rows.xp.asarray(table)[at]).astype("float32"))

    to.made(op, served)


def _sequence(to: WorkflowLowering, op: Sequence) -> None:
    before, length = before_name(op.name), op.length
    if to.with_history:
        to.made(op, lambda rows: rows.get(before, length))
        return
    keys, table = op.table
    place = to.keyed((op.by,), keys)

    def served(rows: PartitionRows) -> Any:
        at = place(rows)
        codes = rows.xp.asarray(table)[at]
        return op.within(codes, rows.xp.asarray(op.moments)[at], rows.get(op.time), rows.xp) if op.bounded else codes

    to.made(op, served)


_LOWERINGS: dict[type[Any], Callable[[WorkflowLowering, Any], None]] = {
    Categorify: _categorify,
    MultiHot: _multi_hot,
    Normalise: _normalise,
    Log: _log,
    Plain: _plain,
    Clip: _clip,
    Fill: _fill,
    Bucketise: _bucketise,
    TargetEncode: _target,
    CountEncode: _count,
    Cyclic: _cyclic,
    Calendar: _calendar,
    Cross: _cross,
    OneHot: _one_hot,
    Vector: _vector,
    Lag: _lag,
    Sequence: _sequence,
}
