"""The commands `backup`, `backups` and `restore`: copies of a platform's database and artifacts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli.exit_codes import Exit
from services.cli.home import default_home
from services.cli.output import AsJson, say, show_json

if TYPE_CHECKING:
    from services.wiring.backup import BackupResult

BackupPlace = Annotated[str, typer.Argument(help="Folder, or s3://BUCKET/PREFIX, of the backups.", show_default=False)]
HomeOption = Annotated[
    Path | None, typer.Option("--home", help="Folder of the platform's state. Default: $EYAS_HOME, or var/eyas.", show_default=False)
]
_EVERY = 2.0
"""Seconds between two lines of progress."""


def backup(
    to: BackupPlace,
    home: HomeOption = None,
    keep: Annotated[int | None, typer.Option(min=1, help="Delete all but this number of the newest backups.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Back up the database and the artifacts, while the platform runs. Artifacts that an earlier backup has are not copied again. Exit code
    1: the backup is made, but the artifact store has lost files already."""
    from services.wiring.backup import back_up

    _report(back_up(_options(home), to, keep, _Progress()), as_json, "made")


def backups(source: BackupPlace, as_json: AsJson = False) -> None:
    """List the complete backups of a folder or bucket, the oldest first."""
    from shared.artifacts.backups import BackupStore

    names = BackupStore(source).names()
    if as_json:
        show_json({"names": list(names)})
        return
    for name in names:
        say(name)
    if not names:
        say("no backups")


def restore(
    source: BackupPlace,
    home: HomeOption = None,
    backup_name: Annotated[
        str | None, typer.Option("--backup", help="Name of the backup. Default: the newest.", show_default=False)
    ] = None,
    artifacts_only: Annotated[
        bool, typer.Option("--artifacts-only", help="Keep the database; restore the artifacts that are missing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a database without data, while no platform runs. Exit code 1: restored, but the backup lacks files."""
    from services.wiring import backup as wiring

    _report(wiring.restore(_options(home), source, backup_name, artifacts_only, _Progress()), as_json, "restored")


def _options(home: Path | None) -> dict[str, Any]:
    return {"home": home or default_home()}


def _report(result: BackupResult, as_json: bool, verb: str) -> None:
    made = result.backup
    if as_json:
        _show_json(result)
    else:
        say(
            f"backup {made.name} {verb}: {made.database.kind} database of {_megabytes(made.database.file.size)},"
            f" artifacts of {_megabytes(sum(file.size for file in made.blobs))}; {_megabytes(result.copied_bytes)} copied"
        )
        if result.pruned:
            say(f"deleted: {', '.join(result.pruned)}")
        if result.forgotten_again:
            say(f"forgotten again: {result.forgotten_again:,} users who were forgotten after this backup")
    if made.missing:
        shown = ", ".join(name[:40] for name in made.missing[:5])
        lost = f"{len(made.missing):,} missing or damaged in the artifact store at the time of the backup ({shown})"
        typer.echo(f"incomplete: {lost}: train these versions again, or restore an older backup with --artifacts-only", err=True)
        raise typer.Exit(Exit.NO)


def _show_json(result: BackupResult) -> None:
    made = result.backup
    database = {"kind": made.database.kind, "revision": made.database.tables.revision, "bytes": made.database.file.size}
    show_json(
        {
            "name": made.name,
            "at": made.at.isoformat(),
            "database": database,
            "artifacts": {"files": len(made.blobs), "bytes": sum(file.size for file in made.blobs)},
            "copied_bytes": result.copied_bytes,
            "missing": list(made.missing),
            "pruned": list(result.pruned),
        }
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


class _Progress:
    """Prints progress on stderr, not more often than every two seconds."""

    def __init__(self) -> None:
        self._printed_at = time.monotonic()

    def __call__(self, line: str) -> None:
        now = time.monotonic()
        if now - self._printed_at >= _EVERY:
            self._printed_at = now
            typer.echo(line, err=True)
