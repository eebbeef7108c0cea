"""Check of a spec before its first run: columns, row validation, features, split and attributes, without training."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines.data.ids import with_kinds
from pipelines.data.sources import ReadableRoots, columns_hint, open_source
from pipelines.data.validation import command
from pipelines.data.validation.judging import Judged, refusal
from pipelines.data.validation.tables import JudgedTables
from pipelines.explain.fitting import ExplainedFit, fit_on_judged
from pipelines.models.families import FAMILIES, reads_of
from shared.contracts.datatools import CheckedSpec, CheckRequest, Validated, ValidateRequest
from shared.contracts.sources import Place
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
from shared.domain.errors import BadData, Invalid

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
    """Returns the faults at which a run would stop. The rows are read only if the columns are right, the features only if the rows are."""
    request = read(CheckRequest, arguments, "the request")
    spec, faults = request.spec, _Faults()
    report = None
    fitted: ExplainedFit | None = None
    with tempfile.TemporaryDirectory(prefix="eyas-check-") as folder:
        reach = ReadableRoots(request.roots, Path(folder))
        _check_columns(spec, reach, faults)
        if not faults.list:
            with faults.of():
                reach = with_kinds(spec, reach)
                tables, judged = command.judge_rows(spec, reach, None, Path(folder) / "report")
                report = judged.report
                fitted = _check_run(spec, reach, tables, judged, faults)
    unknown, absent = (fitted.unknown, fitted.absent) if fitted else ((), ())
    return CheckedSpec(faults=tuple(faults.list), unknown_attributes=unknown, absent_values=absent, report=report)


def validate(arguments: Any) -> Validated:
    """Validates rows. Those of a spec are usable only if a run would start with them."""
    request = read(ValidateRequest, arguments, "the request")
    if not command.is_spec(request.source):
        return command.validate(arguments)
    faults = _Faults()
    with tempfile.TemporaryDirectory(prefix="eyas-validate-") as folder:
        reach = ReadableRoots(request.roots, Path(folder) / "sources")
        spec = command.spec_of(request, reach)
        reach = with_kinds(spec, reach)
        tables, judged = command.judge_rows(spec, reach, command.profile_of(request), Path(request.folder or folder))
        with faults.of():
            unknown = _check_run(spec, reach, tables, judged, faults).unknown
            faults.list += [(field, f"{message}; if clients write it, declare it in serve.attributes") for field, message in unknown]
    refusals = [f"{field}: {message}" if field else message for field, message in faults.list]
    return Validated(report=judged.report, refusal="; ".join(refusals) or None)


def _check_run(spec: RecommenderSpec, reach: ReadableRoots, tables: JudgedTables, judged: Judged, faults: _Faults) -> ExplainedFit:
    """Checks what follows the validation of rows: positives, split, features and filters."""
    if refused := refusal(judged.report):
        raise refused
    family = spec.model.family
    fitted = fit_on_judged(spec, reach, tables, judged, _MOST_ROWS, reads_of(family) if family in FAMILIES else "deep")
    faults.list += fitted.mistyped
    return fitted


def _check_columns(spec: RecommenderSpec, reach: ReadableRoots, faults: _Faults) -> None:
    """Opens each source, and looks for the columns that the spec names."""
    schema = spec.schema_
    columns: dict[str, str | None] = {
        "schema.user": schema.user,
        "schema.item": schema.item,
        "schema.time": schema.time.column if schema.time else None,
        "schema.label.column": schema.label.column,
        "schema.page": schema.page,
    }
    _check_source(spec.data.interactions, "data.interactions", columns, reach, faults)
    for role, table in (("items", spec.data.items), ("users", spec.data.users)):
        if table is not None:
            _check_source(table, f"data.{role}", {f"data.{role}.key": table.key}, reach, faults)


def _check_source(place: Place, field: str, wanted: dict[str, str | None], reach: ReadableRoots, faults: _Faults) -> None:
    """Opens a source, and records a fault for each missing column. `wanted`: the column that each field names; None for an absent field."""
    with faults.of(field):
        columns = open_source(place, reach, (), spare=True).frame.collect_schema().names()
        missing = {name: column for name, column in wanted.items() if column is not None and column not in columns}
        faults.list += [
            (name, f"{place.label}: column '{column}' is missing; {columns_hint(column, columns)}") for name, column in missing.items()
        ]
