"""Decodes the column types of Parquet.

| in the file | loaded as | missing values |
|---|---|---|
| integers, signed or not, 8 to 64 bits | the same | refused, or `nulls` |
| float16, float32, float64 | the same | NaN, or `nulls` |
| booleans | booleans | refused, or `nulls` |
| decimals without decimal places | int64 | refused, or `nulls` |
| decimals with decimal places | float64, rounded | NaN, or `nulls` |
| dictionaries of these types | their values | as these |
| lists, large lists of these types | values and offsets | values: as these; lists: refused, or with `nulls` empty |
| lists of a fixed size of these types | rows and columns | values: as these; lists: refused |
| extension types stored as these types | these | as these |
| text, bytes, dates, times, structs, maps, lists of lists | refused | |

`nulls` holds a column's value for missing values, such as {"year": 0}.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipelines.loaders.columns import FlatColumn, PackedColumn, most, pack_lists
from shared.domain.errors import BadData, Invalid

Nulls = Mapping[str, float]


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def loaded_as(kind: pa.DataType) -> pa.DataType | None:
    """Returns the type of a value, or of a list's values; None if the type cannot be loaded."""
    stored = _stored(kind)
    return _number(_stored(stored.value_type)) if is_list(stored) else _number(stored)


def plain(kind: pa.DataType) -> pa.DataType:
    """Returns the type that a loadable column has after loading."""
    stored, number = _stored(kind), loaded_as(kind)
    if pa.types.is_fixed_size_list(stored):
        return pa.list_(number, stored.list_size)
    return pa.list_(number) if is_list(stored) else number


def size_of(kind: pa.DataType, rows: int, values: int) -> int:
    """Returns the most bytes in memory."""
    itemsize = max(8, (loaded_as(kind) or kind).bit_width) // 8
    stored = _stored(kind)
    if pa.types.is_fixed_size_list(stored):
        return int(rows * stored.list_size * itemsize)
    return most(rows, values, itemsize) if is_list(stored) else rows * itemsize


def refusal(kind: pa.DataType) -> str:
    """Returns why the type cannot be loaded, and what to do."""
    is_a = pa.types
    inner = _stored(kind)
    if is_list(inner):
        inner = _stored(inner.value_type)
        if is_list(inner):
            return f"holds lists of lists ({kind}); write one list, or several columns"
    if is_a.is_dictionary(inner):
        inner = inner.value_type
    if is_a.is_temporal(inner):
        return f"holds times ({kind}); write numbers, such as seconds"
    if is_a.is_struct(inner) or is_a.is_map(inner):
        return f"is nested ({kind}); write its fields as separate columns"
    if is_a.is_null(inner):
        return "has only missing values, and so no type; fill it"
    if is_a.is_binary(inner) or is_a.is_large_binary(inner) or is_a.is_fixed_size_binary(inner):
        return f"holds bytes ({kind}); only numbers and lists of numbers can be loaded"
    return f"is text ({kind}); write codes: only numbers and lists of numbers can be loaded"


def refused_nulls(name: str, missing: int) -> BadData:
    """Returns the error for missing values; `name` is the column in messages: FILE: row group N: column 'NAME'."""
    column = name.rpartition("column '")[2].removesuffix("'")
    return BadData(
        f"{name} has {missing:,} missing values, but integers and booleans cannot be missing; fill them, or set a value: "
        f"nulls={{'{column}': 0}}"
    )


def check_nulls(nulls: Nulls, kinds: Mapping[str, pa.DataType]) -> None:
    for name, value in nulls.items():
        if name not in kinds:
            raise Invalid(f"nulls: column '{name}' is not loaded; loaded columns: {', '.join(kinds)}")
        kind = loaded_as(kinds[name])
        try:
            converted = _scalar(value, kind).as_py()
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            converted = None
        if converted is None or (converted != value and not pa.types.is_floating(kind)):
            raise Invalid(f"nulls: {value!r} is not a value of column '{name}', which is {kind}")


def pack_column(column: pa.Array, name: str, fill: float | None) -> PackedColumn:
    """Packs a column; `name` is the column's name in messages."""
    column = _plain(column)
    kind = column.type
    if not is_list(kind):
        return FlatColumn(_array(column, name, fill))
    if column.null_count and pa.types.is_fixed_size_list(kind):
        raise BadData(f"{name} has {column.null_count:,} missing lists of a fixed size; fill them, or write lists of any length")
    if column.null_count and fill is None:
        raise BadData(
            f"{name} has {column.null_count:,} missing lists, but lists may only be empty; fill them, or set a value in `nulls` "
            "to read missing lists as empty"
        )
    if pa.types.is_fixed_size_list(kind):
        return FlatColumn(_array(column.flatten(), name, fill).reshape(len(column), kind.list_size))
    return pack_lists(_array(column.values, name, fill), column.offsets.to_numpy())


def _array(column: pa.Array, name: str, fill: float | None) -> NDArray[Any]:
    values = _plain(column)
    kind = _number(values.type)
    assert kind is not None  # checked when the file was opened
    if values.type != kind:
        try:
            values = values.cast(kind, safe=pa.types.is_integer(kind))
        except pa.ArrowInvalid as error:
            raise BadData(f"{name} has numbers that do not fit {kind}: {error}") from error
    missing = values.null_count
    if missing and not pa.types.is_floating(kind):
        if fill is None:
            raise refused_nulls(name, missing)
        values = pc.fill_null(values, _scalar(fill, kind))
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if missing and fill is not None and pa.types.is_floating(kind):
        array = np.where(values.is_null().to_numpy(zero_copy_only=False), array.dtype.type(fill), array)
    return array


def _scalar(value: float, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_floating(kind):
        return pa.scalar(float(value)).cast(kind)
    return pa.scalar(bool(value) if pa.types.is_boolean(kind) else value, kind)


def _plain(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _stored(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _number(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return kind
    if pa.types.is_decimal(kind):
        return pa.int64() if kind.scale <= 0 else pa.float64()
    return None
