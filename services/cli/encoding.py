"""`features encode`: encodes images or texts as vectors for the operator `vector`, with a given encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.cli.datatools import placed, run_tool
from services.cli.exit_codes import Exit
from services.cli.faults import Refused
from services.cli.output import AsJson, say, show_json

_OPTIONS = ("size", "pixels", "tokens", "words", "batch")


def encode(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="Items, or users: one row a key.", show_default=False)],
    encoder: Annotated[Path, typer.Option(help="An .onnx or a .keras file.", show_default=False)],
    key: Annotated[str, typer.Option(help="The key's column.", show_default=False)],
    column: Annotated[str, typer.Option(help="Of images: their files. Of texts: the text.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The Parquet that is written.", show_default=False)],
    images: Annotated[Path | None, typer.Option(help="The folder of the images; the table's if absent.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Repeatable. size=224x224 of images where the encoder takes any; pixels=unit (0 to 1), signed, bytes or imagenet; "
            "tokens=64 words of a text and words=30000 known ones, where the encoder takes numbers; batch=32 rows at a time.",
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
    again = f", {answer.before:,} of them by an earlier try" if answer.before else ""
    say(f"{out}: {answer.rows:,} vectors of {answer.width} numbers{again}; {answer.left_out:,} rows have none")
    for reason in answer.reasons:
        say(f"left out: {reason}")
    say(f"in a spec: vector: {{of: {key}, from: {out}, width: {answer.width}}}")


def _chosen(written: str) -> tuple[str, str]:
    name, equals, value = written.partition("=")
    if not equals or name not in _OPTIONS:
        raise Refused(f"--option: expected one of {', '.join(f'{allowed}=...' for allowed in _OPTIONS)}, got {written!r}", Exit.WRONG)
    return name, value
