"""A report of the checks of data, as a table; and `validation`, which shows that of a run."""

from __future__ import annotations

import typer

from services.cli import paths
from services.cli.runs import RunId
from services.cli.session import AsJson, client, show_json, show_table
from shared.contracts.strict import read
from shared.contracts.validation_report import Check, Report, Section


def validation(ctx: typer.Context, id: RunId, as_json: AsJson = False) -> None:
    """Show what the checks of a run's data found."""
    found = client(ctx).get(paths.run(id, "/validation"))
    if as_json:
        show_json(found)
        return
    report = read(Report, found, "the platform's answer")
    show_report(report)
    typer.echo(report.verdict)


def show_report(report: Report) -> None:
    _show(report, "")
    for file in report.faulty:
        typer.echo(f"not read: {file.name} ({file.size:,} bytes, sha256 {file.sha256[:16]}): {file.fault}")
    for section in report.sections:
        typer.echo("")
        _show(section, f"{section.name}: ")


def _show(part: Report | Section, named: str) -> None:
    rows = part.rows
    views = "" if rows.pages is None else f" ({rows.pages:,} of them views of pages)"
    typer.echo(f"{named}{part.source}: {rows.read:,} rows read, {rows.kept:,} kept{views}, {rows.quarantined:,} quarantined")
    ordered = [*part.crossed("stop"), *part.crossed("warn"), *part.crossed("pass")]
    lines = [(one.verdict, one.name, one.column or "", _figure(one, one.figure), _figure(one, one.stop), one.says) for one in ordered]
    show_table(("VERDICT", "CHECK", "COLUMN", "FIGURE", "ALLOWED", "WHAT WAS SEEN"), lines, "nothing was checked")


def _figure(one: Check, value: float | None) -> str:
    if value is None:
        return "any"
    return f"{value:.3f}" if one.unit == "index" else f"{value:.2%}"
