"""`init`: writes a spec from data files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from services.cli.data import pair
from services.cli.datatools import run_tool
from services.cli.exit_codes import Exit
from services.cli.faults import ReportedError
from services.cli.output import AsJson, say, show_json
from services.cli.schema import write_schema
from shared.domain.errors import Invalid
from shared.domain.naming import NAME
from shared.domain.object_uris import is_object

_ROOT = Path("data")
"""Data root of `eyas up` without options."""


def init(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="Files of interactions and, if you have them, of items and users, in any order.", show_default=False
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Name of the recommender. Default: the name of the first file.")] = None,
    to: Annotated[Path | None, typer.Option(help="File to write. Default: NAME.yaml.")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="WHAT=NAME", help="Column of the user, item, time or label. Default: recognised by name. Repeatable."),
    ] = None,
    time_format: Annotated[str | None, typer.Option(help="Form of the times, such as '%d.%m.%Y', or ms.")] = None,
    positive: Annotated[str | None, typer.Option(help="Condition on the label for a positive, such as '>= 4'.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a spec from data files, and the schema by which editors explain it; show what was recognised. Nothing is sent to a platform."""
    from shared.contracts.datatools import Draft, DraftRequest
    from shared.contracts.strict import read

    name = name if name is not None else _name(files[0])
    to = to or Path(f"{name}.yaml")
    if to.exists() and not force:
        raise ReportedError(f"{to}: already exists; name another file with --to, or replace it with --force", Exit.WRONG)
    uris = [_uri(file) for file in files]
    request = {
        "files": [file if is_object(file) else str(Path(file).expanduser().absolute()) for file in files],
        "uris": uris,
        "name": name,
        "columns": dict(pair(text) for text in column or ()),
        "time_format": time_format,
        "positive": positive,
    }
    draft = run_tool("draft", read(DraftRequest, request, "eyas init"), Draft)
    schema, first_line = write_schema(to.parent)
    try:
        to.write_text(f"{first_line}\n{draft.text}", encoding="utf-8")
    except OSError as error:
        raise ReportedError(f"{to}: {error.strerror}", Exit.WRONG) from None
    if as_json:
        show_json({"file": str(to), "uris": uris, "guesses": list(draft.guesses)})
        return
    for guess in draft.guesses:
        say(guess)
    outside = sorted({str(Path(uri).parent) for uri in uris if not is_object(uri) and Path(uri).is_absolute()})
    if outside:
        roots = " ".join(f"--data-root {root}" for root in outside)
        say(f"these files are outside the folder data: start the platform with eyas up {roots}")
    say(f"{to}: written, with {schema.name} for editors; read it, then: eyas apply {to}")


def _name(file: str) -> str:
    """Returns a recommender's name from a file's name."""
    stem = re.sub(r"[^a-z0-9]+", "-", Path(file).name.split(".")[0].lower()).strip("-")[:40].rstrip("-")
    if not NAME.fullmatch(stem):
        raise Invalid(f"{file}: no recommender can have this name; set --name, such as movies")
    return stem


def _uri(file: str) -> str:
    """Returns how a spec names the file: relative to the folder of data if it is in there."""
    if is_object(file):
        return file
    path, root = Path(os.path.normpath(Path(file).expanduser().absolute())), _ROOT.absolute()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
