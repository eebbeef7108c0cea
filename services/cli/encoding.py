"""`features encode`: encodes images or texts as vectors for the operator `vector`, with a given encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.cli.datatools import placed, run_tool
from services.cli.exit_codes import Exit
from services.cli.faults import ReportedError
from services.cli.output import AsJson, say, show_json

_OPTIONS = ("size", "pixels", "tokens", "words", "batch")


def encode(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="Table of items or users: one row per key.", show_default=False)],
    encoder: Annotated[Path, typer.Option(help="Encoder: an .onnx or .keras file.", show_default=False)],
    key: Annotated[str, typer.Option(help="Column of the key.", show_default=False)],
    column: Annotated[str, typer.Option(help="Column of the image files or of the texts.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Parquet file to write.", show_default=False)],
    images: Annotated[Path | None, typer.Option(help="Folder of the images. Default: the table's folder.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Repeatable. size=224x224: image size, if the encoder takes any size; pixels=unit (0 to 1), signed, bytes or imagenet; "
            "tokens=64 and words=30000: words per text and known words, if the encoder takes numbers; batch=32: rows per batch.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Encode images or texts of a table as vectors. After an interruption, the same command continues."""
    from shared.contracts.encoding import Encoded, EncodeRequest
    from shared.contracts.strict import read

    request = {
        "encoder": str(encoder.absolute()),
        "table": str(table.absolute()),
        "key": key,
        "column": column,
        "out": str(out.absolute()),
        "images": placed(images),
        **dict(_chosen(text) for text in option or ()),
    }
    answer = run_tool("encode", read(EncodeRequest, request, "eyas features encode"), Encoded)
    if as_json:
        show_json(answer.model_dump(mode="json"))
        return
    again = f", {answer.before:,} of them from an earlier try" if answer.before else ""
    say(f"{out}: {answer.rows:,} vectors of {answer.width} numbers{again}; {answer.left_out:,} rows have no vector")
    for reason in answer.reasons:
        say(f"left out: {reason}")
    say(f"in a spec: vector: {{of: {key}, from: {out}, width: {answer.width}}}")


def _chosen(written: str) -> tuple[str, str]:
    name, equals, value = written.partition("=")
    if not equals or name not in _OPTIONS:
        raise ReportedError(f"--option: expected one of {', '.join(f'{allowed}=...' for allowed in _OPTIONS)}, got {written!r}", Exit.WRONG)
    return name, value
