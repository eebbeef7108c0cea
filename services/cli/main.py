"""Entry point of `eyas`, with the options that all commands share."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from services.cli.command_registry import CommandGroup
from services.cli.completing import VARIABLE
from services.cli.home import ClientSession

app = typer.Typer(
    name="eyas",
    cls=CommandGroup,
    help="Trains recommenders and rolls each new version out in small, judged steps.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def options(
    ctx: typer.Context,
    url: Annotated[str | None, typer.Option(envvar="EYAS_URL", help="Address of the platform. Default: as written by `eyas up`.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(envvar="EYAS_TOKEN_FILE", help="File with the token. Default: the token in the platform's home.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="EYAS_TOKEN", help="The token itself. Prefer the variable: other users can see command lines.")
    ] = None,
) -> None:
    ctx.obj = ClientSession(url, token_file, token)


def main() -> None:
    if VARIABLE in os.environ:
        _complete()
    app(prog_name="eyas")


def _complete() -> None:
    """Prints completions for a shell. Errors print nothing, because output would corrupt the user's prompt."""
    from typer._completion_classes import completion_init

    completion_init()
    try:
        app(prog_name="eyas", complete_var=VARIABLE)
    except SystemExit:
        raise
    except BaseException:  # for example an invalid name or an unknown option
        sys.exit(1)


if __name__ == "__main__":
    main()
