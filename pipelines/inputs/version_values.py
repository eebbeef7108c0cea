"""Values by key with which a version was published: inputs of its unit that a later run's data lacks.

The version's own codes and statistics (`NAME@stored`) are only in its catalogue and its feature store files. Raw columns that the run's
tables lack, or have with another type, come from these files too. Missing keys are blank, as in serving. Later writes to the store aren't
included.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.inputs.tables import Array, placed
from shared.contracts.online import ONLINE, Online, OnlineView
from shared.contracts.strict import read
from shared.domain.errors import Invalid
from shared.serving.signature import BLANK, Input, Signature
from shared.serving.values_file import ValueRows, join_values, read_values

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PublishedValues:
    """Published values of a version. `fetch` returns the files of the version's export."""

    served: Signature
    fetch: Callable[[str], Path]
    used: list[str] = field(default_factory=list)
    """Inputs taken from these files."""

    def items(self, wanted: Input, keys: Ints) -> Array:
        """Returns a column for the items, in their order; holds one column in memory."""
        self.used.append(wanted.name)
        with np.load(self.fetch("catalogue.npz"), allow_pickle=False) as catalogue:
            item_keys = catalogue[self.served.item]
            column = _fitting(catalogue[wanted.name] if wanted.name in catalogue.files else None, wanted, len(item_keys), "catalogue.npz")
        order = np.argsort(item_keys, kind="stable")
        return with_blank(column[order], wanted)[placed(item_keys[order], keys)]

    def users(self, wanted: Iterable[Input], keys: Ints) -> tuple[Ints, dict[str, Array]]:
        """Returns the columns of one view for the given users that the version knows, by key; the last row is blank. Holds one part and the
        results in memory."""
        inputs = tuple(wanted)
        view = self._view(str(inputs[0].view))
        self.used.extend(column.name for column in inputs)
        parts = [self._part(view, name, keys) for name in view.parts]
        there = [part for part in parts if len(part)] or parts[:1]
        if not there:
            return np.empty(0, np.int64), {column.name: with_blank(_none(column), column) for column in inputs}
        values = join_values(there)
        columns = {column.name: _fitting(values.columns.get(column.name), column, len(values), ONLINE) for column in inputs}
        return values.keys, {column.name: with_blank(columns[column.name], column) for column in inputs}

    def _view(self, name: str) -> OnlineView:
        online = read(Online, json.loads(self.fetch(ONLINE).read_text()), f"the serving version's {ONLINE}")
        view = online.view(name)
        if view is None:
            raise Invalid(f"the serving version's {ONLINE} has no view '{name}', which its served unit needs")
        return view

    def _part(self, view: OnlineView, name: str, keys: Ints) -> ValueRows:
        part = read_values(self.fetch(name).read_bytes(), view, f"the serving version's {name}")
        mask = np.isin(part.keys, keys)
        return ValueRows(part.keys[mask], part.at[mask], {name: column[mask] for name, column in part.columns.items()})


def with_blank(column: Array, wanted: Input) -> Array:
    """Appends a blank row for missing keys."""
    return np.concatenate([column, np.full((1, *column.shape[1:]), BLANK[wanted.dtype], _none(wanted).dtype)])


def _none(wanted: Input) -> Array:
    dtype: Any = {"int64": np.int64, "float32": np.float32, "string": np.str_}[wanted.dtype]
    return np.empty((0,) if wanted.width is None else (0, wanted.width), dtype)


def _fitting(column: Array | None, wanted: Input, rows: int, file: str) -> Array:
    if column is None:
        raise Invalid(f"the serving version's {file} has no column '{wanted.name}'")
    shape = (rows,) if wanted.width is None else (rows, wanted.width)
    if column.shape != shape or column.dtype.kind != _none(wanted).dtype.kind:
        raise Invalid(
            f"the serving version's {file}: '{wanted.name}' is {column.dtype} of shape {column.shape}, not {wanted.dtype} of {shape}"
        )
    return column
