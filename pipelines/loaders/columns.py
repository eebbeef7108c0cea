"""Columns in memory: one value a row, a row of several, or lists of any length; and what a loader does with them, as fast as numpy can.

Short lists are held as rows of one width that is a power of two, with their lengths: such a row is taken as if it were one number. Longer
ones are values and offsets. What is taken goes where the caller says: into memory that it has already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

Array = NDArray[Any]
Offsets = NDArray[np.int64]
Empty = Callable[[tuple[int, ...], Any], Array]
"""Memory for an array of a shape and a dtype, its values whatever they are."""
WIDEST = 32
"""Bytes of a list that is held as a row."""


class Lists:
    """Of all rows, one after the other; row n's are values[offsets[n]:offsets[n + 1]]."""

    def __init__(self, values: Array, offsets: Offsets) -> None:
        self._values, self._offsets = values, offsets

    @property
    def values(self) -> Array:
        return self._values

    @property
    def offsets(self) -> Offsets:
        """One more than there are rows: from 0 to the number of values."""
        return self._offsets

    @property
    def lengths(self) -> Offsets:
        return np.diff(self.offsets)

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    def padded(self, width: int, fill: Any = 0) -> Array:
        """[rows, width]; what is longer is cut."""
        there = np.arange(width)[None, :] < self.lengths[:, None]
        found = np.full(there.shape, fill, self.dtype)
        places = self.offsets[:-1, None] + np.arange(width)[None, :]
        found[there] = self.values[places[there]]
        return found

    def __len__(self) -> int:
        return len(self.offsets) - 1


class ShortLists(Lists):
    """Of which a row of one width is at hand; values and offsets are made of it when they are asked for."""

    def __init__(self, short: Short) -> None:
        self._short = short

    @cached_property
    def values(self) -> Array:
        array = self._short.array
        return pl.Series(array.ravel()).filter(pl.Series(self._short.there)).to_numpy()

    @cached_property
    def offsets(self) -> Offsets:
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(self._short.lengths, dtype=np.int64, out=offsets[1:])
        return offsets

    @property
    def lengths(self) -> Offsets:
        return self._short.lengths.astype(np.int64)

    @property
    def dtype(self) -> Any:
        return self._short.array.dtype

    def padded(self, width: int, fill: Any = 0) -> Array:
        array = self._short.array
        known = array.shape[1]
        there = self._short.there.reshape(array.shape)
        found = np.where(there, array, np.array(fill, array.dtype))
        if width <= known:
            return np.ascontiguousarray(found[:, :width])
        return np.concatenate([found, np.full((len(array), width - known), fill, array.dtype)], axis=1)

    def __len__(self) -> int:
        return len(self._short)


Column = Array | Lists


@dataclass(frozen=True)
class Flat:
    """One value a row, or several of a fixed number."""

    array: Array

    def __len__(self) -> int:
        return len(self.array)

    @property
    def size(self) -> int:
        return self.array.nbytes

    def take(self, order: Array, empty: Empty = np.empty) -> Self:
        return type(self)(_taken(self.array, order, empty))

    def cut(self, first: int, last: int) -> Self:
        return type(self)(self.array[first:last])

    def column(self) -> Column:
        return self.array


@dataclass(frozen=True)
class Short:
    """Lists as [rows, width]; what is behind the end of one means nothing."""

    array: Array
    lengths: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.array)

    @property
    def size(self) -> int:
        return self.array.nbytes + self.lengths.nbytes

    @property
    def there(self) -> NDArray[np.bool_]:
        """Of each place, row after row, whether it is before its list's end."""
        width = self.array.shape[1]
        return _ends(width).take(self.lengths).view(np.bool_)[: width * len(self)]

    def take(self, order: Array, empty: Empty = np.empty) -> Self:
        return type(self)(_taken(self.array, order, empty), _taken(self.lengths, order, empty))

    def cut(self, first: int, last: int) -> Self:
        return type(self)(self.array[first:last], self.lengths[first:last])

    def widened(self, width: int) -> Self:
        known = self.array.shape[1]
        if known == width:
            return self
        wide = np.zeros((len(self), width), self.array.dtype)
        wide[:, :known] = self.array
        return type(self)(wide, self.lengths)

    def column(self) -> Column:
        return ShortLists(self)


@dataclass(frozen=True)
class Long:
    lists: Lists

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
        return type(self)(Lists(_taken(self.lists.values, places, empty), offsets))

    def cut(self, first: int, last: int) -> Self:
        offsets = self.lists.offsets[first : last + 1]
        return type(self)(Lists(self.lists.values[offsets[0] : offsets[-1]], offsets - offsets[0]))

    def column(self) -> Column:
        return self.lists


Held = Flat | Short | Long


def held(lists: Lists) -> Held:
    """In the way that suits them."""
    lengths, itemsize = np.diff(lists.offsets), lists.values.itemsize
    width = 1 << max(0, int(lengths.max(initial=1)) - 1).bit_length()
    if width * itemsize > WIDEST:
        return Long(lists)
    values = np.concatenate([lists.values, np.zeros(width, lists.values.dtype)])
    windows: Array = np.ndarray((len(lists.values) + 1,), _ITEMS[width * itemsize], values.data, 0, (itemsize,))
    return Short(windows[lists.offsets[:-1]].view(values.dtype).reshape(len(lists), width), lengths.astype(np.uint8))


def most(rows: int, values: int, itemsize: int) -> int:
    """Bytes that so many lists take at most, in either way."""
    return max((WIDEST + 1) * rows, 8 * (rows + 1) + values * itemsize)


def joined(parts: Sequence[Held]) -> Held:
    """One after the other. Lists may be held in other ways in each."""
    if all(isinstance(one, Flat) for one in parts):
        return Flat(np.concatenate([one.array for one in parts if isinstance(one, Flat)]))
    if all(isinstance(one, Short) for one in parts):
        short = [one for one in parts if isinstance(one, Short)]
        width = max(one.array.shape[1] for one in short)
        return Short(np.concatenate([one.widened(width).array for one in short]), np.concatenate([one.lengths for one in short]))
    lists = [found for one in parts if isinstance(found := one.column(), Lists)]
    ends = np.cumsum([0, *(len(one.values) for one in lists)])
    offsets = [one.offsets[:-1] + end for one, end in zip(lists, ends[:-1].tolist(), strict=True)]
    return Long(Lists(np.concatenate([one.values for one in lists]), np.append(np.concatenate(offsets), ends[-1])))


_ITEMS: dict[int, str] = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16", 32: "V32"}
"""What numpy takes at once, by bytes."""


def _taken(array: Array, order: Array, empty: Empty) -> Array:
    found = empty((len(order), *array.shape[1:]), array.dtype)
    if len(order):
        one = _ITEMS.get(array[0].nbytes)
        if array.ndim > 1 and one is not None and array.flags.c_contiguous:
            # Clipped: numpy writes through a buffer of its own otherwise.
            array.view(one).reshape(len(array)).take(order, out=found.view(one).reshape(len(order)), mode="clip")
        else:
            array.take(order, axis=0, out=found, mode="clip")
    return found


@cache
def _ends(width: int) -> Array:
    """By length: which of the places are before the end, a row as one number."""
    table = np.arange(width)[None, :] < np.arange(width + 1)[:, None]
    return table.view(_ITEMS[width]).reshape(width + 1)
