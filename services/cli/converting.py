"""`features convert`: Keras preprocessing layers and TensorFlow feature columns as a spec's `features`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from services.cli.datatools import asked
from services.cli.session import AsJson, show_json
from shared.contracts.conversion import Conversion, ConvertRequest


def convert(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="JSON: a Keras model, a FeatureSpace, layers by column, or feature columns.", show_default=False
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Show Keras preprocessing layers or TensorFlow feature columns as a spec's features. Nothing in the file is run."""
    found = asked("convert_features", ConvertRequest(file=str(file.absolute())), Conversion)
    if as_json:
        show_json(found.model_dump(mode="json"))
        return
    for note in found.notes:
        typer.echo(f"# {' '.join(note.split())}")
    typer.echo("features:")
    for entry in found.features:
        typer.echo(f"  - {json.dumps(entry, ensure_ascii=False)}")
