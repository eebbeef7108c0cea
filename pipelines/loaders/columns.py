"""Columns in memory: a value per row, several values per row, or lists of any length; and the loader's operations on them.

Lists that are short, or of similar length, are held as rows of the same width plus lengths: such a row is taken as if it were a single
number. Integers in them use the narrowest type. Other lists are values and offsets. The caller supplies the memory for taken rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Self

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

Array = NDArray[Any]
Offsets = NDArray[np.int64]
Empty = Callable[[tuple[int, ...], Any], Array]
"""Returns uninitialised memory for an array of a shape and a dtype."""
SHORT = 32
"""Bytes up to which lists are always held as rows."""
SPARE = 1.5
"""Longer lists may take this multiple of their size as values and offsets."""


LINE = 64
"""Bytes of a CPU cache line."""


def aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """Returns memory that begins at a cache line: TensorFlow uses such arrays without a copy."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.empty(size + LINE, np.uint8)
    begin = -room.ctypes.data % LINE
    array: Array = room[begin : begin + size].view(dtype).reshape(shape)
    return array


class ListColumn:
    """Lists of all rows: row n's values are values[offsets[n]:offsets[n + 1]]."""

    def __init__(self, values: Array, offsets: Offsets) -> None:
        self._values, self._offsets = values, offsets

    @property
    def values(self) -> Array:
        return self._values

    @property
    def offsets(self) -> Offsets:
        """Where each row's values begin, and at the end the number of values."""
        return self._offsets

    @property
    def lengths(self) -> Offsets:
        return np.diff(self.offsets)

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    def padded(self, width: int, fill: Any = 0) -> Array:
        """Returns [rows, width]; longer lists are cut."""
        rows = pack_lists(self.values, self.offsets)
        if isinstance(rows, ShortListBatch):
            return ShortLists(rows).padded(width, fill)
        lengths = np.minimum(self.lengths, width)
        padded = aligned((len(self), width), self.dtype)
        padded[...] = fill
        places = np.repeat(self.offsets[:-1], lengths)
        behind = np.cumsum(lengths)
        places += np.arange(len(places)) - np.repeat(behind - lengths, lengths)
        padded[np.arange(width)[None, :] < lengths[:, None]] = self.values.take(places)
        return padded

    def __len__(self) -> int:
        return len(self.offsets) - 1


class ShortLists(ListColumn):
    """Lists held as rows of the same width; values and offsets are computed on demand."""

    def __init__(self, short: ShortListBatch) -> None:
        self._short = short

    @cached_property
    def values(self) -> Array:
        narrow = self._short.values
        if narrow.dtype == self.dtype:
            return narrow
        wide = aligned(narrow.shape, self.dtype)
        wide[:] = narrow
        return wide

    @cached_property
    def offsets(self) -> Offsets:
        offsets = aligned((len(self) + 1,), np.int64)
        offsets[0] = 0
        np.cumsum(self._short.lengths, dtype=np.int64, out=offsets[1:])
        return offsets

    @property
    def lengths(self) -> Offsets:
        return self._short.lengths.astype(np.int64)

    @property
    def dtype(self) -> Any:
        return self._short.dtype

    def padded(self, width: int, fill: Any = 0) -> Array:
        array, overlap = self._short.array, min(width, self._short.array.shape[1])
        there = self._short.there.reshape(array.shape)
        padded = aligned((len(array), width), self.dtype)
        if fill == 0 and overlap == width and array.dtype.kind in "iu":
            padded[...] = (array * there)[:, :width]
            return padded
        padded[...] = fill
        np.copyto(padded[:, :overlap], array[:, :overlap], where=there[:, :overlap])
        return padded

    def __len__(self) -> int:
        return len(self._short)


Column = Array | ListColumn


@dataclass(frozen=True)
class FlatColumn:
    """A value per row, or a fixed number of values per row."""

    array: Array

    def __len__(self) -> int:
        return len(self.array)

    @property
    def size(self) -> int:
        return self.array.nbytes

    def take(self, order: Array, empty: Empty = np.empty) -> Self:
        return type(self)(_take_rows(self.array, order, empty))

    def cut(self, first: int, last: int) -> Self:
        return type(self)(self.array[first:last])

    def column(self) -> Column:
        return self.array


@dataclass(frozen=True)
class ShortListBatch:
    """Lists as [rows, width]; contents after a list's end are undefined."""

    array: Array
    lengths: NDArray[np.uint8]
    dtype: Any
    """Type of the values; `array` may have a narrower type."""

    def __len__(self) -> int:
        return len(self.array)

    @property
    def size(self) -> int:
        return self.array.nbytes + self.lengths.nbytes

    @property
    def there(self) -> NDArray[np.bool_]:
        """For each place, row after row, whether it is before its list's end."""
        width = self.array.shape[1]
        return _ends(width).take(self.lengths).view(np.bool_)

    @property
    def values(self) -> Array:
        """The values, row after row, without padding."""
        count, width = self.array.size, self.array.shape[1]
        rows = np.ascontiguousarray(self.array)
        if not 8 <= width <= 64 or rows.dtype == np.bool_:
            return pl.Series(rows.ravel()).filter(pl.Series(self.there)).to_numpy()
        bits = _bits(width).take(self.lengths)
        kind = pa.from_numpy_dtype(rows.dtype)
        array, there = (
            pl.Series(pa.Array.from_buffers(arrow_type, count, [None, pa.py_buffer(of)]))
            for arrow_type, of in ((kind, rows), (pa.bool_(), bits))
        )
        return array.filter(there).to_numpy()

    def take(self, order: Array, empty: Empty = np.empty) -> Self:
        return type(self)(_take_rows(self.array, order, empty), _take_rows(self.lengths, order, empty), self.dtype)

    def cut(self, first: int, last: int) -> Self:
        return type(self)(self.array[first:last], self.lengths[first:last], self.dtype)

    def column(self) -> Column:
        return ShortLists(self)


@dataclass(frozen=True)
class LongListBatch:
    lists: ListColumn

    def __len__(self) -> int:
        return len(self.lists)

    @property
    def size(self) -> int:
        return self.lists.values.nbytes + self.lists.offsets.nbytes

    def take(self, order: Array, empty: Empty = np.empty) -> Self:
        old, lengths = self.lists.offsets, self.lists.lengths.take(order)
        offsets = empty((len(order) + 1,), np.int64)
        offsets[0] = 0
        np.cumsum(lengths, out=offsets[1:])
        places = np.repeat(old[:-1].take(order) - offsets[:-1], lengths)
        places += np.arange(offsets[-1])
        return type(self)(ListColumn(_take_rows(self.lists.values, places, empty), offsets))

    def cut(self, first: int, last: int) -> Self:
        offsets = self.lists.offsets[first : last + 1]
        return type(self)(ListColumn(self.lists.values[offsets[0] : offsets[-1]], offsets - offsets[0]))

    def column(self) -> Column:
        return self.lists


PackedColumn = FlatColumn | ShortListBatch | LongListBatch


def pack_lists(values: Array, offsets: Array) -> PackedColumn:
    """Packs lists in the most suitable form; `offsets` are integers of any type, from 0."""
    lengths = np.diff(offsets)
    longest, total = int(lengths.max(initial=1)), values.itemsize * len(values) + 8 * len(offsets)
    narrow = _narrowest(values)
    size = 1 << (max(1, longest) * narrow.itemsize - 1).bit_length()
    if longest > _LONGEST or (size > SHORT and size * len(lengths) > SPARE * total):
        return LongListBatch(ListColumn(values, offsets.astype(np.int64, copy=False)))
    width = size // narrow.itemsize
    # Each list is a window of the values, as wide as a row; zeros follow the last value.
    room = np.zeros(len(values) + width, narrow)
    room[: len(values)] = values
    windows: Array = np.ndarray((len(values) + 1,), _item(size), room.data, 0, (narrow.itemsize,))
    return ShortListBatch(windows[offsets[:-1]].view(narrow).reshape(len(lengths), width), lengths.astype(np.uint8), values.dtype)


def _narrowest(values: Array) -> np.dtype[Any]:
    if values.dtype.kind in "iu" and len(values) and values.min() >= 0:
        return min(values.dtype, np.min_scalar_type(values.max()), key=lambda dtype: dtype.itemsize)
    return values.dtype


def most(rows: int, values: int, itemsize: int) -> int:
    """Returns the most bytes of this many lists, in either form."""
    return rows + max(SHORT * rows, int(SPARE * (8 * (rows + 1) + values * itemsize)))


def joined(parts: Sequence[PackedColumn], slices: Sequence[slice]) -> PackedColumn:
    """Concatenates these rows of each part; lists may have different forms."""
    pairs = list(zip(parts, slices, strict=True))
    if all(isinstance(part, FlatColumn) for part in parts):
        return FlatColumn(_together([part.array[rows] for part, rows in pairs]))  # type: ignore[union-attr]
    if all(isinstance(part, ShortListBatch) for part in parts):
        lengths = np.concatenate([part.lengths[rows] for part, rows in pairs])  # type: ignore[union-attr]
        width = max(part.array.shape[1] for part in parts)  # type: ignore[union-attr]
        return ShortListBatch(np.concatenate([_widened(part.array[rows], width) for part, rows in pairs]), lengths, parts[0].dtype)  # type: ignore[union-attr]
    lists = [piece for part, rows in pairs if isinstance(piece := part.cut(*rows.indices(len(part))[:2]).column(), ListColumn)]
    ends = np.cumsum([0, *(len(piece.values) for piece in lists)])
    offsets = [piece.offsets[:-1] + end for piece, end in zip(lists, ends[:-1].tolist(), strict=True)]
    return LongListBatch(ListColumn(_together([piece.values for piece in lists]), _together([*offsets, ends[-1:]])))


def _together(arrays: Sequence[Array]) -> Array:
    rows = sum(map(len, arrays))
    return np.concatenate(arrays, out=aligned((rows, *arrays[0].shape[1:]), arrays[0].dtype))


def _widened(rows: Array, width: int) -> Array:
    old_width = rows.shape[1]
    if old_width == width:
        return rows
    wide = np.zeros((len(rows), width), rows.dtype)
    wide[:, :old_width] = rows
    return wide


_LONGEST = 255
_ITEMS: dict[int, str] = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


def _item(size: int) -> str:
    """Returns a numpy type with this number of bytes, which numpy copies at once."""
    return _ITEMS.get(size, f"V{size}")


def _take_rows(array: Array, order: Array, empty: Empty) -> Array:
    out = empty((len(order), *array.shape[1:]), array.dtype)
    if len(order):
        if array.ndim > 1 and array.flags.c_contiguous and array[0].nbytes:
            row_type = _item(array[0].nbytes)
            # With mode="clip" numpy writes directly into `out`, without a buffer.
            array.view(row_type).reshape(len(array)).take(order, out=out.view(row_type).reshape(len(order)), mode="clip")
        else:
            array.take(order, axis=0, out=out, mode="clip")
    return out


@cache
def _bits(width: int) -> Array:
    """The table of `_ends` with a bit per place."""
    return np.array([(1 << length) - 1 for length in range(width + 1)], f"u{width // 8}")


@cache
def _ends(width: int) -> Array:
    """Table by length: which places are before the list's end, each row as a single number."""
    table = np.arange(width)[None, :] < np.arange(width + 1)[:, None]
    return table.view(_item(width)).reshape(width + 1)
