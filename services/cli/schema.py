"""`schema`: the JSON schema of specs, for completion, hover and diagnostics in editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from services.cli.exit_codes import Exit
from services.cli.faults import ReportedError
from services.cli.output import AsJson, say, show_json


def schema(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the specs; created if it does not exist.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Write the JSON schema of specs, spec.schema.json, beside them, for completion and checks in an editor with yaml-language-server."""
    file, first_line = write_schema(folder)
    if as_json:
        show_json({"file": str(file), "line": first_line})
        return
    say(f"{file}: written. First line of a spec in this folder:")
    say(first_line)


def write_schema(folder: Path) -> tuple[Path, str]:
    """Writes the schema into the folder of a spec; returns its file, and the spec's first line, by which an editor finds it."""
    from shared.contracts.editor_schema import FIRST_LINE, SCHEMA_FILE, editor_schema

    file = folder / SCHEMA_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(editor_schema(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ReportedError(f"{file}: cannot write: {error.strerror or error}; choose another folder", Exit.WRONG) from None
    return file, FIRST_LINE
