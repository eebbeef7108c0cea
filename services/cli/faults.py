"""Errors of the command line: one line on stderr and an exit code of `exit_codes`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from services.cli.exit_codes import Exit
from services.cli.sanitise import plain
from shared.domain.errors import EyasError


class ReportedError(Exception):
    """Error whose line is ready to print."""

    def __init__(self, line: str, code: int = Exit.AWAY, status: int | None = None, faults: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(line)
        self.code = code
        self.faults = faults
        """Field and message of each fault that the platform lists."""
        self.status = status
        """HTTP status of the platform's answer, if the platform answered."""


class FaultReportingGroup(TyperGroup):
    """Command group that turns each error into one line and an exit code. With EYAS_DEBUG set, unexpected errors keep their traceback."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **options: Any) -> Any:
        standalone = options.pop("standalone_mode", True)
        if not standalone:
            return super().main(args, prog_name, standalone_mode=False, **options)
        try:
            code = super().main(args, prog_name, standalone_mode=False, **options)
        except typer.Abort:
            _tell("nothing was done")
            sys.exit(Exit.NO)
        except TyperException as error:
            sys.exit(_misused(error))
        sys.exit(code if isinstance(code, int) else Exit.DONE)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            commands = self.list_commands(ctx)
            message = f"`{ctx.command_path}` has no command '{args[0]}'"
            raise ReportedError(f"{message}: {meant(args[0], commands) or f'`{ctx.command_path} --help` lists them'}", Exit.WRONG)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ReportedError as error:
            _end(str(error), error.code)
        except EyasError as error:
            _end(str(error), Exit.WRONG if error.status < 500 else Exit.AWAY)
        except BrokenPipeError:
            sys.stderr.close()
            raise typer.Exit(Exit.UNREAD) from None
        except (typer.Exit, typer.Abort, TyperException):
            raise
        except Exception as error:
            if os.environ.get("EYAS_DEBUG"):
                raise
            _end(f"unexpected {type(error).__name__}: {error} (set EYAS_DEBUG=1 for the traceback)", Exit.AWAY)


def meant(word: str, candidates: Any) -> str:
    """Returns a question with the closest candidate, or an empty string if no candidate is close."""
    names = list(candidates)
    starts = [name for name in names if len(word) > 1 and name.startswith(word)]
    near = starts if len(starts) == 1 else get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else ""


def _misused(error: TyperException) -> int:
    """Prints a usage error of the parser on one line, with a suggestion or a pointer to `--help`."""
    ctx: Any = getattr(error, "ctx", None)
    message = " ".join(error.format_message().split())
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message(), err=True)
        return Exit.WRONG
    if ctx is None:
        _tell(message)
        return Exit.WRONG
    option = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption" and option is not None:
        option_names = [
            word
            for parameter in ctx.command.get_params(ctx)
            for word in (*parameter.opts, *parameter.secondary_opts)
            if word.startswith("-")
        ]
        near = meant(option, option_names)
        _tell(f"`{ctx.command_path}` has no option {option}: {near or f'`{ctx.command_path} --help` lists them'}")
        return Exit.WRONG
    _tell(f"{message[:1].lower()}{message[1:].rstrip('.')} (see `{ctx.command_path} --help`)")
    return Exit.WRONG


def _tell(line: str) -> None:
    typer.echo("eyas: " + plain(" ".join(line.split())), err=True)


def _end(line: str, code: int) -> NoReturn:
    _tell(line)
    raise typer.Exit(code) from None
