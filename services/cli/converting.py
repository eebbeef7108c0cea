"""`features convert`: Keras preprocessing layers and TensorFlow feature columns as a spec's `features`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from services.cli.datatools import run_tool
from services.cli.output import AsJson, say, show_json, show_text


def convert(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="JSON: a Keras model, a FeatureSpace, layers by column, or feature columns.", show_default=False
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Convert Keras preprocessing layers or TensorFlow feature columns to a spec's features. No code of the file is run."""
    from shared.contracts.conversion import Conversion, ConvertRequest

    conversion = run_tool("convert_features", ConvertRequest(file=str(file.absolute())), Conversion)
    if as_json:
        show_json(conversion.model_dump(mode="json"))
        return
    for note in conversion.notes:
        say(f"# {' '.join(note.split())}")
    show_text("features:")
    for entry in conversion.features:
        show_text(f"  - {json.dumps(entry, ensure_ascii=False)}")
