"""`data`: what can be done with data before a platform sees it. None of it needs one to run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.cli.datatools import asked
from services.cli.faults import Guarded
from services.cli.session import AsJson, show_json, show_table
from shared.contracts.datatools import Validated, ValidateRequest
from shared.contracts.strict import read
from shared.contracts.validation_report import Check
from shared.domain.errors import Invalid

app = typer.Typer(cls=Guarded, no_args_is_help=True, rich_markup_mode=None, help="Data, before a platform sees it.")


@app.command()
def validate(
    source: Annotated[str, typer.Argument(metavar="FILE|SPEC", help="A spec, or a file or glob of interactions.", show_default=False)],
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT=NAME", help="A file's column of the user, item, time or label; found by its name when absent. Repeatable."
        ),
    ] = None,
    positive: Annotated[str, typer.Option(help="What of a file's label is liked.")] = ">= 4",
    data_root: Annotated[list[str] | None, typer.Option(help="Where a spec's relative paths lie; repeatable.")] = None,
    against: Annotated[Path | None, typer.Option(help="The profile.json of an accepted batch, to compare with.")] = None,
    to: Annotated[Path | None, typer.Option(help="A folder for the report, as JSON and as a page, the profile and the bad rows.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check interactions as a run would. Exit code 0: they may be used; 1: a run would stop; 2: something is wrong with the question."""
    request = {
        "source": source,
        "roots": [*(data_root or ()), str(Path.cwd()), str(Path(source).absolute().parent), "/"],
        "columns": dict(_pair(one) for one in column or ()),
        "positive": positive,
        "against": None if against is None else str(against.absolute()),
        "folder": None if to is None else str(to.absolute()),
    }
    found = asked("validate", read(ValidateRequest, request, "eyas data validate"), Validated)
    if as_json:
        show_json(found.report.model_dump(mode="json"))
    else:
        _show(found)
    if found.refusal is not None:
        raise typer.Exit(1)


def _show(found: Validated) -> None:
    report, rows = found.report, found.report.rows
    typer.echo(f"{report.source}: {rows.read:,} rows read, {rows.kept:,} kept, {rows.quarantined:,} quarantined")
    ordered = [*report.crossed("stop"), *report.crossed("warn"), *report.crossed("pass")]
    lines = [(one.verdict, one.name, one.column or "", _figure(one, one.figure), _figure(one, one.stop), one.says) for one in ordered]
    show_table(("VERDICT", "CHECK", "COLUMN", "FIGURE", "ALLOWED", "WHAT WAS SEEN"), lines, "nothing was checked")
    for file in report.faulty:
        typer.echo(f"not read: {file.name} ({file.size:,} bytes, sha256 {file.sha256[:16]}): {file.fault}")
    typer.echo(f"stop: {found.refusal}" if found.refusal else f"{report.verdict}: a run would use it")


def _figure(one: Check, value: float | None) -> str:
    if value is None:
        return "any"
    return f"{value:.3f}" if one.unit == "index" else f"{value:.2%}"


def _pair(written: str) -> tuple[str, str]:
    what, equals, name = written.partition("=")
    if not (what and equals and name):
        raise Invalid(f"--column: expected WHAT=NAME such as user=userId, got {written!r}")
    return what, name
