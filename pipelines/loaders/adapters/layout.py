"""Layouts of lists in an adapter's batches: the caller chooses one for all list columns, or one for each.

    offsets   NAME__values and NAME__offsets: where each row's values begin, and where the last row's values end
    lengths   NAME__values and NAME__lengths: number of values of each row (nnzs)
    ragged    NAME, as the framework's own ragged tensor
    padded    NAME, a row per row: as wide as the batch's longest list, or of a given width
    dense     NAME, a row per row: 1 at the place of each value of the list, 0 elsewhere

Offsets and lengths cannot be confused: their names differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pipelines.loaders.columns import Array, Column, ListColumn, aligned
from pipelines.loaders.kinds import ColumnType
from shared.contracts.strict import unknown_name
from shared.domain.errors import BadData, Invalid
from shared.serving.signature import OFFSETS, VALUES

LENGTHS = "__lengths"


@dataclass(frozen=True)
class Offsets:
    pass


@dataclass(frozen=True)
class Lengths:
    pass


@dataclass(frozen=True)
class RaggedLayout:
    pass


@dataclass(frozen=True)
class PaddedLayout:
    width: int | None = None
    """Width of the rows; None for the batch's longest list."""
    value: float = 0
    """Value after a list's last value."""
    longer: Literal["refuse", "cut"] = "refuse"
    """A list longer than `width` is an error (refuse), or only its first values are taken (cut)."""

    def __post_init__(self) -> None:
        if self.width is not None and self.width < 1:
            raise Invalid(f"lists: width of padded lists must be at least 1, not {self.width}")
        if self.longer not in ("refuse", "cut"):
            raise Invalid(f"lists: longer must be 'refuse' or 'cut', not '{self.longer}'")


@dataclass(frozen=True)
class Dense:
    size: int
    """Values are 0 to size - 1."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise Invalid(f"lists: size of dense lists must be at least 1, not {self.size}")


Layout = Offsets | Lengths | RaggedLayout | PaddedLayout | Dense
Name = Literal["offsets", "lengths", "ragged", "padded"]
Chosen = Name | Layout | Mapping[str, Name | Layout]
"""A layout for all list columns, or a layout for each column."""
_NAMED: dict[str, Layout] = {"offsets": Offsets(), "lengths": Lengths(), "ragged": RaggedLayout(), "padded": PaddedLayout()}


def layouts(chosen: Chosen, columns: Mapping[str, ColumnType], default: Layout) -> dict[str, Layout]:
    """Returns the layout of each list column; `default` for columns that `chosen` leaves out."""
    lists = [name for name, column in columns.items() if column.lists]
    if not isinstance(chosen, Mapping):
        layouts = dict.fromkeys(lists, _layout(chosen))
    else:
        for name in chosen:
            if name not in columns:
                raise Invalid(f"lists: {unknown_name('column', name, lists)}")
            if name not in lists:
                raise Invalid(f"lists: column '{name}' has no lists; remove its layout")
        layouts = {name: _layout(chosen[name]) if name in chosen else default for name in lists}
    for name, layout in layouts.items():
        for part in _parts(name, layout):
            if part != name and part in columns:
                raise Invalid(f"lists: column '{name}' becomes '{part}', which is another column's name; rename one")
        if isinstance(layout, PaddedLayout):
            _fitting(layout.value, columns[name].dtype, name)
        if isinstance(layout, Dense) and columns[name].dtype.kind not in "iu":
            raise Invalid(f"lists: column '{name}' has values of {columns[name].dtype}; only integers can be made dense")
    return layouts


def _layout(choice: str | Layout) -> Layout:
    if isinstance(choice, Offsets | Lengths | RaggedLayout | PaddedLayout | Dense):
        return choice
    if choice == "dense":
        raise Invalid("lists: 'dense' needs a size; write Dense(size) for values from 0 to size - 1")
    if choice not in _NAMED:
        raise Invalid(f"lists: {unknown_name('layout', choice, [*_NAMED, 'dense'])}")
    return _NAMED[choice]


def _parts(name: str, layout: Layout) -> tuple[str, ...]:
    if isinstance(layout, Offsets):
        return name + VALUES, name + OFFSETS
    return (name + VALUES, name + LENGTHS) if isinstance(layout, Lengths) else (name,)


def _fitting(value: float, dtype: np.dtype[Any], name: str) -> None:
    representable = dtype.kind == "f" or (not math.isnan(value) and value == int(value) and _within(int(value), dtype))
    if not representable:
        raise Invalid(f"lists: column '{name}' is padded with {value:g}, which is not {dtype}")


def _within(value: int, dtype: np.dtype[Any]) -> bool:
    return value in (0, 1) if dtype.kind == "b" else bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


@dataclass(frozen=True)
class BatchColumn:
    """A column of an adapter's batches."""

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] = (None,)
    ragged: bool = False


def shown(columns: Mapping[str, ColumnType], chosen: Mapping[str, Layout]) -> dict[str, BatchColumn]:
    outputs: dict[str, BatchColumn] = {}
    for name, column in columns.items():
        layout = chosen.get(name)
        if layout is None:
            outputs[name] = BatchColumn(column.dtype, (None,) if column.width is None else (None, column.width))
        elif isinstance(layout, PaddedLayout):
            outputs[name] = BatchColumn(column.dtype, (None, layout.width))
        elif isinstance(layout, Dense):
            outputs[name] = BatchColumn(np.dtype(np.float32), (None, layout.size))
        elif isinstance(layout, RaggedLayout):
            outputs[name] = BatchColumn(column.dtype, (None, None), ragged=True)
        else:
            values, rows = _parts(name, layout)
            outputs |= {values: BatchColumn(column.dtype), rows: BatchColumn(np.dtype(np.int64))}
    return outputs


def layout_stage(chosen: Mapping[str, Layout]) -> Callable[[dict[str, Column], np.random.Generator], dict[str, Column]]:
    """Returns a stage that turns lists into arrays in the loader's threads; the adapter makes ragged tensors itself."""

    def lay(columns: dict[str, Column], _: np.random.Generator) -> dict[str, Column]:
        outputs: dict[str, Column] = {}
        for name, column in columns.items():
            outputs |= _apply_layout(name, column, chosen[name]) if isinstance(column, ListColumn) else {name: column}
        return outputs

    return lay


def _apply_layout(name: str, lists: ListColumn, layout: Layout) -> Mapping[str, Column]:
    if isinstance(layout, Offsets):
        return {name + VALUES: lists.values, name + OFFSETS: lists.offsets}
    if isinstance(layout, Lengths):
        return {name + VALUES: lists.values, name + LENGTHS: lists.lengths}
    if isinstance(layout, PaddedLayout):
        return {name: _padded(name, lists, layout)}
    return {name: _dense(name, lists, layout.size) if isinstance(layout, Dense) else lists}


def _padded(name: str, lists: ListColumn, layout: PaddedLayout) -> Array:
    if layout.width is not None and layout.longer == "cut":
        return lists.padded(layout.width, layout.value)
    longest = int(lists.lengths.max(initial=0))
    if layout.width is not None and longest > layout.width:
        raise BadData(
            f"column '{name}' has a list of {longest} values, padded lists have width {layout.width}; set Padded({longest}) or longer='cut'"
        )
    return lists.padded(layout.width or max(1, longest), layout.value)


def _dense(name: str, lists: ListColumn, size: int) -> Array:
    values, rows = lists.values, len(lists)
    if len(values) and (values.min() < 0 or values.max() >= size):
        wrong = values[(values < 0) | (values >= size)][0]
        raise BadData(f"column '{name}' has the value {wrong}; dense lists of size {size} take 0 to {size - 1}; set a larger size")
    places = np.repeat(np.arange(0, rows * size, size), lists.lengths)
    places += values.astype(np.int64, copy=False)
    dense = aligned((rows * size,), np.float32)
    dense[:] = 0
    dense[places] = 1
    return dense.reshape(rows, size)
