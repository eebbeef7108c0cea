"""The tables that a trial's slices are made of."""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl

from pipelines.data.anywhere import open_anywhere
from pipelines.data.called import What, column_called
from pipelines.data.sources import readable
from pipelines.evaluation.columns import by_column
from pipelines.evaluation.slices import Slice
from shared.contracts.trials import EvaluateRequest
from shared.domain.errors import Invalid


def column_slices(request: EvaluateRequest, held: pl.DataFrame) -> tuple[Slice, ...]:
    """`held`: the `user` and `item` of each case, in order."""
    given: dict[What, str | None] = {"user": request.users, "item": request.items}
    tables = {what: _read(path, what) for what, path in given.items() if path is not None}
    found: list[Slice] = []
    for column in request.slices:
        what = next((one for one, (table, key) in tables.items() if column in table.columns and column != key), None)
        if what is None:
            known = sorted({name for table, key in tables.values() for name in table.columns if name != key})
            said = f"they have: {', '.join(known)}" if known else "say --users FILE or --items FILE"
            raise Invalid(f"--slice {column}: no table has such a column: {said}")
        made = by_column(column, *tables[what], held[what])
        if not made:
            raise Invalid(f"--slice {column}: no {what} of the test pairs has a value of it: is '{tables[what][1]}' the {what}'s id?")
        found += made
    return tuple(found)


def _read(path: str, what: What) -> tuple[pl.DataFrame, str]:
    """A table, and its key: the column that is called so, else the first one."""
    with tempfile.TemporaryDirectory(prefix="eyas-evaluate-") as scratch:
        source = open_anywhere(path, Path(scratch))
        names = source.frame.collect_schema().names()
        with readable(source.name):
            return source.frame.collect(), column_called(what, names) or names[0]
