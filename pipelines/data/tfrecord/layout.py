"""Layout of columns in a TFRecord file's Examples: facts for readers that the file itself lacks.

Stored next to the file as `NAME.layout.json`. A file without a layout is read as one row per Example and one column per feature.

* `short`: the feature's name, repeated in each Example.
* `batch`: rows per Example (the last may have fewer). Then a list column has its lengths in `SHORT#` (-1 is null), and a column with
  nulls has its valid rows in `SHORT?`; without batches a null is an absent feature.
* `grouped`: columns of integers, floats and text with one value per row and no nulls share the features `i`, `f` and `b`, column after
  column in the order of `columns`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import Field, model_validator

from shared.contracts.strict import Strict, read
from shared.contracts.yaml12 import load
from shared.datafiles.kinds import LAYOUT
from shared.domain.errors import BadData

Wire = Literal["int64_list", "float_list", "bytes_list"]
GROUPS: dict[Wire, str] = {"int64_list": "i", "float_list": "f", "bytes_list": "b"}

TYPES: dict[str, tuple[pl.DataType, Wire]] = {
    "int8": (pl.Int8(), "int64_list"),
    "int16": (pl.Int16(), "int64_list"),
    "int32": (pl.Int32(), "int64_list"),
    "int64": (pl.Int64(), "int64_list"),
    "uint8": (pl.UInt8(), "int64_list"),
    "uint16": (pl.UInt16(), "int64_list"),
    "uint32": (pl.UInt32(), "int64_list"),
    "bool": (pl.Boolean(), "int64_list"),
    "date": (pl.Date(), "int64_list"),
    "time": (pl.Datetime("us"), "int64_list"),
    "time utc": (pl.Datetime("us", "UTC"), "int64_list"),
    "float32": (pl.Float32(), "float_list"),
    "float64": (pl.Float64(), "float_list"),
    "text": (pl.String(), "bytes_list"),
}
"""Column types by name, and the feature's list that holds the values."""


class TfColumn(Strict):
    name: str = Field(description="Name of the column.")
    short: str = Field(min_length=1, description="Name of the feature.")
    type: str = Field(description="Type of the values.")
    lists: bool = Field(False, description="Whether each row has a list of values.")
    nulls: bool = Field(False, description="Whether values may be missing.")

    @property
    def dtype(self) -> pl.DataType:
        dtype = TYPES[self.type][0]
        return pl.List(dtype) if self.lists else dtype

    @property
    def wire(self) -> Wire:
        return TYPES[self.type][1]


class TfRecordLayout(Strict):
    version: Literal[1] = 1
    batch: int | None = Field(None, ge=1, le=1 << 20)
    grouped: bool = False
    columns: tuple[TfColumn, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> TfRecordLayout:
        for column in self.columns:
            if column.type not in TYPES:
                raise ValueError(f"columns: '{column.name}': unknown type '{column.type}' (known: {', '.join(TYPES)})")
        features = [name for name, _ in self.features()]
        for kind, names in (("column", [column.name for column in self.columns]), ("feature", features)):
            doubled = sorted({name for name in names if names.count(name) > 1})
            if doubled:
                raise ValueError(f"columns: two columns have the {kind} '{doubled[0]}'; give one another short name")
        return self

    def groups(self) -> dict[str, tuple[TfColumn, ...]]:
        """Returns columns by their shared feature."""
        if not self.grouped:
            return {}
        groups = {
            name: tuple(column for column in self.columns if column.wire == wire and self._shares(column)) for wire, name in GROUPS.items()
        }
        return {name: columns for name, columns in groups.items() if columns}

    def alone(self) -> tuple[TfColumn, ...]:
        return tuple(column for column in self.columns if not (self.grouped and self._shares(column)))

    def features(self) -> list[tuple[str, Wire]]:
        """Returns the names of all features, and the list that holds each one's values."""
        features = [(name, columns[0].wire) for name, columns in self.groups().items()]
        for column in self.alone():
            features.append((column.short, column.wire))
            if self.batch is not None and (column.lists or column.nulls):
                features.append((f"{column.short}#" if column.lists else f"{column.short}?", "int64_list"))
        return features

    @staticmethod
    def _shares(column: TfColumn) -> bool:
        return not column.lists and not column.nulls


def beside(path: Path) -> Path:
    return path.with_name(path.name + LAYOUT)


def read_layout(path: Path) -> TfRecordLayout | None:
    """Returns the layout of a data file, None without one."""
    place = beside(path)
    if not place.exists():
        return None
    try:
        return read(TfRecordLayout, load(place.read_text(), place.name), place.name)
    except UnicodeDecodeError:
        raise BadData(f"{place}: not UTF-8 text") from None
