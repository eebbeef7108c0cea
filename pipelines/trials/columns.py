"""Slices of an evaluation by columns of user and item tables."""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl

from pipelines.data.cli_source import open_anywhere
from pipelines.data.column_guess import Role, column_called
from pipelines.data.sources import readable
from pipelines.evaluation.columns import by_column
from pipelines.evaluation.slices import Slice
from shared.contracts.trials import EvaluateRequest
from shared.domain.errors import Invalid


def column_slices(request: EvaluateRequest, held_out: pl.DataFrame) -> tuple[Slice, ...]:
    """`held_out` has the `user` and `item` of each case, in order."""
    paths: dict[Role, str | None] = {"user": request.users, "item": request.items}
    tables = {side: _read(path, side) for side, path in paths.items() if path is not None}
    slices: list[Slice] = []
    for column in request.slices:
        side = next((candidate for candidate, (table, key) in tables.items() if column in table.columns and column != key), None)
        if side is None:
            available = sorted({name for table, key in tables.values() for name in table.columns if name != key})
            hint = f"available: {', '.join(available)}" if available else "add --users FILE or --items FILE"
            raise Invalid(f"--slice {column}: no table has this column; {hint}")
        made = by_column(column, *tables[side], held_out[side])
        if not made:
            raise Invalid(
                f"--slice {column}: no {side} of the test pairs has a value in it: check that '{tables[side][1]}' is the {side}'s id"
            )
        slices += made
    return tuple(slices)


def _read(path: str, side: Role) -> tuple[pl.DataFrame, str]:
    """Reads a table and its key: the column with a known name of the key, else the first column."""
    with tempfile.TemporaryDirectory(prefix="eyas-evaluate-") as scratch:
        source = open_anywhere(path, Path(scratch))
        names = source.frame.collect_schema().names()
        with readable(source.name):
            return source.frame.collect(), column_called(side, names) or names[0]
