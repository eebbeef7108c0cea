"""Roles of a data set's columns in a model, derived from their types.

An integer is a code (single-hot), a list of integers several codes (multi-hot), a float a number, and one column is the label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.loaders.columns import Column, ListColumn
from shared.contracts.strict import unknown_name
from shared.domain.errors import Invalid

LABEL = "label"
"""The label column if none is named."""


class Kind(StrEnum):
    SINGLE_HOT = "single-hot"
    MULTI_HOT = "multi-hot"
    CONTINUOUS = "continuous"
    LABEL = "label"


@dataclass(frozen=True)
class ColumnType:
    """Type of a column: a value per row, a fixed number (`width`), or lists of any length."""

    dtype: np.dtype[Any]
    width: int | None = None
    lists: bool = False


def described(schema: pa.Schema) -> dict[str, ColumnType]:
    """Describes columns that a loader can load."""
    columns = {}
    for field in schema:
        kind, width, lists = field.type, None, False
        if pa.types.is_fixed_size_list(kind):
            kind, width = kind.value_type, kind.list_size
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            kind, lists = kind.value_type, True
        columns[field.name] = ColumnType(pa.array([], kind).to_numpy(zero_copy_only=False).dtype, width, lists)
    return columns


def described_by(batch: Mapping[str, Column]) -> dict[str, ColumnType]:
    return {
        name: ColumnType(column.dtype, lists=True)
        if isinstance(column, ListColumn)
        else ColumnType(column.dtype, column.shape[1] if column.ndim > 1 else None)
        for name, column in batch.items()
    }


def label_of(columns: Mapping[str, ColumnType], label: str | None = None) -> str | None:
    """Returns the named label; else the column `label` if there is one."""
    if label is None:
        return LABEL if LABEL in columns and not columns[LABEL].lists else None
    if label not in columns:
        raise Invalid(f"label: {unknown_name('column', label, columns)}")
    if columns[label].lists:
        raise Invalid(f"label: column '{label}' has lists; a label is one value per row, or a fixed number of values")
    return label


def kinds(columns: Mapping[str, ColumnType], label: str | None = None) -> dict[str, Kind]:
    labelled = label_of(columns, label)
    return {name: Kind.LABEL if name == labelled else _kind(column) for name, column in columns.items()}


def _kind(column: ColumnType) -> Kind:
    if column.dtype.kind == "f":
        return Kind.CONTINUOUS
    return Kind.MULTI_HOT if column.lists or column.width is not None else Kind.SINGLE_HOT
