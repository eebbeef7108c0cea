"""Check of a spec before its first run: columns, row validation, features, split and attributes, without training."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.data.catalogue import open_items
from pipelines.data.ids import with_kinds
from pipelines.data.sources import ReadableRoots, columns_hint, open_source
from pipelines.data.validation import command
from pipelines.explain.fitting import fit_on_data
from pipelines.export.attributes import attribute_columns
from pipelines.models.families import FAMILIES, reads_of
from shared.contracts.attribute_names import unknown_attributes, wrong_kinds
from shared.contracts.datatools import CheckedSpec, CheckRequest, Validated, ValidateRequest
from shared.contracts.sources import Place
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
from shared.domain.errors import BadData, EyasError, Invalid

_MOST_ROWS = 200_000
"""Rows on which the features are fitted."""


class _Faults:
    """Faults by field, in the order in which they were noticed."""

    def __init__(self) -> None:
        self.list: list[tuple[str, str]] = []

    @contextmanager
    def of(self, field: str = "") -> Iterator[None]:
        """Collects a fault of the data or of the spec."""
        try:
            yield
        except (BadData, Invalid) as error:
            self.list += error.faults or [(field, str(error))]


def check(arguments: Any) -> CheckedSpec:
    """Returns all faults that a run would stop at. Later checks need the earlier ones to pass."""
    request = read(CheckRequest, arguments, "the request")
    spec, faults = request.spec, _Faults()
    with tempfile.TemporaryDirectory(prefix="eyas-check-") as folder:
        reach = ReadableRoots(request.roots, Path(folder))
        _check_columns(spec, reach, faults)
        report = None
        if not faults.list:
            with faults.of():
                reach = with_kinds(spec, reach)
                report, refusal = command.report_of(spec, reach, None, Path(folder) / "report")
                faults.list += [("", str(refusal))] if refusal else []
        if report is not None:
            _check_run(spec, reach, faults)
    return CheckedSpec(faults=tuple(faults.list), report=report)


def validate(arguments: Any) -> Validated:
    """Validates rows. Those of a spec are usable only if a run would start with them."""
    validated = command.validate(arguments)
    request = read(ValidateRequest, arguments, "the request")
    if validated.refusal is not None or not command.is_spec(request.source):
        return validated
    faults = _Faults()
    with tempfile.TemporaryDirectory(prefix="eyas-check-") as folder:
        reach = ReadableRoots(request.roots, Path(folder))
        spec = command.spec_of(request, reach)
        _check_run(spec, with_kinds(spec, reach), faults)
    return validated.model_copy(update={"refusal": "; ".join(f"{field}: {message}" for field, message in faults.list) or None})


def _check_run(spec: RecommenderSpec, reach: ReadableRoots, faults: _Faults) -> None:
    """Checks what follows the rows: enough positives, the features, the split, and the attributes of filters."""
    with faults.of():
        family = spec.model.family
        fit_on_data(spec, reach, _MOST_ROWS, reads_of(family) if family in FAMILIES else "deep")
    with suppress(EyasError):
        _check_attributes(spec, reach, faults)


def _check_columns(spec: RecommenderSpec, reach: ReadableRoots, faults: _Faults) -> None:
    """Opens each source, and looks for the columns that the spec names."""
    schema = spec.schema_
    named: dict[str, str | None] = {
        "schema.user": schema.user,
        "schema.item": schema.item,
        "schema.time": schema.time.column if schema.time else None,
        "schema.label.column": schema.label.column,
        "schema.page": schema.page,
    }
    _open(spec.data.interactions, "data.interactions", named, reach, faults)
    for role, table in (("items", spec.data.items), ("users", spec.data.users)):
        if table is not None:
            _open(table, f"data.{role}", {f"data.{role}.key": table.key}, reach, faults)


def _open(place: Place, field: str, named: dict[str, str | None], reach: ReadableRoots, faults: _Faults) -> None:
    with faults.of(field):
        source = open_source(place, reach, (), spare=True)
        columns = source.frame.collect_schema().names()
        missing = {field: column for field, column in named.items() if column is not None and column not in columns}
        faults.list += [
            (field, f"{place.label}: column '{column}' is missing; {columns_hint(column, columns)}") for field, column in missing.items()
        ]


def _check_attributes(spec: RecommenderSpec, reach: ReadableRoots, faults: _Faults) -> None:
    """Compares the attributes that filters and rules name with the columns of the items table."""
    items = open_items(spec, reach).frame
    kinds = attribute_columns(pl.DataFrame(schema=items.collect_schema()), spec.items_table().key, {}).kinds
    faults.list += (*unknown_attributes(spec.serve, kinds), *wrong_kinds(spec.serve, kinds))
