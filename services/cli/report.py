"""Data validation reports as tables; `validation` shows the report of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from services.cli import paths
from services.cli.output import AsJson, say, show_json, show_table
from services.cli.runs import RunId
from services.cli.session import client

if TYPE_CHECKING:
    from shared.contracts.validation_report import Check, Report, Section


def validation(ctx: typer.Context, id: RunId, as_json: AsJson = False) -> None:
    """Show the data validation report of a run."""
    document = client(ctx).get(paths.run(id, "/validation"))
    if as_json:
        show_json(document)
        return
    from shared.contracts.strict import read
    from shared.contracts.validation_report import Report

    report = read(Report, document, "the platform's answer")
    show_report(report)
    say(report.verdict, report.verdict)


def show_report(report: Report) -> None:
    _show(report, "")
    for file in report.faulty:
        say(f"not read: {file.name} ({file.size:,} bytes, sha256 {file.sha256[:16]}): {file.fault}")
    for section in report.sections:
        say("")
        _show(section, f"{section.name}: ")


def _show(part: Report | Section, named: str) -> None:
    rows = part.rows
    views = "" if rows.pages is None else f" ({rows.pages:,} of them views of pages)"
    say(f"{named}{part.source}: {rows.read:,} rows read, {rows.kept:,} kept{views}, {rows.quarantined:,} quarantined")
    ordered = [*part.crossed("stop"), *part.crossed("warn"), *part.crossed("pass")]
    lines = [
        (check.verdict, check.name, check.column or "", _figure(check, check.figure), _figure(check, check.stop), check.says)
        for check in ordered
    ]
    show_table(("VERDICT", "CHECK", "COLUMN", "FIGURE", "ALLOWED", "OBSERVED"), lines, "nothing was checked", drop=("ALLOWED", "FIGURE"))


def _figure(check: Check, value: float | None) -> str:
    if value is None:
        return "any"
    return f"{value:.3f}" if check.unit == "index" else f"{value:.2%}"
