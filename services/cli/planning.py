"""`plan`: everything that a run would be refused for, and what it would do. `apply --dry-run` checks in the same way."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from services.cli import completing, paths
from services.cli.exit_codes import Exit
from services.cli.faults import ReportedError
from services.cli.files import read_text
from services.cli.output import AsJson, say, show_json, show_table
from services.cli.session import client
from shared.domain.errors import EyasError
from shared.domain.object_uris import is_object, split

if TYPE_CHECKING:
    from shared.contracts.spec import RecommenderSpec
    from shared.contracts.spec_lines import PlacedFault

SPECS = (".yaml", ".yml", ".json")
_UNKNOWN = re.compile(r"unknown attribute '[^']*'")
_MISSING = re.compile(r": (?:file|object) not found")
DataRoot = Annotated[list[str] | None, typer.Option(help="Folder of a spec's relative paths; repeatable.")]


@dataclass(frozen=True)
class SpecCheck:
    """Faults of a spec's file. `notes`: what could not be checked here, and warnings."""

    faults: Sequence[PlacedFault]
    notes: Sequence[str]
    rows: int | None


def plan(
    ctx: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|NAME", autocompletion=completing.names, help="A spec's file, or the name of a recommender.", show_default=False
        ),
    ],
    mode: Annotated[
        Literal["full", "warm", "auto"],
        typer.Option(help="Mode of the run of a recommender: `warm` starts from the serving version's weights; `auto` chooses."),
    ] = "full",
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Check a spec's file and its data, or show what a run of a recommender would do now. Starts nothing. Exit code 1: a run would be
    refused."""
    if target.lower().endswith(SPECS) or Path(target).is_file():
        report_check(ctx, Path(target), data_root, as_json)
    else:
        _forecast(client(ctx).post(paths.recommender(target, ":plan"), {"mode": mode}), as_json)


def report_check(ctx: typer.Context, file: Path, data_root: list[str] | None, as_json: bool) -> None:
    """Prints each fault of a spec's file with its line; ends with exit code 1 if there is one."""
    checked = check_file(ctx, file, data_root or [])
    if as_json:
        faults = [{"line": fault.line, "field": fault.field, "message": fault.message} for fault in checked.faults]
        show_json({"file": str(file), "rows": checked.rows, "faults": faults, "notes": list(checked.notes)})
    else:
        for fault in checked.faults:
            named = f"{fault.field}: " if fault.field and not fault.message.startswith(fault.field) else ""
            say(f"{file}{'' if fault.line is None else f':{fault.line}'}: {named}{fault.message}")
        for note in checked.notes:
            say(f"note: {note}")
        if not checked.faults and checked.rows is None:
            say(f"{file}: no fault, but the data was not checked")
        elif not checked.faults:
            say(f"{file}: a run would start, with {checked.rows:,} rows: eyas apply {file}")
    if checked.faults:
        raise typer.Exit(Exit.NO)


def check_file(ctx: typer.Context, file: Path, data_roots: list[str]) -> SpecCheck:
    """Checks a spec's text, then asks the platform, then reads the data."""
    from shared.contracts.spec import parse_spec
    from shared.contracts.spec_lines import placed_faults

    text = read_text(file)
    try:
        spec = parse_spec(text, str(file))
    except EyasError as error:
        message = str(error).removeprefix(f"{file}: ")
        return SpecCheck(placed_faults(text, error.faults or [("", message)]), (), None)
    platform = _ask_platform(ctx, text)
    data = _check_data(spec, data_roots, file)
    if platform.is_asked:
        data = _without_what_the_platform_has(data, platform)
    faults = (*platform.faults, *platform.warnings_of_data, *data.faults)
    notes = [*([platform.note] if platform.note else []), *data.notes]
    if data.rows is None:
        notes += [f"{field}: {message}" for field, message in platform.warnings if field.startswith("serve.")]
    return SpecCheck(placed_faults(text, dict.fromkeys(faults)), notes, data.rows)


@dataclass(frozen=True)
class _PlatformAnswer:
    """Faults and warnings by field, or a note that no platform has answered."""

    faults: Sequence[tuple[str, str]] = ()
    warnings: Sequence[tuple[str, str]] = ()
    note: str = ""

    @property
    def is_asked(self) -> bool:
        return not self.note

    @property
    def warnings_of_data(self) -> Sequence[tuple[str, str]]:
        """Warnings at which a run would stop; the others are about attributes that the check of the data decides."""
        return [(field, message) for field, message in self.warnings if not field.startswith("serve.")]


@dataclass(frozen=True)
class _DataAnswer:
    faults: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    rows: int | None = None


def _ask_platform(ctx: typer.Context, text: str) -> _PlatformAnswer:
    try:
        answer = client(ctx).post_text("/v1/recommenders:validate", text, "application/yaml")
    except ReportedError as error:
        if error.status is None or error.status in (401, 403) or error.status >= 500:
            return _PlatformAnswer(note=f"not checked by a platform: {error}")
        return _PlatformAnswer(faults=list(error.faults) or [("", str(error))])
    pairs = [warning.partition(": ") for warning in answer.get("warnings", ())]
    return _PlatformAnswer(warnings=[(field, message) for field, _, message in pairs])


def _check_data(spec: RecommenderSpec, data_roots: list[str], file: Path) -> _DataAnswer:
    """Reads the data with the caller's own rights."""
    from services.cli.datatools import run_tool
    from shared.contracts.datatools import CheckedSpec, CheckRequest

    if sys.stderr.isatty():
        typer.echo("checking the data ...", err=True)
    try:
        checked = run_tool("check", CheckRequest(spec=spec, roots=roots(spec, data_roots, file)), CheckedSpec)
    except ReportedError as error:
        return _DataAnswer(notes=[f"data not checked: {error}"])
    faults = (*checked.faults, *checked.unknown_attributes)
    notes = [f"{field}: {message}" for field, message in checked.absent_values]
    return _DataAnswer(faults, notes, checked.report.rows.kept if checked.report else None)


def _without_what_the_platform_has(data: _DataAnswer, platform: _PlatformAnswer) -> _DataAnswer:
    """Drops faults that the platform contradicts: an attribute that its catalogue has, and a file that only the platform can read."""
    missing = [message for field, message in data.faults if field.startswith("data.") and _MISSING.search(message)]
    if missing and not any(field.startswith("data.") for field, _ in (*platform.faults, *platform.warnings)):
        return _DataAnswer(notes=[f"data not checked: {missing[0]}; the platform has it"])
    unknown = {(field, attribute[0]) for field, message in platform.warnings if (attribute := _UNKNOWN.match(message))}

    def stays(field: str, message: str) -> bool:
        attribute = _UNKNOWN.match(message)
        return attribute is None or (field, attribute[0]) in unknown

    return replace(data, faults=[fault for fault in data.faults if stays(*fault)])


def roots(spec: RecommenderSpec, data_roots: list[str], file: Path) -> tuple[str, ...]:
    """Allows every local path and the spec's buckets, because the caller reads with their own rights."""
    buckets = [split(place.uri)[0] for place in spec.places().values() if place.uri and is_object(place.uri)]
    return *data_roots, "data", str(Path.cwd()), str(file.absolute().parent), "/", *buckets


def roots_of_file(file: Path, data_roots: list[str]) -> tuple[str, ...]:
    from shared.contracts.spec import parse_spec

    return roots(parse_spec(read_text(file), file.name), data_roots, file)


def _forecast(plan: Any, as_json: bool) -> None:
    if as_json:
        show_json(plan)
        return
    show_table(
        ("STAGE", "ACTION", "ATTEMPT", "SECONDS", "MEMORY", "WHY"),
        [tuple(stage[name] for name in ("stage", "does", "attempt", "seconds", "memory", "why")) for stage in plan["stages"]],
        "",
        drop=("MEMORY", "ATTEMPT"),
    )
    durations = [stage["seconds"] for stage in plan["stages"] if stage["seconds"] is not None]
    if durations:
        say(f"time: about {sum(durations):,.0f} s, from the newest run of these stages")
    say(f"gates: {'; '.join(plan['gates']) or 'none'}")
    say(f"queue: {plan['waits'] or 'the run could start at once'}")
    for warning in plan["warnings"]:
        say(f"warning: {warning}")
